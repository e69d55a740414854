"""The page of attention."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqlab.analysis.attention_figure import tell_cut_of
from seqlab.analysis.pages.page import tell_shown, write_data_page

N_TOKENS = 128
N_GREATEST = 3
NOTE = (
    "Who looks at whom, by layer and head. The deeper the colour, the greater the weight; blank: not looked at. Point "
    "at a token or at a cell, tap it, or use the arrow keys."
)


def describe_layer(
    name: str, w_HTS: np.ndarray, rows: Sequence[str], columns: Sequence[str], is_self: bool
) -> dict[str, Any]:
    """What the page is told of a layer: each head, and their average where there are several.

    The weights are those of the first `N_TOKENS` steps; what is looked at most is found in whole rows.

    Shapes   w_HTS, of T rows that look, named or not, at S columns.
    """
    H, T, S = w_HTS.shape
    cut = tell_cut_of(w_HTS, N_TOKENS, is_self)
    heads = [str(h + 1) for h in range(H)]
    if H > 1:
        heads, w_HTS = [*heads, "average"], np.concatenate([w_HTS, w_HTS.mean(0, keepdims=True)])
    named = [list(names[:n]) if names else [str(k) for k in range(n)] for names, n in ((rows, T), (columns, S))]
    w_Hts = np.round(w_HTS[:, :N_TOKENS, :N_TOKENS].astype(float), 4)
    return {
        "name": name,
        "self": is_self,
        "heads": heads,
        "rows": named[0],
        "columns": named[1],
        "shown": w_Hts.shape[1:],
        "weights": w_Hts.tolist(),
        "looks": _greatest(w_HTS[:, :N_TOKENS]),
        "looked": _greatest(w_HTS[:, :, :N_TOKENS].swapaxes(1, 2)),
        "cut": tell_shown(cut),
    }


def _greatest(w_HTS: np.ndarray) -> list[list[list[tuple[int, float]]]]:
    """Of each row of each head the places of the greatest weights, and these."""
    places_HTK = np.argsort(-w_HTS, axis=-1, kind="stable")[..., :N_GREATEST]
    w_HTK = np.round(np.take_along_axis(w_HTS, places_HTK, -1).astype(float), 4)
    return [
        [[(s, w) for s, w in zip(*of_row, strict=True) if w > 0] for of_row in zip(*of_head, strict=True)]
        for of_head in zip(places_HTK.tolist(), w_HTK.tolist(), strict=True)
    ]


def write_attention(layers: Sequence[dict[str, Any]], of: str) -> str:
    """Write the layers that `describe_layer` tells of as a page: layer and head are chosen on it."""
    return write_data_page("Attention", f"{NOTE} {of.capitalize()}.", "attention", {"layers": layers})
