"""A report over runs: from directories to a page, Markdown and CSV."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from seqlab.analysis.report import page
from seqlab.analysis.report.comparison import (
    MOST_TOLD,
    Series,
    arrange_series,
    choose_axes,
    draw_comparison,
    order_values,
)
from seqlab.analysis.report.curves import choose_looks, draw_curves
from seqlab.analysis.report.runs import Run, find_runs, name_runs, read_run
from seqlab.analysis.report.settings import ABSENT, Setting, differing_settings, find_setting
from seqlab.analysis.report.table import make_columns, metric_names, tabulate, write_csv, write_markdown
from seqlab.analysis.run_table import DONE
from seqlab.files import write_whole
from seqlab.overrides import nearest
from seqlab.types import require

OPTIONS = ("x", "hue", "metric", "out")


def make_report(
    directories: Sequence[Path], out: Path, *, x: str | None = None, hue: str | None = None, metric: str | None = None
) -> list[Path]:
    """Write `report.html`, `report.md` and `report.csv` over all runs in some directories to the folder `out`.

    `x` and `hue` name the settings to compare by (None: chosen from those that differ), `metric` what to compare as
    "split/metric" (None: all that evaluation sets measure).

    Raises   UserError for a directory that holds no run, and for a setting or a metric that no run has.
    """
    paths = find_runs(directories)
    runs = [read_run(path, name) for path, name in zip(paths, name_runs(paths), strict=True)]
    settings = differing_settings(runs)
    by_x, by_hue = _choose(runs, settings, x, hue)
    metrics = _choose_metrics(runs, metric)
    links = [quote(f"{Path(os.path.relpath(run.path, out.resolve())).as_posix()}/") for run in runs]
    columns = make_columns(runs, settings, list(dict.fromkeys([*metrics, *metric_names(runs)])))
    title = f"Report on {', '.join(dict.fromkeys(directory.resolve().name for directory in directories))}"
    labels = [_label(k, run, settings) for k, run in enumerate(runs)]

    sections = [page.write_runs(runs, columns, links)]
    markdown = [f"# {title}\n\n{write_markdown(columns, links)}"]
    markdown += [f"\n- **{run.name}** {run.status}: {run.message}\n" for run in runs if run.status not in DONE]
    series = arrange_series(runs, settings, by_x, by_hue) if by_x else []
    if by_x and series:
        figures = [draw_comparison(name, by_x, series) for name in metrics]
        headings, rows = _tabulate(by_x, series, metrics)
        note = _describe(by_x, series, metrics)
        sections.append(page.write_comparison(note, series, figures, (headings, rows)))
        markdown.append(f"\n## Against {by_x.key}\n\n{note}\n\n{tabulate(headings, rows)}")
    looks = choose_looks(runs, by_hue)
    curves = draw_curves(runs, looks)
    if curves:
        keys = [(k, labels[k], looks[k]) for k, run in enumerate(runs) if run.events]
        sections.append(page.write_curves(keys, list(curves.values())))
    sections.append(page.write_each(runs, labels, links))

    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": page.write_page(title, sections),
        "report.md": "".join(markdown),
        "report.csv": write_csv(runs, settings),
    }
    for name, text in texts.items():
        write_whole(out / name, text)
    return [out / name for name in texts]


def _choose(
    runs: Sequence[Run], settings: Sequence[Setting], x: str | None, hue: str | None
) -> tuple[Setting | None, Setting | None]:
    by_hue = find_setting(hue, runs, settings) if hue else None
    if x is None:
        return choose_axes(runs, settings, by_hue)
    by_x = find_setting(x, runs, settings)
    require(by_x is not by_hue, f"x={x} and hue={hue} are the same setting, {by_x.key}: leave one out.")
    return by_x, by_hue or choose_axes(runs, [setting for setting in settings if setting is not by_x])[0]


def _choose_metrics(runs: Sequence[Run], metric: str | None) -> list[str]:
    shown = [name for name in metric_names(runs) if any(name in run.best for run in runs)]
    if metric is None:
        return shown
    known = dict.fromkeys(name for run in runs for name in run.best)
    require(bool(known), f"metric={metric}: none of these runs has measured anything yet.")
    require(metric in known, f"metric={metric}: no run has measured it; {nearest(metric, known)}")
    return [metric]


def _label(k: int, run: Run, settings: Sequence[Setting]) -> str:
    told = [f"{setting.label} {setting.values[k]}" for setting in settings if setting.values[k] != ABSENT]
    return f"{run.name}: {', '.join(told)}" if told and len(settings) <= MOST_TOLD else run.name


def _describe(x: Setting, series: Sequence[Series], metrics: Sequence[str]) -> str:
    there = [(each, value) for each in series for value in each.runs_at]
    points = [point for each, value in there for metric in metrics if (point := each.measured(value, metric))]
    fewest, most = (choose((len(point.values) for point in points), default=0) for choose in (min, max))
    n_seeds = f"{fewest} to {most} seeds" if fewest < most else "one seed" if most == 1 else f"{most} seeds"
    has_baseline = any(m in run.baseline for each, value in there for run in each.runs_at[value] for m in metrics)
    early = [run.name for each, value in there for run in each.runs_at[value] if run.status not in DONE]
    told = [
        f"At each run's best step, against {x.key}; {n_seeds} a point",
        *(["bars: 95 % t-interval, dots: each seed"] if most > 1 else []),
        *([f"{'dotted' if x.is_numeric else 'short strokes'}: the baseline"] if has_baseline else []),
        *([f"not completed: {', '.join(early)}"] if early else []),
    ]
    return f"{'; '.join(told)}."


def _tabulate(x: Setting, series: Sequence[Series], metrics: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    headings = [x.label, "runs", "seeds", *metrics]
    rows = []
    for value in order_values(x, series):
        for each in series:
            if value in each.runs_at:
                told = [each.measured(value, metric) for metric in metrics]
                n_seeds = max((len(point.values) for point in told if point), default=0)
                rows.append([value, each.label, str(n_seeds), *(point.format() if point else ABSENT for point in told)])
    return headings, rows
