"""Spans, as tags of tokens tell them: B-x begins one of type x, I-x goes on with it, O is outside of all."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.types import Array, Sums, UserError

OUTSIDE = "O"
PREFIXES = ("B", "I")


class TagKinds(NamedTuple):
    """For each of V tags whether it is inside of a span, whether it always begins one, and the number of its type."""

    inside_V: np.ndarray
    begins_V: np.ndarray
    type_V: np.ndarray


class Spans(NamedTuple):
    """For each step whether a span begins there, and of that span the last step and the type."""

    begins_BT: Array
    last_BT: Array
    type_BT: Array


def require_tag(name: str, where: str) -> None:
    """Refuse a tag that is neither O nor begins with B or I; `where` begins the sentence."""
    if name != OUTSIDE and name.partition("-")[0] not in PREFIXES:
        kind = name.rpartition("-")[2] or "TYPE"
        raise UserError(f"{where} has the tag {name!r}; expected O, B-{kind} or I-{kind}.")


def tag_kinds(owner: str, names: Sequence[str]) -> TagKinds:
    """What the names of tags say.

    Raises   UserError for a name that is neither O nor begins with B or I.
    """
    for name in names:
        require_tag(name, owner)
    prefixes, types = zip(*((prefix, kind) for prefix, _, kind in (name.partition("-") for name in names)), strict=True)
    inside_V = np.array([name != OUTSIDE for name in names])
    numbers = {kind: i for i, kind in enumerate(dict.fromkeys(types))}
    return TagKinds(inside_V, np.array([p == "B" for p in prefixes]), np.array([numbers[kind] for kind in types]))


def find_spans(tags_BT: Array, told_BT: Array, kinds: TagKinds) -> Spans:
    """The spans of rows of tags; steps that are not told are outside of all.

        begins_t = inside_t and (tag_t is B, or outside_{t−1}, or type_{t−1} ≠ type_t)
        last_t   = the first s ≥ t with outside_{s+1} or begins_{s+1}

    So an I-x behind O or another type begins a span, and IOB1, IOB2 and broken tags are read alike.

    Source   the script conlleval of the CoNLL-2000 shared task, Tjong Kim Sang & Buchholz 2000, arXiv:cs/0009008.
    """
    inside_BT = jnp.asarray(kinds.inside_V)[tags_BT] & told_BT
    type_BT = jnp.asarray(kinds.type_V)[tags_BT]
    goes_on_BT = inside_BT[:, :-1] & (type_BT[:, :-1] == type_BT[:, 1:]) & ~jnp.asarray(kinds.begins_V)[tags_BT[:, 1:]]
    begins_BT = inside_BT & ~jnp.pad(goes_on_BT, [(0, 0), (1, 0)])
    ends_BT = jnp.pad(~inside_BT[:, 1:] | begins_BT[:, 1:], [(0, 0), (0, 1)], constant_values=True)
    T = tags_BT.shape[1]
    last_BT = lax.cummin(jnp.where(ends_BT, jnp.arange(T), T), axis=1, reverse=True)
    return Spans(begins_BT, last_BT, type_BT)


def measure_spans(tags_BT: Array, targets_BT: Array, weights_BT: Array, kinds: TagKinds) -> Sums:
    """Count the spans that are found: those with the first step, the last step and the type of a true one.

    precision = found / said,   recall = found / true,   F1 = 2 found / (said + true)
    """
    said, true = (find_spans(tags, weights_BT > 0, kinds) for tags in (tags_BT, targets_BT))
    same_BT = (said.last_BT == true.last_BT) & (said.type_BT == true.type_BT)
    found, n_said, n_true = (
        jnp.sum(begins_BT, dtype=jnp.float32)
        for begins_BT in (said.begins_BT & true.begins_BT & same_BT, said.begins_BT, true.begins_BT)
    )
    return {
        "span_precision": (found, n_said),
        "span_recall": (found, n_true),
        "span_f1": (2 * found, n_said + n_true),
    }
