"""The runs of a report: found in directories, and read however they ended."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from seqlab.analysis.figures import arrange_curves
from seqlab.analysis.run_table import read_summary
from seqlab.evaluation.interval import Interval
from seqlab.overrides import nearest, stored_overrides
from seqlab.training.loggers.jsonl import FILE_NAME, read_events
from seqlab.training.run_directory import read_config
from seqlab.training.summary import find_best, measure_values
from seqlab.types import Event, UserError, require

MARKS = ("config.yaml", "summary.json", FILE_NAME, "overrides.yaml")

Measures = dict[str, Interval]
"""What was measured by "split/metric"; what is told of written texts by "written/split/metric"."""


class ClassPath(str):
    """The value of a node that builds an object: the path of its class."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run directory: how it ended, what it was told to do and what it measured.

    `settings` is the resolved config, flat: keys as on the command line, values as YAML writes them, and for a node
    that builds an object the path of its class. Of a run that left no config it is None.
    """

    path: Path
    name: str
    status: str
    message: str
    overrides: tuple[str, ...]
    settings: dict[str, str] | None
    seeds: tuple[int, ...]
    summary: dict[str, Any]
    best: Measures
    final: Measures
    baseline: dict[str, float]
    events: tuple[Event, ...]

    def figures(self) -> list[Path]:
        """Its pictures: of training, and what analyses found, the last look of each."""
        drawn = sorted(path for path in (self.path / "figures").rglob("*") if path.suffix in (".png", ".svg"))
        found = {}
        for path in sorted((self.path / "analyses").rglob("*.png"), key=_looked_at):
            looked_on = path.parent.name.startswith("step_")
            found[path.parent.parent if looked_on else path.parent, path.name] = path
        return [*drawn, *sorted(found.values())]


def find_runs(given: Sequence[Path]) -> list[Path]:
    """The run directories among directories and below them; each job of a multirun is one, whatever it left behind.

    Raises   UserError for a directory that does not exist, or holds no run.
    """
    found: dict[Path, None] = {}
    for directory in given:
        if not directory.is_dir():
            siblings = [path.name for path in directory.parent.glob("*") if path.is_dir()]
            hint = f"; {nearest(directory.name, siblings)}" if siblings else "."
            raise UserError(f"{directory} is not a directory{hint}")
        inside = sorted(_walk(directory.resolve()), key=_rank)
        require(bool(inside), f"{directory} holds no run: there is no {MARKS[0]} in it or below it.")
        found |= dict.fromkeys(inside)
    return list(found)


def read_run(path: Path, name: str) -> Run:
    """Read a run. One that ended without a summary is told by its record; what cannot be read is told as "unreadable".

    Values are those of `summary.json`, or without one of the last lines of `metrics.jsonl`, to the last bit.
    """
    troubles: list[str] = []

    def attempt(read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            known = isinstance(error, UserError)
            troubles.append(str(error) if known else f"{path} holds what no run has written: {error!r}")
            return otherwise

    overrides = attempt(lambda: tuple(stored_overrides(path)), ()) if (path / "overrides.yaml").exists() else ()
    settings = attempt(lambda: flatten(read_config(path)), None) if (path / "config.yaml").exists() else None
    seeds = attempt(lambda: _seeds(settings), ()) if settings else ()
    events = attempt(lambda: _read_record(path / FILE_NAME), ()) if (path / FILE_NAME).exists() else ()
    has_summary = (path / "summary.json").exists()
    if has_summary or settings is None:
        summary = read_summary(path)
    else:
        summary = attempt(lambda: _summarise_record(events, settings), {})
    measured = attempt(lambda: _read_measured(summary), ({}, {}, {}))
    status, message = attempt(lambda: (summary["status"], str(summary["message"])), ("unreadable", ""))
    if troubles or (status == "lost" and has_summary):
        status, message = "unreadable", "; ".join(troubles) or message
    summary = summary if isinstance(summary, dict) else {}
    best, final, baseline = measured
    return Run(path, name, status, message, overrides, settings, seeds, summary, best, final, baseline, events)


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """A config by dotted keys. A node that builds an object has its class as its value, beside what lies in it."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= {path: ClassPath(value["_target_"])} if "_target_" in value else {}
            flat |= flatten({k: v for k, v in value.items() if k[:1] != "_"}, f"{path}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
            flat[path] = text.removesuffix("...\n").strip()
    return flat


def _looked_at(path: Path) -> tuple[float, Path]:
    """The step at which an analysis drew this while training went on; afterwards is later than any."""
    _, _, step = path.parent.name.partition("step_")
    return int(step) if step.isdigit() else math.inf, path


def _walk(directory: Path) -> list[Path]:
    if any((directory / mark).exists() for mark in MARKS):
        return [directory]
    is_sweep = (directory / "multirun.yaml").exists()
    found = []
    for child in directory.iterdir():
        if child.is_dir() and not child.name.startswith(".") and not child.is_symlink():
            try:
                found += _walk(child) or ([child] if is_sweep else [])
            except OSError:  # not ours to read
                continue
    return found


def _rank(path: Path) -> list[tuple[bool, int, str]]:
    # 10 comes after 2.
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in path.parts]


def name_runs(paths: Sequence[Path]) -> list[str]:
    """What tells the directories apart: their paths below the one they share."""
    shared = Path(os.path.commonpath(paths)) if len(paths) > 1 else paths[0].parent
    return [path.relative_to(shared).as_posix() for path in paths]


def _read_measured(summary: dict[str, Any]) -> tuple[Measures, Measures, dict[str, float]]:
    written = summary.get("written", {})
    baselines = {"": summary.get("baseline", {}), "written/": written.get("baseline", {})}
    best = _flatten_measured(summary.get("best", {})) | _flatten_measured(written.get("measured", {}), "written/")
    baseline = {
        f"{prefix}{split}/{metric}": float(value)
        for prefix, node in baselines.items()
        for split, named in node.get("measured", {}).items()
        for metric, value in named.items()
    }
    return best, _flatten_measured(summary.get("final", {})), baseline


def _flatten_measured(measured: dict[str, Any], prefix: str = "") -> Measures:
    def read(told: dict[str, Any]) -> Interval:
        half = told["half_width"]
        return Interval(float(told["mean"]), None if half is None else float(half), tuple(map(float, told["values"])))

    return {f"{prefix}{split}/{name}": read(told) for split, named in measured.items() for name, told in named.items()}


def _read_record(path: Path) -> tuple[Event, ...]:
    events = read_events(path)
    arrange_curves(events)  # What makes no curves is no record either.
    return tuple(events)


def _summarise_record(events: Sequence[Event], settings: dict[str, str]) -> dict[str, Any]:
    """What a summary would say of a run so far."""
    monitor, mode = settings["trainer.monitor"], settings["trainer.mode"]
    best_step, _ = find_best(events, monitor, mode)

    def measure(part: Sequence[Event]) -> dict[str, Any]:
        return {event.split: {name: measure_values(v) for name, v in event.values.items()} for event in part}

    step, steps = max((event.step for event in events), default=0), settings["trainer.steps"]
    return {
        "status": "unfinished",
        "message": f"no summary: it goes on, or was killed; its record reaches step {step} of {steps}",
        "monitor": monitor,
        "mode": mode,
        "steps": step,
        "best_step": best_step,
        "best": measure([event for event in events if event.step == best_step]),
        "final": measure(events),
    }


def _seeds(settings: dict[str, str]) -> tuple[int, ...]:
    first = int(settings["seed"])
    return tuple(range(first, first + int(settings["seeds"])))
