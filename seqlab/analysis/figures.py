"""Figures of a run, drawn from what the run wrote down."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqlab.evaluation.interval import interval
from seqlab.training.loggers.jsonl import read_events
from seqlab.types import Event, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# matplotlib is imported where something is drawn: it is a fifth of what a command line has to load.

Curve = tuple[np.ndarray, np.ndarray]
"""Steps of shape (E,) and values of shape (E, R): one row an event, one column a replica."""

# Okabe and Ito's palette, told apart by the colour-blind too; its yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Sets often measure alike: a broken line lets the one below it be seen.
STYLES = ("-", "-", "--", ":")
LOG_ENDINGS = ("loss", "error", "norm", "ratio", "rate")
MARKED_POINTS = 13


def plot_learning_curves(metrics_path: Path, out_dir: Path) -> list[Path]:
    """Draw a run's `metrics.jsonl` as `learning_curves.png` in `out_dir`, and give the paths of what was written.

    Raises   UserError for a file that is missing or holds no event.
    """
    figure = draw_learning_curves(read_curves(metrics_path))
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / "learning_curves.png"
    figure.savefig(path, dpi=150)
    return [path]


def draw_learning_curves(curves: dict[str, dict[str, Curve]]) -> "Figure":
    """Draw a panel a metric: for training and each evaluation set the mean, its 95 % t-interval and each replica.

    Losses, norms and rates get a logarithmic axis where they are positive and span a factor of ten.
    """
    splits = list(dict.fromkeys(split for panel in curves.values() for split in panel))
    colours = {split: COLOURS[k % len(COLOURS)] for k, split in enumerate(splits)}

    n_rows = math.ceil(len(curves) / 4)
    n_columns = math.ceil(len(curves) / n_rows)
    last_step = max(steps_E[-1] for panel in curves.values() for steps_E, _ in panel.values())
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * n_columns, 2.9 * n_rows + 0.7), layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for axis, (metric, panel) in zip(axes, curves.items(), strict=False):
        dress(axis, metric.replace("_", " "))
        axis.set_xlim(0, 1.03 * last_step)
        fit_to_curves(axis, metric, panel.values())
        for split, curve in panel.items():
            draw_replicas(axis, curve, colours[split])
            draw_mean(axis, curve, split, colours[split], STYLES[splits.index(split) % len(STYLES)])
    for axis in axes[len(curves) :]:
        axis.set_axis_off()

    n_replicas = max(values.shape[1] for panel in curves.values() for _, values in panel.values())
    caption = (
        "one replica"
        if n_replicas == 1
        else f"thick: mean of {n_replicas} replicas, band: its 95 % t-interval, thin: each replica"
    )
    handles = {line.get_label(): line for axis in axes for line in axis.lines if line.get_label() in splits}
    figure.legend(
        [handles[split] for split in splits],
        splits,
        title=caption,
        loc="outside upper center",
        ncols=min(6, len(splits)),
        frameon=False,
    )
    return figure


def read_curves(metrics_path: Path) -> dict[str, dict[str, Curve]]:
    """Read curves by metric and split: what evaluation sets measure first, "loss" before all, then by name."""
    require(metrics_path.is_file(), f"{metrics_path} is not there: expected the metrics.jsonl of a run.")
    curves = arrange_curves(read_events(metrics_path))
    require(bool(curves), f"{metrics_path} holds no event yet: nothing to draw.")
    return curves


def arrange_curves(events: Sequence[Event]) -> dict[str, dict[str, Curve]]:
    """The curves of a record by metric and split, in the order of `read_curves`."""
    points: dict[str, dict[str, list[tuple[int, list[float]]]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        for metric, values in event.values.items():
            points[metric][event.split].append((event.step, values))

    def rank(metric: str) -> tuple[bool, bool, str]:
        return set(points[metric]) == {"train"}, metric != "loss", metric

    # That nothing was skipped needs no panel.
    points = {m: panel for m, panel in points.items() if m != "skipped" or any(any(v) for _, v in panel["train"])}
    return {
        metric: {
            split: (np.array([step for step, _ in events]), _as_array(events))
            for split, events in points[metric].items()
        }
        for metric in sorted(points, key=rank)
    }


def _as_array(events: list[tuple[int, list[float]]]) -> np.ndarray:
    # A line is drawn through finite numbers only; infinities would stretch the axis.
    values_ER = np.array([values for _, values in events], np.float64)
    return np.where(np.isfinite(values_ER), values_ER, np.nan)


def draw_replicas(axis: "Axes", curve: Curve, colour: str) -> None:
    """Draw a thin line for each of several replicas."""
    steps_E, values_ER = curve
    if values_ER.shape[1] > 1:
        axis.plot(steps_E, values_ER, color=colour, linewidth=0.6, alpha=0.35, zorder=1)


def means_and_halves(values_ER: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means over the replicas, and half the widths of their 95 % t-intervals, NaN where there is none."""
    intervals = [interval(values_R) for values_R in values_ER]
    halves = [np.nan if each.half_width is None else each.half_width for each in intervals]
    return np.array([each.mean for each in intervals]), np.array(halves)


