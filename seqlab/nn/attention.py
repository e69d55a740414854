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
from seqlab.nn.soft_average import key_products, soft_average, stretches
from seqlab.types import Array, require

Score = Callable[[Array, Array], Array]
Bias = Callable[[Array, Array], Array | None]


class Dropout(NamedTuple):
    """What is dropped from the weights: each with probability `rate`."""

    key: Array
    rate: float


IMPLEMENTATIONS = ("auto", "plain", "blocks", "chunked", "cudnn")
PLAIN_UP_TO = 1024 * 1024  # scores a head and row; beyond, `auto` takes chunks
CHUNK = 256  # queries
BLOCK = 64  # queries at least
MOST_BLOCKS = 4


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

    All implementations are exact. `plain` makes and keeps all weights, and alone gives them out; `blocks` averages
    without them (`soft_average`), and in causal attention of a row to itself takes the queries in up to four stretches,
    each with the keys up to its end; `chunked` takes them in stretches that compute again for the gradient, in memory
    O(stretch · S); `cudnn` is the flash attention of NVIDIA GPUs, for scaled dot products in half precision without
    dropout; `auto` takes cudnn where it can, and otherwise chunked for long sequences, plain for one query, blocks for
    all others. A query that may look at nothing gets zeros. Only `plain` can be differentiated in forward mode.

    Shapes   q_BTHK, k_BSGK, v_BSGK with G key heads, a divisor of H -> y_BTHK, weights_BHTS or None;
             bias: positions (t_BT, s_BS) -> bias_BHTS, where B may be 1.
    Raises   UserError for an unknown implementation, and for cudnn where there is no GPU.
    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1; shared key heads: Ainslie et al. 2023, arXiv:2305.13245;
             chunks: Rabe & Staats 2021, arXiv:2112.05682, which chunks the keys too.
    """
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    scaled = score is scaled_dot or isinstance(score, ScaledDot)
    if implementation == "auto":
        half = q_BTHK.dtype in (jnp.bfloat16, jnp.float16)
        if jax.default_backend() == "gpu" and half and scaled and dropout is None:
            implementation = "cudnn"
        elif q_BTHK.shape[1] * k_BSGK.shape[1] > PLAIN_UP_TO:
            implementation = "chunked"
        else:
            implementation = "blocks" if q_BTHK.shape[1] > 1 else "plain"
    if implementation == "cudnn":
        platform = jax.default_backend()
        require(
            platform == "gpu", f"implementation=cudnn is for NVIDIA's GPUs, but this is a {platform}: leave it at auto"
        )
        return _cudnn(q_BTHK, k_BSGK, v_BSGK, sight, bias), None

    n_queries_a_key = q_BTHK.shape[2] // k_BSGK.shape[2]
    k_BSHK, v_BSHK = (jnp.repeat(z, n_queries_a_key, 2) if n_queries_a_key > 1 else z for z in (k_BSGK, v_BSGK))

    def kept(index: Array | int, shape: tuple[int, ...]) -> Array | None:
        if dropout is None:
            return None
        return dropout_mask(jax.random.fold_in(dropout.key, index), dropout.rate, shape)

    def biased(scores_BHTS: Array, sight: Sight) -> Array:
        bias_BHTS = None if bias is None else bias(sight.t_BT, sight.s_BS)
        return scores_BHTS if bias_BHTS is None else scores_BHTS + bias_BHTS

    def average(q_BHTK: Array, k_BHSK: Array, v_BHSK: Array, sight: Sight, index: Array | int) -> Array:
        if scaled:
            scores_BHTS = key_products(k_BHSK, q_BHTK * (1 / math.sqrt(q_BHTK.shape[-1]))).swapaxes(2, 3)
        else:
            scores_BHTS = _wide(score(q_BHTK.swapaxes(1, 2), k_BHSK.swapaxes(1, 2)))
        scores_BHST = biased(scores_BHTS, sight).swapaxes(2, 3)
        return soft_average(scores_BHST, sight.mask(), kept(index, scores_BHST.shape), v_BHSK)

    if implementation in ("blocks", "chunked"):
        over_queries = _in_blocks if implementation == "blocks" else _in_chunks
        q_BHTK, k_BHSK, v_BHSK = (z.swapaxes(1, 2) for z in (q_BTHK, k_BSHK, v_BSHK))
        return over_queries(average, q_BHTK, k_BHSK, v_BHSK, sight).swapaxes(1, 2), None

    weights_BHTS = masked_softmax(biased(_wide(score(q_BTHK, k_BSHK)), sight), sight.mask().swapaxes(1, 2))
    kept_BHTS = kept(0, weights_BHTS.shape)
    kept_BHTS = weights_BHTS if kept_BHTS is None else weights_BHTS * kept_BHTS
    return jnp.einsum("bhts,bshk->bthk", kept_BHTS.astype(v_BSHK.dtype), v_BSHK), weights_BHTS


def _wide(scores):
    return scores.astype(jnp.promote_types(scores.dtype, jnp.float32))


def _in_blocks(average, q_BHTK, k_BHSK, v_BHSK, sight):
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    n_blocks = min(max(T // BLOCK, 1), MOST_BLOCKS) if sight.causal and sight.in_order else 1
    size = math.ceil(T / n_blocks)
    queries = tuple((first, min(first + size, T)) for first in range(0, T, size))
    reach = S if sight.window is None else sight.window - 1
    keys = tuple((max(0, first - reach), end) for first, end in queries) if n_blocks > 1 else ((0, S),)
    blocks = []
    cut = zip(queries, keys, *map(stretches, (q_BHTK, k_BHSK, v_BHSK), (queries, keys, keys)), strict=True)
    for index, ((first, end), (first_key, end_key), q, k, v) in enumerate(cut):
        t_BT, s_BS = sight.t_BT[:, first:end], sight.s_BS[:, first_key:end_key]
        seen = sight._replace(t_BT=t_BT, s_BS=s_BS, valid_BS=sight.valid_BS[:, first_key:end_key])
        blocks.append(average(q, k, v, seen, index))
    return jnp.concatenate(blocks, 2)


def _in_chunks(average, q_BHTK, k_BHSK, v_BHSK, sight):
    B, H, T, K = q_BHTK.shape
    n_chunks = math.ceil(T / CHUNK)
    size = math.ceil(T / n_chunks)

    def split(a, axis):
        a = jnp.pad(a, [(0, n_chunks * size - T if n == axis else 0) for n in range(a.ndim)])
        return jnp.moveaxis(a.reshape(*a.shape[:axis], n_chunks, size, *a.shape[axis + 1 :]), axis, 0)

    # Of a row that looks at itself through a window, a chunk needs the keys of the window alone.
    near = sight.causal and sight.in_order and sight.window is not None
    width = min(k_BHSK.shape[2], size + sight.window - 1) if near else k_BHSK.shape[2]

    def one(chunk):
        q, t_BT, index = chunk
        # Past the end of the keys this is moved back, so that it stays whole.
        first = jnp.maximum((index + 1) * size - width, 0)
        k, v, s_BS, valid_BS = (
            lax.dynamic_slice_in_dim(z, first, width, axis)
            for z, axis in ((k_BHSK, 2), (v_BHSK, 2), (sight.s_BS, 1), (sight.valid_BS, 1))
        )
        return average(q, k, v, sight._replace(t_BT=t_BT, s_BS=s_BS, valid_BS=valid_BS), index)

    y_NBHTK = lax.map(jax.checkpoint(one), (split(q_BHTK, 2), split(sight.t_BT, 1), jnp.arange(n_chunks)))
    return jnp.moveaxis(y_NBHTK, 0, 2).reshape(B, H, n_chunks * size, K)[:, :, :T]


def _cudnn(q_BTHK, k_BSGK, v_BSGK, sight, bias):
    mask_BTS = sight.mask().swapaxes(1, 2)
    bias_BHTS = None if bias is None else bias(sight.t_BT, sight.s_BS)
    y_BTHK = jax.nn.dot_product_attention(
        q_BTHK, k_BSGK, v_BSGK, bias=bias_BHTS, mask=mask_BTS[:, None], implementation="cudnn"
    )
    return jnp.where(mask_BTS.any(-1)[..., None, None], y_BTHK, 0)
