"""What was measured against a setting, over seeds."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqlab.analysis.figures import COLOURS, dress, fit_to
from seqlab.analysis.report.runs import Run
from seqlab.analysis.report.settings import ABSENT, SEEDS, WORDS, Setting
from seqlab.analysis.report.svg import DASHES, TEXT, draw, series_colour
from seqlab.evaluation.interval import Interval, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = (
    *(("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"), ("X", "✖")),
    *(("<", "◀"), (">", "▶"), ("*", "★"), ("p", "⬟")),
)
"""As matplotlib and as a text writes them."""
MOST_TOLD = 4
"""Runs that differ in more settings than this are told apart by their names."""


@dataclasses.dataclass(frozen=True)
class Series:
    """The points of runs that differ in `x` and in their seeds alone, and what they are drawn with."""

    label: str
    colour: int
    dash: int
    marker: int
    runs_at: dict[str, list[Run]]

    def measured(self, x: str, metric: str) -> Interval | None:
        """The metric at the best step over all seeds at `x`; a seed that was run twice counts once, the last time."""
        by_seed: dict[int, float] = {}
        for run in self.runs_at[x]:
            if metric in run.best:
                by_seed |= zip(run.seeds, run.best[metric].values, strict=False)
        return interval(list(by_seed.values())) if by_seed else None

    def baselines(self, metric: str) -> dict[str, float]:
        """The baseline of the metric at each value of x at which the runs agree on one."""
        told = {value: [*{run.baseline.get(metric, math.nan) for run in runs}] for value, runs in self.runs_at.items()}
        return {value: there[0] for value, there in told.items() if len(there) == 1 and math.isfinite(there[0])}


def choose_axes(
    runs: Sequence[Run], settings: Sequence[Setting], hue: Setting | None = None
) -> tuple[Setting | None, Setting | None]:
    """What to draw against what, where nobody says: of the settings that all runs have, or else of all, the numbers
    with the most values, and what is no number by hue."""
    free = [setting for setting in settings if setting.key not in (*SEEDS, *WORDS) and setting is not hue]
    there = [k for k, run in enumerate(runs) if run.best]
    everywhere = [setting for setting in free if all(setting.values[k] != ABSENT for k in there)]
    chosen = everywhere or free
    if not chosen:
        return None, hue
    x = max(chosen, key=lambda setting: (setting.is_numeric, setting.n_values))
    others = [setting for setting in chosen if setting is not x and not is_told_by(setting, [x], runs)]
    return x, hue or min(others, key=lambda setting: (setting.is_numeric, -setting.n_values), default=None)


def arrange_series(runs: Sequence[Run], settings: Sequence[Setting], x: Setting, hue: Setting | None) -> list[Series]:
    """Sort the runs into series: by `hue`, and by every other setting in which they differ, so that none is pooled."""
    known = [x, *([hue] if hue else [])]
    rest = [s for s in settings if s not in known and s.key not in (*SEEDS, *WORDS) and not is_told_by(s, known, runs)]
    groups: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    by = [*([hue] if hue else []), *rest]
    for k, run in enumerate(runs):
        if run.best and x.values[k] != ABSENT:
            group = groups.setdefault(tuple(setting.values[k] for setting in by), {})
            group.setdefault(x.values[k], []).append(run)
    colours = list(dict.fromkeys(hue.values if hue else groups))
    seen: list[int] = []
    series: list[Series] = []
    for values, runs_at in groups.items():
        colour = colours.index(values[0] if hue else values) % len(COLOURS)
        # No two look alike, in the figure without lines and in the legend, while there are looks left.
        markers = [(len(series) + k) % len(MARKERS) for k in range(len(MARKERS))]
        taken = [each.marker for each in series if each.colour == colour]
        marker = next((marker for marker in markers if marker not in taken), markers[0])
        told = [f"{setting.label} {value}" for setting, value in zip(by, values, strict=True) if value != ABSENT]
        if len(by) > MOST_TOLD:
            told = [run.name for runs_there in runs_at.values() for run in runs_there]
        series.append(Series(", ".join(told) or "all runs", colour, seen.count(colour), marker, runs_at))
        seen.append(colour)
    return series


def is_told_by(setting: Setting, others: Sequence[Setting], runs: Sequence[Run]) -> bool:
    """Whether a setting has, in the runs that have measured something, one value wherever the others have theirs."""
    rows = zip(runs, setting.values, zip(*(other.values for other in others), strict=True), strict=True)
    pairs = {(there, value) for run, value, there in rows if run.best}
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
    places = {value: float(value) if x.is_numeric else float(k) for k, value in enumerate(values)}
    baselines = [each.baselines(metric) for each in series]
    points = [
        {value: point for value in values if value in each.runs_at and (point := each.measured(value, metric))}
        for each in series
    ]
    everything = [value for told in points for point in told.values() for value in point.values]
    everything += [value for told in baselines for value in told.values()]
    ends = [
        point.mean + sign * point.half_width
        for told in points
        for point in told.values()
        for sign in (-1, 1)
        if point.half_width is not None
    ]
    # Points at the same place stand side by side: so many of the figure's points apart.
    apart = min(4.0, 20 / len(series)) if x.is_numeric else min(24.0, 160 / len(values) / len(series))

    def paint(axis: "Axes") -> None:
        from matplotlib.transforms import offset_copy

        dress(axis, metric)
        axis.set_xlabel(x.key)
        fit_to(axis, metric, np.where(np.isfinite(everything), everything, np.nan), np.array(ends))
        _set_places(axis, x, list(places), list(places.values()))
        for k, (each, told) in enumerate(zip(series, points, strict=True)):
            colour, marker = series_colour(each.colour), MARKERS[each.marker][0]
            line = DASHES[each.dash % len(DASHES)] if x.is_numeric else ""
            aside = (k - (len(series) - 1) / 2) * apart
            moved = offset_copy(axis.transData, axis.get_figure(root=True), aside, units="points")
            look: dict[str, Any] = {"color": colour, "transform": moved}
            at = [places[value] for value in told]
            halves = [np.nan if point.half_width is None else point.half_width for point in told.values()]
            means = [point.mean for point in told.values()]
            axis.errorbar(at, means, halves, linestyle=line, marker=marker, markersize=5, capsize=3, **look)
            for place, point in zip(at, told.values(), strict=True):
                axis.plot([place] * len(point.values), point.values, ".", markersize=3, alpha=0.5, **look)
        _draw_baselines(axis, places, series, baselines, "_:" if x.is_numeric else "_")

    return draw(f"{metric} against {x.key}", paint)


def _draw_baselines(
    axis: "Axes",
    places: dict[str, float],
    series: Sequence[Series],
    baselines: Sequence[dict[str, float]],
    line: str,
) -> None:
    """Draw each baseline once, in the colour of its series where those of others are not the same."""
    agreed = all(len({told[value] for told in baselines if value in told}) <= 1 for value in places)
    drawn: list[dict[str, float]] = []
    for each, told in zip(series, baselines, strict=True):
        if told not in drawn:
            at = [value for value in places if value in told]
            colour = TEXT if agreed else series_colour(each.colour)
            axis.plot([places[x] for x in at], [told[x] for x in at], line, color=colour, markersize=14)
            drawn.append(told)


def _set_places(axis: "Axes", x: Setting, values: Sequence[str], places: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    low, high = min(places), max(places)
    if not x.is_numeric:
        axis.set_xlim(-0.6, len(values) - 0.4)
    elif low > 0 and high / low >= 8:
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlim(low / (high / low) ** 0.08, high * (high / low) ** 0.08)
    else:
        margin = 0.08 * (high - low) or 0.5
        axis.set_xlim(low - margin, high + margin)
    if not x.is_numeric or len(values) <= 8:
        turned = max(map(len, values)) * len(values) > 42
        plain = [value.replace("$", r"\$") for value in values]  # Not a formula.
        axis.set_xticks(places, plain, rotation=30 if turned else 0, ha="right" if turned else "center")
        if turned:
            axis.set_position((0.15, 0.3, 0.82, 0.6))