def draw_mean(axis: "Axes", curve: Curve, label: str, colour: str, style: str) -> None:
    """Draw the mean over the replicas and the band of its 95 % t-interval, within the limits that the axis has."""
    steps_E, values_ER = curve
    mean_E, half_E = means_and_halves(values_ER)
    if values_ER.shape[1] > 1:
        # A logarithmic axis would drop the corners of a band that reaches below zero; it runs out of the panel instead.
        low_E = np.maximum(mean_E - half_E, axis.get_ylim()[0])
        # The outline is for a curve of one event, whose band has no width.
        axis.fill_between(steps_E, low_E, mean_E + half_E, color=colour, alpha=0.2, linewidth=1, zorder=2)
    marker = "o" if len(steps_E) <= MARKED_POINTS else None
    axis.plot(steps_E, mean_E, style, color=colour, linewidth=1.8, marker=marker, markersize=3, label=label, zorder=3)


def dress(axis: "Axes", title: str) -> None:
    """Give an axis over steps its title, ticks and grid."""
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("step")
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)


def fit_to_curves(axis: "Axes", metric: str, curves: Iterable[Curve]) -> None:
    """Fit the axis of a metric to each replica of some curves, and to their bands."""
    told = [values_ER for _, values_ER in curves]
    bands = [mean_E + sign * half_E for mean_E, half_E in map(means_and_halves, told) for sign in (-1, 1)]
    fit_to(axis, metric, np.concatenate([values_ER.ravel() for values_ER in told]), np.concatenate(bands))


def fit_to(axis: "Axes", metric: str, values: np.ndarray, ends: np.ndarray) -> None:
    """Fit the axis of a metric to values, and to the ends of their intervals as far as these are near.

    It is logarithmic for a loss, norm or rate that is positive and spans ten times.
    """
    values = values[~np.isnan(values)]
    if not values.size:
        axis.text(0.5, 0.5, "no finite value", transform=axis.transAxes, ha="center", va="center")
        return
    low, high = values.min(), values.max()
    if low == high:
        margin = 0.05 * abs(high) or 0.5
        axis.set_ylim(low - margin, high + margin)
        axis.set_yticks([low], [f"{low:.3g}"])
        return
    is_log = metric.endswith(LOG_ENDINGS) and low > 0 and high / low >= 10
    if is_log:
        axis.set_yscale("log")
        ends = ends[ends > 0]
    scale, back = (np.log, np.exp) if is_log else (np.positive, np.positive)
    low, high, ends = scale(low), scale(high), scale(ends)
    # The values keep a third of the panel. An end that lies farther beyond them than they span says that next to
    # nothing is known (of two seeds it can lie six spans away): it runs out of the panel.
    near = ends[(ends >= 2 * low - high) & (ends <= 2 * high - low)]
    low, high = min([low, *near]), max([high, *near])
    axis.set_ylim(back(low - 0.05 * (high - low)), back(high + 0.05 * (high - low)))
