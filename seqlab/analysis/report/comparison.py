"""What was measured against a setting, over seeds."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqlab.analysis.figures import dress, fit_to
from seqlab.analysis.report.runs import Run
from seqlab.analysis.report.settings import ABSENT, SEEDS, WORDS, Setting
from seqlab.analysis.report.svg import DASHES, TEXT, draw, series_colour
from seqlab.evaluation.interval import Interval, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"), ("X", "✖"))
"""As matplotlib and as a text writes them."""
MOST_TOLD = 4
"""Runs that differ in more settings than this are told apart by their names."""


@dataclasses.dataclass(frozen=True)
class Series:
    """The points of runs that differ in `x` and in their seeds alone, and the colour and dash they are drawn with."""

    label: str
    colour: int
    dash: int
    runs_at: dict[str, list[Run]]

    def measured(self, x: str, metric: str) -> Interval | None:
        """The metric at the best step over all seeds at `x`; a seed that was run twice counts once, the last time."""
        by_seed: dict[int, float] = {}
        for run in self.runs_at[x]:
            if metric in run.best:
                by_seed |= zip(run.seeds, run.best[metric].values, strict=False)
        return interval(list(by_seed.values())) if by_seed else None


def choose_axes(settings: Sequence[Setting]) -> tuple[Setting | None, Setting | None]:
    """What to draw against what, where nobody says: the numbers with the most values, and what is no number by hue."""
    chosen = [setting for setting in settings if setting.key not in (*SEEDS, *WORDS)]
    if not chosen:
        return None, None
    x = max(chosen, key=lambda setting: (setting.is_numeric, setting.n_values))
    others = [setting for setting in chosen if setting is not x and not is_told_by(setting, [x])]
    return x, min(others, key=lambda setting: (setting.is_numeric, -setting.n_values), default=None)


def arrange_series(runs: Sequence[Run], settings: Sequence[Setting], x: Setting, hue: Setting | None) -> list[Series]:
    """Sort the runs into series: by `hue`, and by every other setting in which they differ, so that none is pooled."""
    known = [x, *([hue] if hue else [])]
    rest = [s for s in settings if s not in known and s.key not in (*SEEDS, *WORDS) and not is_told_by(s, known)]
    groups: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    by = [*([hue] if hue else []), *rest]
    for k, run in enumerate(runs):
        if run.best and x.values[k] != ABSENT:
            group = groups.setdefault(tuple(setting.values[k] for setting in by), {})
            group.setdefault(x.values[k], []).append(run)
    colours = list(dict.fromkeys(hue.values if hue else groups))
    seen: list[int] = []
    series = []
    for values, runs_at in groups.items():
        colour = colours.index(values[0] if hue else values)
        told = [f"{setting.label} {value}" for setting, value in zip(by, values, strict=True) if value != ABSENT]
        if len(told) > MOST_TOLD:
            told = [run.name for runs_there in runs_at.values() for run in runs_there]
        series.append(Series(", ".join(told) or "all runs", colour, seen.count(colour), runs_at))
        seen.append(colour)
    return series


def is_told_by(setting: Setting, others: Sequence[Setting]) -> bool:
    """Whether a setting has, where it is there, one value wherever the others have theirs."""
    rows = zip(setting.values, zip(*(other.values for other in others), strict=True), strict=True)
    pairs = {(there, value) for value, there in rows if value != ABSENT}
    return len(pairs) == len({there for there, _ in pairs})


def order_values(x: Setting, series: Sequence[Series]) -> list[str]:
    """The values of `x` that have points, numbers by size."""
    there = {value for each in series for value in each.runs_at}
    if x.is_numeric:
        return sorted(there, key=lambda value: float(value))
    return [value for value in dict.fromkeys(x.values) if value in there]


def draw_comparison(metric: str, x: Setting, series: Sequence[Series]) -> str:
    """An `<svg>` of a metric at the best step against `x`: mean, 95 % t-interval, a dot a seed, and the baseline."""
    values = order_values(x, series)
    places = _place(x, values)
    points = [
        (k, each, {v: each.measured(v, metric) for v in values if v in each.runs_at}) for k, each in enumerate(series)
    ]
    everything = [value for _, _, told in points for each in told.values() if each for value in each.values]
    baselines = {value: _baseline(metric, value, series) for value in values}
    everything += [value for value in baselines.values() if value is not None]

    def paint(axis: "Axes") -> None:
        dress(axis, metric)
        axis.set_xlabel(x.key)
        fit_to(axis, metric, np.where(np.isfinite(everything), everything, np.nan))
        _set_places(axis, x, values, places)
        for k, each, told in points:
            shift = 0.0 if x.is_numeric else 0.6 * ((k + 0.5) / len(points) - 0.5)
            at = {value: places[value] + shift for value, point in told.items() if point is not None}
            means = [told[value].mean for value in at]  # type: ignore[union-attr]
            halves = [told[value].half_width or 0.0 for value in at]  # type: ignore[union-attr]
            colour = series_colour(each.colour)
            line = DASHES[each.dash % len(DASHES)] if x.is_numeric else ""
            marker = MARKERS[k % len(MARKERS)][0]
            axis.errorbar(
                list(at.values()), means, halves, color=colour, linestyle=line, marker=marker, markersize=5, capsize=3
            )
            for value, place in at.items():
                seeds = told[value].values  # type: ignore[union-attr]
                axis.plot([place] * len(seeds), seeds, ".", color=colour, markersize=3, alpha=0.5)
        known = {places[value]: told for value, told in baselines.items() if told is not None}
        axis.plot(list(known), list(known.values()), "_:", color=TEXT, markersize=14)

    return draw(f"{metric} against {x.key}", paint)


def _baseline(metric: str, value: str, series: Sequence[Series]) -> float | None:
    told = {run.baseline.get(metric) for each in series for run in each.runs_at.get(value, [])}
    return told.pop() if len(told) == 1 else None


def _place(x: Setting, values: Sequence[str]) -> dict[str, float]:
    if x.is_numeric:
        return {value: float(value) for value in values}
    return {value: float(k) for k, value in enumerate(values)}


def _set_places(axis: "Axes", x: Setting, values: Sequence[str], places: dict[str, float]) -> None:
    from matplotlib.ticker import NullLocator

    numbers = [places[value] for value in values]
    if x.is_numeric and min(numbers) > 0 and max(numbers) / min(numbers) >= 8:
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
    elif not x.is_numeric:
        axis.set_xlim(-0.6, len(values) - 0.4)
    if not x.is_numeric or len(values) <= 8:
        longest = max(len(value) for value in values)
        turned = longest * len(values) > 42
        axis.set_xticks(numbers, values, rotation=30 if turned else 0, ha="right" if turned else "center")
        if turned:
            axis.set_position((0.15, 0.3, 0.82, 0.6))
