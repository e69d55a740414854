"""The end of a run in one file and one table."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax
from rich import box
from rich.console import Console
from rich.table import Table

from seqlab.evaluation.interval import interval
from seqlab.files import to_json, write_whole
from seqlab.types import Event

Measured = dict[str, dict[str, dict[str, Any]]]
"""For each split and metric its mean over the replicas, half the width of the 95 % interval, and the values."""


def summarise(
    events: Sequence[Event],
    *,
    status: str,
    message: str,
    steps: int,
    monitor: str,
    mode: str,
    skipped_R: Sequence[int],
    parameters: int,
    compile_seconds: float,
    wall_seconds: float,
    earlier_seconds: float = 0.0,
    peak_memory_mib: int | None = None,
    baseline: dict[str, Any] | None = None,
    examples: dict[str, Any] | None = None,
    written: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Sum up a run from its record: `final` holds the last event of each split, `best` those at the best step.

    Training and evaluation may have been told last at different steps, `final_train_step` and `final_step`.
    The best step is the first at which the mean of `monitor` ("split/metric") over the replicas is least or, with
    mode "max", greatest; it is None where that was never finite. The rates are medians over the training events.
    The seconds are those of all processes that the run has had; `earlier_seconds` of them were before it was resumed.
    `baseline` is the task's, its name and what it measures, `examples` says what the data are, and `written` how good
    the texts are that the best state writes.
    """
    best_step, best_value = find_best(events, monitor, mode)
    rates = {
        name: median(event.rates[name] for event in events if name in event.rates)
        for name in dict.fromkeys(name for event in events for name in event.rates)
    }
    return {
        "status": status,
        "message": message,
        "steps": steps,
        "monitor": monitor,
        "mode": mode,
        "final_step": max((event.step for event in events if event.split != "train"), default=None),
        "final_train_step": max((event.step for event in events if event.split == "train"), default=None),
        "best_step": best_step,
        "best_value": best_value,
        "final": _measure(events),
        "best": _measure([event for event in events if event.step == best_step]),
        "skipped_updates": list(skipped_R),
        "parameters": parameters,
        **rates,
        "compile_seconds": round(compile_seconds, 3),
        "wall_seconds": round(wall_seconds, 3),
        **({"earlier_seconds": round(earlier_seconds, 3)} if earlier_seconds else {}),
        **({} if peak_memory_mib is None else {"peak_memory_mib": peak_memory_mib}),
        **({"baseline": baseline} if baseline else {}),
        **({"examples": examples} if examples else {}),
        **({"written": written} if written else {}),
    }


