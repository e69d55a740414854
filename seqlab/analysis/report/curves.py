"""Learning curves of all runs, one figure a metric."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqlab.analysis.figures import COLOURS, Curve, arrange_curves, draw_mean, dress, fit_to_curves
from seqlab.analysis.report.runs import Run
from seqlab.analysis.report.settings import Setting
from seqlab.analysis.report.svg import DASHES, draw, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 300
"""More points of a curve than a figure can show are thinned out evenly; the last one stays."""


def draw_curves(runs: Sequence[Run], looks: Sequence[tuple[int, int]]) -> dict[str, str]:
    """For each "split/metric" an `<svg>` with the mean of each run and the band of its 95 % t-interval.

    What evaluation sets measure comes before what is known of training alone. Run k is series k of the page, with
    the colour and the dash that `looks` gives it.
    """
    curves: dict[str, dict[int, Curve]] = {}
    for k, run in enumerate(runs):
        for metric, panel in arrange_curves(run.events).items():
            for split, curve in panel.items():
                curves.setdefault(f"{split}/{metric}", {})[k] = _thin_out(curve)
    # One point is no curve: it stands in the table.
    names = [name for name, of_runs in curves.items() if any(len(steps_E) > 1 for steps_E, _ in of_runs.values())]
    names.sort(key=lambda name: name.startswith("train/"))
    return {name: _draw_metric(name, curves[name], looks) for name in names}


def choose_looks(runs: Sequence[Run], hue: Setting | None) -> list[tuple[int, int]]:
    """A colour and a dash for each run: a colour for each value of `hue`, else for each run."""
    if hue is None:
        return [(k % len(COLOURS), k // len(COLOURS)) for k in range(len(runs))]
    colours = list(dict.fromkeys(hue.values))
    return [(colours.index(value), hue.values[:k].count(value)) for k, value in enumerate(hue.values)]


def _draw_metric(name: str, curves: dict[int, Curve], looks: Sequence[tuple[int, int]]) -> str:
    def paint(axis: "Axes") -> None:
        dress(axis, name)
        fit_to_curves(axis, name, curves.values())
        axis.set_xlim(0, 1.03 * max(max(steps_E[-1] for steps_E, _ in curves.values()), 1))
        for k, curve in curves.items():
            there = set(axis.get_children())
            colour, dash = looks[k]
            draw_mean(axis, curve, "", series_colour(colour), DASHES[dash % len(DASHES)])
            for artist in set(axis.get_children()) - there:
                artist.set_gid(f"series-{k}")

    return draw(f"{name} over the steps, a line a run", paint)


def _thin_out(curve: Curve) -> Curve:
    steps_E, values_ER = curve
    if len(steps_E) <= MOST_POINTS:
        return curve
    kept = np.linspace(0, len(steps_E) - 1, MOST_POINTS).round().astype(int)
    return steps_E[kept], values_ER[kept]
