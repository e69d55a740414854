"""The figures of attention: maps of weights, and each head in two numbers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from seqlab.analysis.findings import colour, dress
from seqlab.analysis.tokens import tell_cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Maps = Mapping[str, np.ndarray]
"""w_HTS by layer."""


def roll_out(averaged_NTT: list[np.ndarray]) -> np.ndarray:
    """R_N, the product of ½ (w̄ + I) over the layers, each row divided by its sum."""
    R_TT = np.eye(len(averaged_NTT[0]))
    for w_TT in averaged_NTT:
        mixed_TT = (w_TT + np.eye(len(w_TT))) / 2
        R_TT = mixed_TT / mixed_TT.sum(-1, keepdims=True) @ R_TT
    return R_TT


def tell_cut_of(w_HTS: np.ndarray, n: int, is_self: bool) -> str:
    """What of a map is shown where the first n steps are; nothing of a short one."""
    _, T, S = w_HTS.shape
    return tell_cut(n, *[(T, "steps")] if is_self else [(T, "steps that look"), (S, "steps that are looked at")])


def draw_maps(maps: Maps, rows: list[str], columns: list[str], n_tokens: int, is_source: bool) -> "Figure":
    """Draw each head of each layer: a row of panels for each layer."""
    n_heads = max(len(w) for w in maps.values())
    figure, axes = _grid(len(maps), n_heads, maps, n_tokens)
    for panels, (layer, w_HTS) in zip(axes, maps.items(), strict=True):
        for h, axis in enumerate(panels):
            if h < len(w_HTS):
                image = _draw_map(axis, w_HTS[h], f"{layer}, head {h + 1}", rows, columns, n_tokens)
            else:
                axis.set_axis_off()
    seen, seeing = ("step that is read", "step that is written") if is_source else ("looked at", "looks")
    axes[-1, 0].set_xlabel(seen, fontsize=7)
    axes[-1, 0].set_ylabel(seeing, fontsize=7)
    _draw_bar(figure, image, axes)
    return figure


def draw_rollout(maps: Maps, tokens: list[str], n_tokens: int) -> "Figure":
    """Draw the average over the heads of each layer, and below it the rollout up to that layer."""
    figure, axes = _grid(2, len(maps), maps, n_tokens)
    averaged = [w.mean(0) for w in maps.values()]
    for n, layer in enumerate(maps):
        _draw_map(axes[0, n], averaged[n], f"{layer}, averaged", tokens, tokens, n_tokens)
        image = _draw_map(axes[1, n], roll_out(averaged[: n + 1]), "rolled out", tokens, tokens, n_tokens)
    _draw_bar(figure, image, axes)
    return figure


def draw_heads(heads: dict[str, dict[str, np.ndarray]]) -> "Figure":
    """Draw entropy and distance of each head, a dot a replica: heads of two seeds have nothing but a number in common,
    so nothing is averaged over them."""
    from matplotlib.figure import Figure

    measures = sorted({name for of_layer in heads.values() for name in of_layer}, reverse=True)
    n_lines = sum(named["entropy"].shape[1] + 1 for named in heads.values())
    figure = Figure(figsize=(5.0 * len(measures), 1.4 + 0.22 * n_lines), layout="constrained")
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    units = {"entropy": "entropy (nats)", "distance": "distance (steps)"}
    for axis, measure in zip(axes, measures, strict=True):
        place, ticks = 0, {}
        for n, (layer, named) in enumerate(heads.items()):
            for h, values_R in enumerate(named[measure].T if measure in named else ()):
                axis.plot(
                    values_R,
                    [place] * len(values_R),
                    "o",
                    color=colour(n),
                    markersize=5,
                    alpha=0.6,
                    clip_on=False,
                    zorder=3,
                )
                ticks[place] = f"{layer}, head {h + 1}"
                place += 1
            place += 1
        axis.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
        axis.invert_yaxis()
        dress(axis, f"Mean {measure} of each head", f"{units[measure]}, a dot a seed", "")
        axis.set_xlim(left=0)
    return figure


def _grid(n_rows: int, n_columns: int, maps: Maps, n_tokens: int) -> tuple["Figure", np.ndarray]:
    from matplotlib.figure import Figure

    T, S = (min(n_tokens, max(w.shape[axis] for w in maps.values())) for axis in (1, 2))
    width, height = (min(3.6, max(2.0, 0.12 * n + 0.9)) for n in (S, T))
    figure = Figure(figsize=(width * n_columns + 0.8, height * n_rows + 0.5), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _draw_bar(figure: "Figure", image: Any, axes: np.ndarray) -> None:
    bar = figure.colorbar(image, ax=list(axes.flat), shrink=0.8, aspect=30, pad=0.01)
    bar.set_label("weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def _draw_map(axis: "Axes", w_TS: np.ndarray, title: str, rows: list[str], columns: list[str], n: int) -> Any:
    from matplotlib.colors import PowerNorm

    # The square root makes weights of 1/T visible beside those of 1.
    # White where nothing is looked at.
    w_TS = np.ma.masked_equal(w_TS[:n, :n], 0)
    image = axis.imshow(w_TS, cmap="magma_r", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
    axis.set_title(title, fontsize=8, loc="left")
    for tokens, size, ticks in ((columns, w_TS.shape[1], axis.set_xticks), (rows, w_TS.shape[0], axis.set_yticks)):
        if tokens:
            turn = 90 if ticks == axis.set_xticks and max(map(len, tokens[:size])) > 1 else 0
            ticks(range(size), tokens[:size], fontsize=6, rotation=turn)
    axis.tick_params(length=1.5, pad=1, labelsize=6)
    return image
