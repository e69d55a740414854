"""Attention to the places of a picture, drawn over the picture."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqlab.analysis.attention_figure import roll_out
from seqlab.analysis.findings import caption
from seqlab.analysis.tokens import tell_cut
from seqlab.types import Batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Panels = dict[str, tuple[Sequence[str], np.ndarray]]
"""By name of a layer the titles of its panels, and as many w_S."""
N_BESIDE = 6
N_WORDS = 3 * N_BESIDE


class Grid(NamedTuple):
    """How places cover a picture: `rows` × `columns` of them, row by row, behind `n_before` that are nowhere in it."""

    rows: int
    columns: int
    n_before: int


def find_grid(n_places: int, n_before: int, height: int, width: int) -> Grid | None:
    """The grid that so many places are, all but the first `n_before`; None where they are none of the picture's.

    rows = ⌊height / s⌋, columns = ⌊width / s⌋ for some s: a place is as wide as it is high; one alone is no grid
    """
    n = n_places - n_before
    for rows in range(1, n + 1 if n > 1 else 1):
        columns = n // rows
        least = max(height / (rows + 1), width / (columns + 1))
        if rows * columns == n and least < min(height / rows, width / columns):
            return Grid(rows, columns, n_before)
    return None


def picture_of(batch: Batch, row: int) -> np.ndarray | None:
    """A row's picture as levels 0 … 1 of (H, W) or (H, W, 3); None where the inputs are no pictures to be shown."""
    if batch.inputs.ndim != 4 or batch.inputs.shape[-1] not in (1, 3):
        return None
    picture_HWC = np.asarray(batch.inputs[row], np.float64)
    low, high = (0.0, 255.0) if batch.inputs.dtype == np.uint8 else (picture_HWC.min(), picture_HWC.max())
    return ((picture_HWC - low) / max(high - low, 1e-9)).squeeze(-1 if picture_HWC.shape[-1] == 1 else ())


def draw_over_picture(
    picture: np.ndarray, maps: Mapping[str, np.ndarray], words: Sequence[str], is_self: bool, has_class: bool, of: str
) -> "Figure | None":
    """Draw what is looked at over the picture, by layer; None where the places are none of it.

    Attention to a source: a panel for each word that is written, averaged over heads. Self-attention: a panel for each
    head, of what the class token, the first place, looks at, or where there is none all places in the mean.

    Shapes   picture (H, W) or (H, W, 3), w_HTS by layer, all of the same S places.
    """
    grid = find_grid(next(iter(maps.values())).shape[-1], int(has_class), *picture.shape[:2])
    if grid is None:
        return None
    panels = of_heads(maps, grid) if is_self else {layer: (words, w.mean(0)) for layer, w in maps.items()}
    figure = draw_panels(picture, grid, panels)
    one, several = ("head", "heads") if is_self else ("word that is written", "words that are written")
    n = max(len(titles) for titles, _ in panels.values())
    told = f"the weight of each place, of {tell_cut(N_WORDS, (n, several)) or f'each {one}'}"
    caption(figure, f"{of}; {told}" + (", for the class token" if is_self and has_class else ""))
    return figure


def of_heads(maps: Mapping[str, np.ndarray], grid: Grid) -> Panels:
    """What each head of self-attention looks at, of the class token or in the mean; and rolled out, all layers."""

    def looked(w_HTS: np.ndarray) -> np.ndarray:
        return w_HTS[:, 0] if grid.n_before else w_HTS.mean(1)

    panels: Panels = {
        layer: ([f"head {h + 1}" for h in range(len(w_HTS))], looked(w_HTS)) for layer, w_HTS in maps.items()
    }
    R_TT = roll_out([w_HTS.mean(0) for w_HTS in maps.values()])
    return {**panels, "all layers": (["rolled out"], looked(R_TT[None]))}


def draw_panels(picture: np.ndarray, grid: Grid, panels: Panels) -> "Figure":
    """Draw the picture at the head of each row, and behind it panels, of which the first ones of a layer are shown."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    H, W = picture.shape[:2]
    rows = [
        (layer, words[n : n + N_BESIDE], over_grid(w_NS[n : n + N_BESIDE], grid))
        for layer, (words, w_NS) in panels.items()
        for n in range(0, min(N_WORDS, len(words)), N_BESIDE)
    ]
    n_columns = 1 + max(len(words) for _, words, _ in rows)
    size = 1.55 * W / max(H, W) * n_columns + 1.1, (1.5 * H / max(H, W) + 0.3) * len(rows) + 0.7
    figure = Figure(figsize=(max(4.0, size[0]), size[1]), layout="constrained")
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    # Pale, so that the colours of the weights stand out.
    pale = 0.5 + 0.5 * (picture if picture.ndim == 2 else picture.mean(-1))
    # Weights that are all alike are not to look like great ones.
    n_places = max(w_Nab[0].size for *_, w_Nab in rows)
    greatest = max(min(1, 4 / n_places), *(w_Nab.max() for *_, w_Nab in rows))
    # The square root makes weights of 1/T visible beside those of 1.
    norm = PowerNorm(0.5, 0, greatest)
    # What fills no place is at the right and below.
    side = min(H / grid.rows, W / grid.columns)
    extent = (-0.5, grid.columns * side - 0.5, grid.rows * side - 0.5, -0.5)
    for of_row, (layer, words, w_Nab) in zip(axes, rows, strict=True):
        of_row[0].imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        of_row[0].set_ylabel(layer, fontsize=7)
        for axis, word, w_ab in zip(of_row[1:], words, w_Nab, strict=False):
            axis.imshow(pale, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            alpha = 0.8 * np.sqrt(w_ab / greatest)
            image = axis.imshow(w_ab, "magma_r", norm, alpha=alpha, interpolation="bilinear", extent=extent)
            axis.set_title(word, fontsize=8)
        for axis in of_row:
            axis.set(xticks=[], yticks=[], xlim=(-0.5, W - 0.5), ylim=(H - 0.5, -0.5))
        for axis in of_row[1 + len(words) :]:
            axis.set_axis_off()
    bar = figure.colorbar(image, ax=list(axes.flat), shrink=0.8, aspect=20, pad=0.01)
    bar.set_label("weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def over_grid(w_NS: np.ndarray, grid: Grid) -> np.ndarray:
    """The weights of the places where they lie, w_Nab."""
    return w_NS[:, grid.n_before :].reshape(len(w_NS), grid.rows, grid.columns)
