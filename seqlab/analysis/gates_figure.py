"""The figures of gates and states: their values along a row, and how often they are stuck."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqlab.analysis.findings import caption, colour, dress
from seqlab.analysis.probe import is_backward, is_decoding
from seqlab.analysis.tokens import tell_cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Named = Mapping[str, np.ndarray]


def choose_units(named: Named, gates: Sequence[str], n_units: int) -> tuple[str, np.ndarray]:
    """What units are sorted by, the first gate's mean or else that of h, and those that are shown, from the greatest.

    Of more than `n_units` those are shown that are evenly spaced in that order.
    """
    by = gates[0] if gates else "h"
    order_F = np.argsort(-named[by].mean(0), kind="stable")
    shown = np.unique(np.linspace(0, len(order_F) - 1, min(n_units, len(order_F))).round().astype(int))
    return by, order_F[shown]


def tell_units(by: str, n_units: int, n_all: int) -> str:
    """Which units `choose_units` shows, of how many."""
    few = f"{n_units} of its {n_all} units, evenly spaced" if n_units < n_all else f"its {n_all} units"
    return f"{few} in the order of the mean of {by}, the greatest at the top"


def tell_reading(layer: str) -> str:
    """What happens at a step of a layer."""
    if is_decoding(layer):
        return "target that is said at the step"
    return "input that is read at the step" + (", from the right to the left" if is_backward(layer) else "")


def reach(values: np.ndarray) -> float:
    """What has the deepest colour in a map of these: 1, but of states without a bound, as C, what 5 % are beyond."""
    return max(1.0, float(np.quantile(np.abs(values), 0.95)))


def draw_values(
    layer: str, named: Named, gates: Sequence[str], tokens: list[str], n_tokens: int, n_units: int, of: str
) -> "Figure":
    """Draw each gate and state of a layer as a map of units and steps, one below the other."""
    from matplotlib.figure import Figure

    by, units = choose_units(named, gates, n_units)
    T, n_all = min(n_tokens, len(tokens)), next(iter(named.values())).shape[1]
    height = min(1.8, max(0.9, 0.045 * len(units) + 0.4))
    figure = Figure(figsize=(min(13.0, max(6.5, 0.16 * T + 1.6)), height * len(named) + 1.0), layout="constrained")
    axes = figure.subplots(len(named), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, a_TF) in zip(axes, named.items(), strict=True):
        is_gate = name in gates
        limit = reach(a_TF[:T])
        shown = a_TF[:T, units].T
        image = axis.imshow(
            shown,
            cmap="viridis" if is_gate else "RdBu_r",
            vmin=0 if is_gate else -limit,
            vmax=limit,
            interpolation="nearest",
            aspect="auto",
        )
        axis.set_yticks([])
        axis.set_ylabel(f"${_tex(name)}_t$", rotation=0, ha="right", va="center", fontsize=11)
        bar = figure.colorbar(
            image, ax=axis, aspect=10, pad=0.01, extend="both" if np.abs(shown).max() > limit else "neither"
        )
        bar.ax.tick_params(labelsize=7)
    turn = 90 if max(map(len, tokens[:T])) > 1 else 0
    axes[-1].set_xticks(range(T), tokens[:T], fontsize=7, rotation=turn)
    axes[-1].tick_params(length=1.5, pad=1)
    axes[-1].set_xlabel(tell_reading(layer), fontsize=8)
    axes[0].set_title(f"{layer}: gates and states" if gates else f"{layer}: states", loc="left", fontsize=10)
    told = (of, f"{tell_units(by, len(units), n_all)}, in all maps", tell_cut(n_tokens, (len(tokens), "steps")))
    caption(figure, "; ".join(filter(None, told)))
    return figure


def draw_saturation(saturation: dict[str, Any], gates: dict[str, tuple[str, ...]]) -> "Figure":
    """Draw how often each unit's gates are closed and open, a dot a unit, and how often its other values are near ±1.

    Each layer has a row of panels: the units of two layers often lie in the same places.

    Source   Karpathy et al. 2015, arXiv:1506.02078, fig. 2.
    """
    from matplotlib.figure import Figure

    panels = {layer: [name for name in named if name != "C"] for layer, named in saturation.items()}
    n_columns = max(map(len, panels.values()))
    figure = Figure(figsize=(max(4.5, 2.7 * n_columns), 3.0 * len(panels) + 0.6), layout="constrained")
    axes = figure.subplots(len(panels), n_columns, squeeze=False)
    for n, (of_layer, (layer, named)) in enumerate(zip(axes, saturation.items(), strict=True)):
        for axis, name in zip(of_layer, panels[layer], strict=False):
            if name in gates[layer]:
                _dots(axis, name, named[name], colour(n))
            else:
                _shares(axis, name, named[name]["beyond"], colour(n))
        for axis in of_layer[len(panels[layer]) :]:
            axis.set_axis_off()
        of_layer[0].set_title(f"{layer}\n{of_layer[0].get_title('left')}", loc="left", fontsize=10)
    n_replicas = len(next(iter(next(iter(saturation.values())).values()))["mean"])
    seeds = f"{n_replicas} seeds" if n_replicas > 1 else "one seed"
    caption(figure, f"{'a dot is a unit, ' if any(gates.values()) else ''}a line all units of a seed; {seeds}")
    return figure


def _dots(axis: "Axes", name: str, named: Named, colour: str) -> None:
    axis.scatter(named["right"].ravel(), named["left"].ravel(), s=22, color=colour, alpha=0.35, linewidths=0)
    axis.plot([0, 1], [1, 0], color="0.6", linewidth=0.8)
    _frame(axis, f"${_tex(name)}$", "right: share of steps above 0.9", "left: share of steps below 0.1")


def _shares(axis: "Axes", name: str, share_RF: np.ndarray, colour: str) -> None:
    for share_F in share_RF:
        place_F = (np.arange(len(share_F)) + 0.5) / len(share_F)
        axis.plot(place_F, np.sort(share_F)[::-1], color=colour, linewidth=1.2)
    _frame(axis, f"$|{_tex(name)}|$ above 0.9", "units, sorted (share)", "share of steps")


def _frame(axis: "Axes", title: str, x: str, y: str) -> None:
    dress(axis, title, x, y)
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), box_aspect=1)
    axis.tick_params(labelsize=8)
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set_fontsize(8)


def _tex(name: str) -> str:
    """A name as TeX: a letter with a tilde is two characters."""
    return rf"\tilde{{{name[0]}}}" if name[1:] == "\u0303" else name
