"""The figure of gradients through time: what reaches each step, and the singular values of each recurrent layer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from seqlab.analysis.findings import caption, colour, draw_band, dress, tell_seeds
from seqlab.analysis.probe import is_backward, is_decoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Norms = dict[str, dict[str, np.ndarray]]
Jacobians = dict[str, dict[str, dict[str, np.ndarray]]]


def draw(norms: Norms, jacobians: Jacobians, counts: tuple[int, int], places: str | None) -> "Figure":
    """Draw the gradients by layer, of a decoder in a panel of its own, then the singular values of each recurrent
    layer, over the seeds; `counts` are the rows of both, `places` what the steps of the source are, if not steps."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    sides = {
        side: {layer: named for layer, named in norms.items() if is_decoding(layer) == (side == "targets")}
        for side in ("source", "targets")
    }
    sides = {side: named for side, named in sides.items() if named}
    n_panels = len(sides) + len(jacobians)
    n_columns = 2 if n_panels == 4 else min(3, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = Figure(figsize=(5.2 * n_columns, 4.3 * n_rows), layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    steps = {side: f"$t - T$, steps of the {side}" if len(sides) > 1 else "$t - T$" for side in sides}
    if places:
        steps["source"] = f"$t - T$, {places}"
    for axis, (side, named) in zip(axes, sides.items(), strict=False):
        _draw_norms(axis, named)
        title = "Gradient of the last loss" + (f" along the {side}" if len(sides) > 1 else "")
        dress(axis, title, steps[side], r"$\|\partial L_T / \partial\,\cdot\,\|$, mean over rows")
    if len(sides) > 1:
        # One loss, and so one scale.
        axes[1].sharey(axes[0])
    for axis, (layer, of_layer) in zip(axes[len(sides) :], jacobians.items(), strict=False):
        _draw_jacobians(axis, of_layer)
        of_side = steps["targets" if is_decoding(layer) else "source"]
        told = f"{of_side}, read from the end" if is_backward(layer) else of_side
        dress(axis, f"Jacobians of {layer}", told, "singular values, mean over rows")
    for axis in axes[:n_panels]:
        axis.set_yscale("log")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    for axis in axes[n_panels:]:
        axis.set_axis_off()
    n, n_few = counts
    rows = f"{n} rows" + (f", of the Jacobians {n_few}" if jacobians else "")
    notes = [rows, tell_seeds(len(norms["inputs"]["x"])), "what is exactly 0 is not drawn"]
    if len(sides) > 1:
        notes.append("$L_T$: the loss of a row's last target; $T$: the last step, of the source or of the targets")
    if "targets" in norms:
        notes.append("targets $x_t$: the vector of the target before $t$, which the decoder is told")
    if any(_is_lonely(norm_RT) for layer, named in norms.items() if is_backward(layer) for norm_RT in named.values()):
        notes.append("a dot: the loss at $T$ reaches the state at $T$ alone of this layer, which reads from the end")
    if any(map(is_backward, norms)):
        notes.append("backward: the state at $T$ has read that step alone; of the Jacobians $T$ is the last step read")
    caption(figure, "; ".join(notes))
    return figure


def _is_lonely(norm_RT: np.ndarray) -> bool:
    return bool(norm_RT[:, -1].any() and not norm_RT[:, :-1].any())


def _draw_norms(axis: "Axes", norms: Norms) -> None:
    for n, (layer, named) in enumerate(norms.items()):
        for name, norm_RT in named.items():
            style = "--" if name == "C" else "-"
            draw_band(axis, np.arange(1 - norm_RT.shape[1], 1), norm_RT, f"{layer} ${name}_t$", colour(n), style)


def _draw_jacobians(axis: "Axes", named: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    n = 0
    for name, values in named.items():
        ratio = rf"\partial {name}_T/\partial {name}_t"
        lines = [("largest", f"largest σ of ${ratio}$", n, "-"), ("mean", f"mean σ of ${ratio}$", n, "--")]
        if "mean_alone" in values:
            n += 1
            told = rf"mean σ along ${name}$ alone (an LSTM's forget gates)"
            lines.append(("mean_alone", told, n, ":"))
        for what, told, of_line, style in lines:
            draw_band(axis, -values["lag"], values[what], told, colour(of_line), style)
        n += 1
