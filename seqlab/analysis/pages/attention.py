"""The page of attention."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqlab.analysis.pages.page import write_data_page

N_TOKENS = 128
NOTE = (
    "Who looks at whom, by layer and head. The deeper the colour, the greater the weight; blank: not looked at. Point "
    "at a token or at a cell, tap it, or use the arrow keys."
)


def describe_layer(
    name: str, w_HTS: np.ndarray, rows: Sequence[str], columns: Sequence[str], is_self: bool
) -> dict[str, Any]:
    """What the page is told of a layer: each head, and their average where there are several.

    Shapes   w_HTS, of T rows that look, named or not, at S columns.
    """
    _, T, S = w_HTS.shape
    cut = _say_cut(T, S, is_self)
    w_HTS = w_HTS[:, :N_TOKENS, :N_TOKENS]
    H, T, S = w_HTS.shape
    heads = [str(h + 1) for h in range(H)]
    if H > 1:
        heads, w_HTS = [*heads, "average"], np.concatenate([w_HTS, w_HTS.mean(0, keepdims=True)])
    named = [list(names[:n]) if names else [str(k) for k in range(n)] for names, n in ((rows, T), (columns, S))]
    told = {"name": name, "self": is_self, "heads": heads, "rows": named[0], "columns": named[1], "cut": cut}
    return told | {"weights": np.round(w_HTS.astype(float), 4).tolist()}


def _say_cut(T: int, S: int, is_self: bool) -> str:
    """What of a long row is shown; nothing of a short one."""
    several = ((T, "steps"),) if is_self else ((T, "steps that look"), (S, "steps that are looked at"))
    told = [f"the first {N_TOKENS} of {n} {what}" for n, what in several if n > N_TOKENS]
    return f"Shown: {' and '.join(told)}. What lies beyond is left out." if told else ""


def write_attention(layers: Sequence[dict[str, Any]], of: str) -> str:
    """Write the layers that `describe_layer` tells of as a page: layer and head are chosen on it."""
    return write_data_page("Attention", f"{NOTE} {of.capitalize()}.", "attention", {"layers": layers})
