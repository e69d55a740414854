"""All runs of a sweep in one table."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqlab.files import read_json
from seqlab.training.summary import format_measured
from seqlab.types import UserError

DONE = ("completed", "stopped early")


@dataclasses.dataclass(frozen=True)
class Row:
    """One job of a sweep: `overrides` by key, and its summary, which says "lost" where a job died without a word."""

    job: str
    overrides: dict[str, str]
    summary: dict[str, Any]

    @property
    def status(self) -> str:
        return self.summary["status"]

    def measured(self, when: str, split: str, metric: str) -> str:
        """A metric, `when` it was "final" or "best", as text; texts are written at the best step."""
        measured = self.summary.get(when, {}).get(split, {})
        written = self.written.get(split, {}) if when == "best" else {}
        return format_measured((measured | written).get(metric))

    @property
    def written(self) -> dict[str, dict[str, Any]]:
        """The scores of texts that the run has written, by split and metric."""
        return self.summary.get("written", {}).get("measured", {})


def collect(sweep_dir: Path) -> list[Row]:
    """Read the jobs of a Hydra multirun directory, in their order."""
    jobs = [path for path in sweep_dir.iterdir() if path.is_dir() and not path.name.startswith(".")]
    jobs.sort(key=lambda path: (not path.name.isdigit(), int(path.name) if path.name.isdigit() else 0, path.name))
    return [Row(path.name, _read_overrides(path), read_summary(path)) for path in jobs]


def print_run_table(rows: Sequence[Row], console: Console | None = None) -> int:
    """Print the jobs: what tells them apart, how they ended, their metrics. Give how many did not complete.

    Metrics are the monitored one, the accuracies, and the scores of what was written, final and at the best step, as
    mean ± 95 % interval.
    """
    # A pipe has no width: give it room for a line a job instead of the 80 columns that rich assumes.
    console = console or Console(width=None if sys.stdout.isatty() else 160)
    keys = _differing_keys(rows)
    metrics = _pick_metrics(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("job", no_wrap=True)
    for name in shorten(keys):
        table.add_column(name, overflow="fold", min_width=6)
    table.add_column("status", no_wrap=True)
    table.add_column("step", no_wrap=True)
    for split, metric in metrics:
        table.add_column(f"{split}\n{metric}", justify="right")
    table.add_column("steps/s", justify="right", no_wrap=True)
    for row in rows:
        # As text, since rich would take [wandb] for a style.
        told = [Text(word) for word in (row.job, *(row.overrides.get(key, "–") for key in keys), row.status)]
        rate = row.summary.get("steps_per_second")
        if "final" not in row.summary:
            table.add_row(*told)
            continue
        final = [row.measured("final", *metric) for metric in metrics]
        best = [row.measured("best", *metric) for metric in metrics]
        table.add_row(*told, f"final {row.summary['steps']}", *final, "–" if rate is None else f"{rate:,.0f}")
        table.add_row(*([None] * len(told)), f"best {row.summary['best_step']}", *best)
    console.print(table)
    not_done = [row for row in rows if row.status not in DONE]
    for row in not_done:
        line = f"job {row.job} {row.status}: {row.summary['message']}"
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    return len(not_done)


def _read_overrides(job: Path) -> dict[str, str]:
    file = job / "overrides.yaml"
    overrides = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    pairs = [str(override).partition("=") for override in overrides or []]
    return {key.lstrip("+~"): value for key, _, value in pairs}


def read_summary(job: Path) -> dict[str, Any]:
    """The summary of a job; without one that can be read the job is "lost"."""
    file = job / "summary.json"
    if not file.exists():
        return {"status": "lost", "message": f"it ended without a summary, see {job}"}
    try:
        return read_json(file)
    except UserError as error:
        return {"status": "lost", "message": str(error)}


def _differing_keys(rows: Sequence[Row]) -> list[str]:
    told = [row.overrides for row in rows if row.overrides]  # A job that was lost at once tells none.
    keys = dict.fromkeys(key for overrides in told for key in overrides)
    return [key for key in keys if len({overrides.get(key) for overrides in told}) > 1]


def shorten(keys: Sequence[str]) -> list[str]:
    """The last word of each key, where that is nobody else's."""
    last = [re.split(r"[./]", key)[-1] for key in keys]
    return [word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)]


def _pick_metrics(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The monitored metrics, then what evaluation calls an accuracy, then the scores of what was written."""
    monitored = [tuple(row.summary["monitor"].split("/", 1)) for row in rows if "monitor" in row.summary]
    accuracies = [
        (split, metric)
        for row in rows
        for split, named in row.summary.get("final", {}).items()
        for metric in named
        if split != "train" and "accuracy" in metric
    ]
    written = [(split, metric) for row in rows for split, named in row.written.items() for metric in named]
    return list(dict.fromkeys([*monitored, *accuracies, *written]))
