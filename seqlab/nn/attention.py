"""Attention as a pure function: each query takes an average of the values, weighted by how well their keys fit."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.nn.checks import check_choice
from seqlab.nn.dropout import dropout_mask
from seqlab.nn.masks import Sight
from seqlab.nn.scores import ScaledDot, scaled_dot
from seqlab.types import Array

Score = Callable[[Array, Array], Array]
Bias = Callable[[Array, Array], Array | None]


class Dropout(NamedTuple):
    """What is dropped from the weights: each with probability `rate`."""

    key: Array
    rate: float


IMPLEMENTATIONS = ("auto", "plain", "blocks", "chunked", "cudnn")
PLAIN_UP_TO = 1024 * 1024  # scores a head and row; beyond, `auto` takes chunks
CHUNK = 256  # queries
BLOCKS_FROM = 128  # queries; below, `auto` finds blocks not worth their while
N_BLOCKS = 4


@jax.custom_jvp
def masked_softmax(scores_BHTS: Array, mask_BTS: Array) -> Array:
    """Weights over the keys that may be looked at, in float32; zeros, and no gradient, where there is none.

    w_ts = mask_ts exp(a_ts) / Σ_s mask_ts exp(a_ts)
    """
    mask_BHTS = mask_BTS[:, None]
    a = jnp.where(mask_BHTS, scores_BHTS.astype(jnp.promote_types(scores_BHTS.dtype, jnp.float32)), -jnp.inf)
    top = jnp.max(a, -1, keepdims=True, initial=-1e30)
    e = jnp.exp(a - top)
    total = e.sum(-1, keepdims=True)
    return e / jnp.where(total == 0, 1, total)


@masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
    # dw_ts = w_ts (da_ts − Σ_s w_ts da_ts), so that the weights are all that the gradient needs to keep.
    w_BHTS, da_BHTS = masked_softmax(*primals), tangents[0]
    da_BHTS = da_BHTS.astype(w_BHTS.dtype)
    return w_BHTS, w_BHTS * (da_BHTS - (w_BHTS * da_BHTS).sum(-1, keepdims=True))


def attend(
    q_BTHK: Array,
    k_BSGK: Array,
    v_BSGK: Array,
    sight: Sight,
    *,
    score: Score = scaled_dot,
    bias: Bias | None = None,
    dropout: Dropout | None = None,
    implementation: str = "auto",
) -> tuple[Array, Array | None]:
    """Soft attention of queries over keys and values.

        a_ts = score(q_t, k_s) + bias_ts,   w_t = softmax over what t may look at,   y_t = Σ_s w_ts v_s

    All implementations are exact. `plain` makes and keeps all weights, and alone gives them out; `blocks` makes only
    those that causal attention of a row to itself can need: four stretches of queries, each with the keys up to its
    end; `chunked` takes the queries in stretches and computes their weights again for the gradient, in memory
    O(stretch · S); `cudnn` is the flash attention of NVIDIA GPUs, for scaled dot products in half precision without
    dropout; `auto` takes cudnn where it can, and otherwise chunked for long sequences and blocks or plain for short
    ones. A query that may look at nothing gets zeros.

    Shapes   q_BTHK, k_BSGK, v_BSGK with G key heads, a divisor of H -> y_BTHK, weights_BHTS or None;
             bias: positions (t_BT, s_BS) -> bias_BHTS, where B may be 1.
    Raises   UserError for an unknown implementation.
    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1; shared key heads: Ainslie et al. 2023, arXiv:2305.13245;
             chunks: Rabe & Staats 2021, arXiv:2112.05682, which chunks the keys too.
    """
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    plain_scores = (score is scaled_dot or isinstance(score, ScaledDot)) and dropout is None
    if implementation == "auto":
        half = q_BTHK.dtype in (jnp.bfloat16, jnp.float16)
        if jax.default_backend() == "gpu" and half and plain_scores:
            implementation = "cudnn"
        elif q_BTHK.shape[1] * k_BSGK.shape[1] > PLAIN_UP_TO:
            implementation = "chunked"
        else:
            implementation = "blocks" if q_BTHK.shape[1] >= BLOCKS_FROM else "plain"
    if implementation == "cudnn":
        return _cudnn(q_BTHK, k_BSGK, v_BSGK, sight, bias), None

    n_queries_a_key = q_BTHK.shape[2] // k_BSGK.shape[2]
    k_BSHK, v_BSHK = (jnp.repeat(z, n_queries_a_key, 2) if n_queries_a_key > 1 else z for z in (k_BSGK, v_BSGK))

    def average(q_BTHK: Array, t_BT: Array, index: Array | int, keys: slice = slice(None)) -> tuple[Array, Array]:
        s_BS, valid_BS, v_BSHK_ = sight.s_BS[:, keys], sight.valid_BS[:, keys], v_BSHK[:, keys]
        scores_BHTS = score(q_BTHK, k_BSHK[:, keys])
        if bias is not None and (bias_BHTS := bias(t_BT, s_BS)) is not None:
            scores_BHTS = scores_BHTS + bias_BHTS
        mask_BTS = sight._replace(t_BT=t_BT, s_BS=s_BS, valid_BS=valid_BS).mask()
        weights_BHTS = kept_BHTS = masked_softmax(scores_BHTS, mask_BTS)
        if dropout is not None:
            key = jax.random.fold_in(dropout.key, index)
            kept_BHTS = weights_BHTS * dropout_mask(key, dropout.rate, weights_BHTS.shape)
        return jnp.einsum("bhts,bshk->bthk", kept_BHTS.astype(v_BSHK_.dtype), v_BSHK_), weights_BHTS

    if implementation == "blocks" and sight.causal and sight.in_order:
        return _in_blocks(average, q_BTHK, sight), None
    if implementation in ("plain", "blocks"):
        return average(q_BTHK, sight.t_BT, 0)
    return _in_chunks(lambda *chunk: average(*chunk)[0], q_BTHK, sight.t_BT), None


def _in_blocks(function, q_BTHK, sight):
    T = q_BTHK.shape[1]
    size = math.ceil(T / N_BLOCKS)
    blocks = []
    for index, first in enumerate(range(0, T, size)):
        end = min(first + size, T)
        keys = slice(0 if sight.window is None else max(0, first - sight.window + 1), end)
        blocks.append(function(q_BTHK[:, first:end], sight.t_BT[:, first:end], index, keys)[0])
    return jnp.concatenate(blocks, 1)


def _in_chunks(function, q_BTHK, t_BT):
    B, T = q_BTHK.shape[:2]
    n_chunks = math.ceil(T / CHUNK)
    size = math.ceil(T / n_chunks)

    def split(a):
        a = jnp.pad(a, [(0, 0), (0, n_chunks * size - T)] + [(0, 0)] * (a.ndim - 2))
        return a.reshape(a.shape[0], n_chunks, size, *a.shape[2:]).swapaxes(0, 1)

    chunks = split(q_BTHK), split(t_BT), jnp.arange(n_chunks)
    y_NBCHK = lax.map(jax.checkpoint(lambda chunk: function(*chunk)), chunks)
    return y_NBCHK.swapaxes(0, 1).reshape(B, n_chunks * size, *y_NBCHK.shape[3:])[:, :T]


def _cudnn(q_BTHK, k_BSGK, v_BSGK, sight, bias):
    mask_BTS = sight.mask()
    bias_BHTS = None if bias is None else bias(sight.t_BT, sight.s_BS)
    y_BTHK = jax.nn.dot_product_attention(
        q_BTHK, k_BSGK, v_BSGK, bias=bias_BHTS, mask=mask_BTS[:, None], implementation="cudnn"
    )
    return jnp.where(mask_BTS.any(-1)[..., None, None], y_BTHK, 0)
