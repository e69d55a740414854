"""Beam search: the most probable texts that a model which steps can be found to write."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.decoding.prompts import check_count, check_number, pad, round_up
from seqlab.types import Array, Params

MOST_PENALTY = 5  # so that lp stays finite in float32
NEVER = -1  # stands for an eos that is None: no token is it


class Hypotheses(NamedTuple):
    """What was found for each row, W hypotheses, the best first.

    `length_BW` does not count eos, and past it `ids_BWT` is 0. Where a row has fewer hypotheses than W, the score of
    those that it lacks is −∞.
    """

    ids_BWT: Array
    length_BW: Array
    score_BW: Array


def search(
    model: nn.Module,
    params: Params,
    prompts: Sequence[np.ndarray],
    n_tokens: int,
    width: int,
    length_penalty: float = 0.0,
    eos: int | None = None,
) -> Hypotheses:
    """Find texts Y of high score after each prompt X, keeping the `width` best beginnings from step to step.

        s(Y, X) = ln P(Y | X) / lp(Y),    lp(Y) = (5 + |Y|)^α / (5 + 1)^α

    A hypothesis has ended with `eos`, which |Y| counts, or at `n_tokens`. Among the 2 `width` most probable ways to go
    on, those that end and are among the first `width` join the ended ones, of which the `width` best are kept; the
    first `width` of the others run on. A row is searched until none that runs can beat the worst that has ended. With
    width 1 and α = 0, or without eos, this is greedy; with a width of all beginnings it is exact.

    Shapes   prompts: B arrays of ids, or B pictures (bytes or floats, of one shape) -> ids_BWT, length_BW,
             score_BW with T = `n_tokens`.
    Raises   UserError for an empty prompt, n_tokens or width < 1, α < 0, a model that does not step, and for more
             tokens than it has room for.
    Source   Wu et al. 2016, arXiv:1609.08144, eq. 14.
    Differs  No coverage penalty and no pruning by score, and the stop is certain.
    """
    check_count("the width of the beam", width)
    check_number("length_penalty", length_penalty, 0, MOST_PENALTY, f"a number from 0 to {MOST_PENALTY}")
    inputs, lengths_B = pad(model, prompts, n_tokens)
    eos = NEVER if eos is None else eos
    beams = _search(model, width, round_up(n_tokens), params, inputs, lengths_B, n_tokens, length_penalty, eos)
    found = jax.device_get(beams.ended)
    return found._replace(ids_BWT=found.ids_BWT[..., :n_tokens])


class _Beams(NamedTuple):
    """What is carried from step to step; for the model rows and beams are one axis, M = B W."""

    t: Array
    state: Any
    logits_MV: Array
    ids_BWT: Array
    logp_BW: Array
    ended: Hypotheses


@partial(jax.jit, static_argnums=(0, 1, 2))
def _search(model, width, max_tokens, params, inputs, lengths_B, n_tokens, alpha, eos):
    B, W = len(inputs), width

    def lp(length):
        return ((5.0 + length) / (5.0 + 1.0)) ** alpha

    def can_go_on(beams: _Beams) -> Array:
        # What runs can only lose probability, and the penalty divides by most at the greatest length.
        can_beat_B = beams.logp_BW.max(1) / lp(n_tokens) > beams.ended.score_BW.min(1)
        return (beams.t < n_tokens) & can_beat_B.any()

    def go_on(beams: _Beams) -> _Beams:
        logp_MV = jax.nn.log_softmax(beams.logits_MV)
        V = logp_MV.shape[1]
        logp_BWV = beams.logp_BW[..., None] + logp_MV.reshape(B, W, V)
        logp_BC, way_BC = lax.top_k(logp_BWV.reshape(B, W * V), 2 * W)
        parent_BC, id_BC = way_BC // V, way_BC % V
        ends_BC = id_BC == eos
        ids_BCT = _take(beams.ids_BWT, parent_BC).at[:, :, beams.t].set(jnp.where(ends_BC, 0, id_BC))

        score_BC = jnp.where(ends_BC & (jnp.arange(2 * W) < W), logp_BC / lp(beams.t + 1), -jnp.inf)
        ended = _best(beams.ended, Hypotheses(ids_BCT, jnp.full((B, 2 * W), beams.t), score_BC))

        logp_BW, rank_BW = lax.top_k(jnp.where(ends_BC, -jnp.inf, logp_BC), W)
        parent_M = (jnp.arange(B)[:, None] * W + _take(parent_BC, rank_BW)).reshape(B * W)
        state = jax.tree.map(lambda leaf: leaf[parent_M], beams.state)
        id_M = _take(id_BC, rank_BW).reshape(B * W)
        state, logits_MV = model.apply({"params": params}, state, id_M, method="step")
        return _Beams(beams.t + 1, state, logits_MV, _take(ids_BCT, rank_BW), logp_BW, ended)

    state, logits_BV = model.apply({"params": params}, inputs, lengths_B, method="begin")
    nothing_BW = jnp.full((B, W), -jnp.inf)
    no_ids_BWT, no_length_BW = jnp.zeros((B, W, max_tokens), jnp.int32), jnp.zeros((B, W), jnp.int32)
    beams = _Beams(
        jnp.int32(0),
        jax.tree.map(lambda leaf: jnp.repeat(leaf, W, axis=0), state),
        jnp.repeat(logits_BV, W, axis=0),
        no_ids_BWT,
        nothing_BW.at[:, 0].set(0),  # all beams of a row are the same at first, so that one of them counts
        Hypotheses(no_ids_BWT, no_length_BW, nothing_BW),
    )
    beams = lax.while_loop(can_go_on, go_on, beams)
    running = Hypotheses(beams.ids_BWT, jnp.full((B, W), beams.t), beams.logp_BW / lp(beams.t))
    return beams._replace(ended=_best(beams.ended, running))


def _best(some: Hypotheses, others: Hypotheses) -> Hypotheses:
    """Keep as many as there are in the first, which win where scores are equal."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), some, others)
    _, rank_BW = lax.top_k(both.score_BW, some.score_BW.shape[1])
    return jax.tree.map(lambda leaf: _take(leaf, rank_BW), both)


def _take(a: Array, i_BC: Array) -> Array:
    """From each row the entries at its own places."""
    return a[jnp.arange(len(i_BC))[:, None], i_BC]
