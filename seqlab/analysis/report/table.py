"""The table of runs, for a page, as Markdown and as CSV."""

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence

from seqlab.analysis.report.runs import Measures, Run
from seqlab.analysis.report.settings import ABSENT, Setting, to_number
from seqlab.evaluation.interval import Interval, interval

COSTS = ("parameters", "steps_per_second", "tokens_per_second", "compile_seconds", "wall_seconds", "peak_memory_mib")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What a reader sees, what the cell is sorted by (None: unknown, last), and what is told beside it."""

    text: str
    value: float | str | None
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A cell for each run; columns of one group stand under a common heading."""

    label: str
    cells: tuple[Cell, ...]
    group: str = ""
    title: str = ""


def metric_names(runs: Sequence[Run]) -> list[str]:
    """What to show of runs: what they are monitored by, what evaluation sets measure, how good written texts are."""
    monitored = [run.summary["monitor"] for run in runs if run.best and "monitor" in run.summary]
    others = [name for run in runs for name in [*run.final, *run.best] if not name.startswith("train/")]
    return list(dict.fromkeys([*monitored, *sorted(others, key=lambda name: name.startswith("written/"))]))


def make_columns(runs: Sequence[Run], settings: Sequence[Setting], metrics: Sequence[str]) -> list[Column]:
    """The table: names, what differs, how the runs ended, what they measured at the best step and at the end, costs."""

    def column(label: str, cell: Callable[[Run], Cell], group: str = "", title: str = "") -> Column:
        return Column(label, tuple(map(cell, runs)), group, title)

    columns = [column("run", lambda run: Cell(run.name, run.name))]
    for setting in settings:
        cells = tuple(Cell(value, _sortable(value)) for value in setting.values)
        columns.append(Column(setting.label, cells, title=" = ".join([setting.key, *setting.also])))
    columns.append(column("status", lambda run: Cell(run.status, run.status, run.message)))
    columns.append(column("steps done", lambda run: _count(run, "steps")))
    columns.append(column("best step", lambda run: _count(run, "best_step")))
    for metric in metrics:
        columns.append(column("best", lambda run, m=metric: _measured(run, run.best.get(m)), metric))  # type: ignore[misc]
        if any(metric in run.final for run in runs):
            columns.append(column("final", lambda run, m=metric: _measured(run, run.final.get(m)), metric))  # type: ignore[misc]
        if any(metric in run.baseline for run in runs):
            columns.append(column("baseline", lambda run, m=metric: _baseline(run, m), metric))  # type: ignore[misc]
    columns.append(column("parameters", lambda run: _count(run, "parameters")))
    columns.append(column("steps/s", lambda run: _count(run, "steps_per_second")))
    if any("tokens_per_second" in run.summary for run in runs):
        columns.append(column("tokens/s", lambda run: _count(run, "tokens_per_second")))
    columns.append(column("compiled in", lambda run: _time(run, "compile_seconds")))
    columns.append(column("time", lambda run: _time(run, "wall_seconds"), title="from the command to the end"))
    return columns


def write_markdown(columns: Sequence[Column], links: Sequence[str]) -> str:
    """The table as Markdown, with a link from each run to its directory."""
    headings = [f"{column.group} {column.label}".strip() for column in columns]
    rows = [
        [f"[{_escape(name.text)}](<{link}>)", *(_escape(cell.text) for cell in cells)]
        for link, (name, *cells) in zip(links, zip(*(column.cells for column in columns), strict=True), strict=True)
    ]
    return tabulate([_escape(heading) for heading in headings], rows)


def tabulate(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_csv(runs: Sequence[Run], settings: Sequence[Setting]) -> str:
    """A line a run with every metric: mean, half the width of the 95 % interval, and the values of the seeds.

    Numbers are written so that they are read back to the last bit; what a run lacks is left empty.
    """
    best = list(dict.fromkeys(name for run in runs for name in run.best))
    final = list(dict.fromkeys(name for run in runs for name in run.final))
    baseline = list(dict.fromkeys(name for run in runs for name in run.baseline))
    heading = ["run", "directory", "status", "message", "steps", "best_step"]
    heading += [" = ".join([setting.key, *setting.also]) for setting in settings]
    for when, names in (("best", best), ("final", final)):
        heading += [f"{when} {name}{part}" for name in names for part in ("", " half_width", " values")]
    heading += [f"baseline {name}" for name in baseline]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*heading, *COSTS])
    for k, run in enumerate(runs):
        row = [run.name, run.path, run.status, run.message, run.summary.get("steps"), run.summary.get("best_step")]
        row += [None if setting.values[k] == ABSENT else setting.values[k] for setting in settings]
        row += _spread(run.best, best) + _spread(run.final, final)
        row += [run.baseline.get(name) for name in baseline]
        writer.writerow([*row, *(run.summary.get(name) for name in COSTS)])
    return file.getvalue()


def _spread(measures: Measures, names: Sequence[str]) -> list[float | str | None]:
    cells: list[float | str | None] = []
    for name in names:
        told = measures.get(name)
        cells += [None] * 3 if told is None else [told.mean, told.half_width, " ".join(map(repr, told.values))]
    return cells


def _sortable(text: str) -> float | str | None:
    number = to_number(text)
    return None if text in (ABSENT, "null") else text if number is None else number


def _measured(run: Run, told: Interval | None) -> Cell:
    if told is None:
        return Cell(ABSENT, None)
    pairs = zip(run.seeds, told.values, strict=False)
    return Cell(told.format(), told.mean, "; ".join(f"seed {seed}: {value!r}" for seed, value in pairs))


def _baseline(run: Run, metric: str) -> Cell:
    if metric not in run.baseline:
        return Cell(ABSENT, None)
    owner = run.summary["written" if metric.startswith("written/") else "baseline"]
    owner = owner["baseline"] if metric.startswith("written/") else owner
    value = run.baseline[metric]
    return Cell(interval([value]).format(), value, f"{owner.get('name')}: {value!r}")


def _count(run: Run, key: str) -> Cell:
    value = run.summary.get(key)
    return Cell(ABSENT, None) if not isinstance(value, int | float) else Cell(f"{value:,.0f}", value, repr(value))


def _time(run: Run, key: str) -> Cell:
    value = run.summary.get(key)
    if not isinstance(value, int | float):
        return Cell(ABSENT, None)
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    text = (
        f"{hours}:{minutes:02}:{seconds:02} h"
        if hours
        else f"{minutes}:{seconds:02} min"
        if minutes
        else f"{value:.1f} s"
    )
    return Cell(text, value, f"{value!r} s")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("_", "\\_")