def find_best(events: Sequence[Event], monitor: str, mode: str) -> tuple[int | None, float | None]:
    """The first step at which the mean of the monitor is best, and that mean."""
    split, metric = monitor.split("/", 1)
    sign = 1.0 if mode == "min" else -1.0
    best_step, best_value = None, None
    for event in events:
        if event.split == split and metric in event.values:
            mean = interval(event.values[metric]).mean
            if math.isfinite(mean) and (best_value is None or sign * mean < sign * best_value):
                best_step, best_value = event.step, mean
    return best_step, best_value


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary whole."""
    write_whole(path, to_json(summary, indent=2) + "\n")


def print_summary(summary: dict[str, Any], directory: Path, console: Console | None = None) -> None:
    """Print the final and best metrics, what the run cost, and where its things lie."""
    console = console or Console()
    console.print()
    lines = [f"{summary['status']}: {summary['message']}"]
    if summary.get("final_step") is not None:
        console.print(_tabulate(summary))
        if "written" in summary:
            console.print(tabulate_written(summary["written"], f"best, step {summary['best_step']}"))
        n_replicas = len(summary["skipped_updates"])
        over = f"; ±: 95 % interval over {n_replicas} replicas" if n_replicas > 1 else ""
        lines = [f"* picks the best ({summary['mode']}){over}", "", *lines, _describe_cost(summary)]
    for line in [*lines, "", *_describe_places(directory, summary["status"])]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def format_measured(measured: dict[str, Any] | None) -> str:
    """Write a metric of a summary as "0.987 ± 0.012", a missing one as a dash."""
    return "–" if measured is None else interval([float(value) for value in measured["values"]]).format()


def format_baseline(baseline: dict[str, Any], split: str, name: str) -> str:
    """Write what a baseline measures of a split, a missing metric as a dash."""
    value = baseline["measured"].get(split, {}).get(name)
    return "–" if value is None else interval([value]).format()


def measure_values(values: Sequence[float]) -> dict[str, Any]:
    """A metric as it stands in a summary: the mean over replicas, half the width of its interval, the values."""
    told = interval(values)
    return {"mean": told.mean, "half_width": told.half_width, "values": list(values)}


def _measure(events: Sequence[Event]) -> Measured:
    # A later event of a split replaces an earlier one.
    return {event.split: {name: measure_values(v) for name, v in event.values.items()} for event in events}


def _tabulate(summary: dict[str, Any]) -> Table:
    final, best = summary["final"], summary["best"]
    last = summary.get("final_train_step", summary["final_step"])
    trained = "" if last == summary["final_step"] else f" (step {last})"
    evaluated = {name for split, named in final.items() if split != "train" for name in named}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    table.add_column(f"final, step {summary['final_step']}", justify="right")
    table.add_column("best" if summary["best_step"] is None else f"best, step {summary['best_step']}", justify="right")
    baseline = summary.get("baseline")
    if baseline is not None:
        table.add_column(baseline["name"], justify="right")
    for split, named in sorted(final.items(), key=lambda item: item[0] != "train"):
        for name in named:
            if name in evaluated:
                label = f"{split}/{name}"
                chosen_by = " *" if label == summary["monitor"] else ""
                at_best = format_measured(best.get(split, {}).get(name))
                elsewhere = trained if split == "train" else ""
                row = [label + chosen_by + elsewhere, format_measured(named[name]), at_best]
                if baseline is not None:
                    row.append(format_baseline(baseline, split, name))
                table.add_row(*row)
    return table


def tabulate_written(written: dict[str, Any], state: str) -> Table:
    """The scores of texts that a state writes, beside those of the baseline."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("written", state, written["baseline"]["name"]):
        table.add_column(heading, justify="left" if heading == "written" else "right")
    for split, named in written["measured"].items():
        for name, value in named.items():
            tokens = f" ({written['tokenize']})" if name == "bleu" and "tokenize" in written else ""
            table.add_row(
                f"{split}/{name}{tokens}", format_measured(value), format_baseline(written["baseline"], split, name)
            )
    return table


def _describe_cost(summary: dict[str, Any]) -> str:
    skipped = sum(summary["skipped_updates"])
    parts = [
        f"{summary['parameters']:,} parameters",
        *(
            f"{summary[f'{unit}_per_second']:,.0f} {unit}/s"
            for unit in ("steps", "tokens")
            if f"{unit}_per_second" in summary
        ),
        *(
            [f"{summary['share_of_time_waiting_for_data']:.1%} of the time waiting for data"]
            if "share_of_time_waiting_for_data" in summary
            else []
        ),
        *([f"{1e3 / summary['steps_per_second']:,.3g} ms a step"] if summary.get("steps_per_second") else []),
        f"compiled in {summary['compile_seconds']:.1f} s",
        (
            f"{summary['wall_seconds']:.1f} s in all, {summary['earlier_seconds']:.1f} s of them before it was resumed"
            if "earlier_seconds" in summary
            else f"{summary['wall_seconds']:.1f} s since the command"
        ),
        *([f"{summary['peak_memory_mib']:,} MiB at most"] if "peak_memory_mib" in summary else []),
        *([f"{skipped} updates skipped"] if skipped else []),
    ]
    return ", ".join(parts)


def _describe_places(directory: Path, status: str) -> list[str]:
    near = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    places: dict[str, Path | str] = {
        "directory": near,
        "learning curves": near / "figures" / "learning_curves.png",
        "record": near / "metrics.jsonl",
    }
    if any(directory.glob("checkpoints/best/*")):
        places["evaluate"] = f"python -m seqlab.evaluate run={near}"
    if (directory / "profile" / "operations.json").exists():
        places["profile"] = near / "profile"
    if status == "interrupted":
        hosts = " trainer.hosts=…, on every host" if jax.process_count() > 1 else ""
        places["go on"] = f"python -m seqlab.train resume={near}{hosts}"
    if any(directory.glob("wandb/offline-run-*")):
        # All of them: a run leaves one each time it is resumed.
        places["upload to W&B"] = f"wandb sync {near / 'wandb' / 'offline-run-*'}"
    return [f"{name:<16}{place}" for name, place in places.items()]
