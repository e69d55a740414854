"""Text from a model that steps: prompts are read at once, then tokens are drawn one by one."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from seqlab.decoding.prompts import pad
from seqlab.decoding.sampling import Sampling, choose, penalise
from seqlab.nn.rows import AXIS, row_keys
from seqlab.types import Array, Params

STRETCH = 16  # tokens a dispatch


def generate(
    model: nn.Module,
    params: Params,
    prompts: Sequence[np.ndarray],
    n_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    eos: int | None = None,
    prompts_are_seen: bool = True,
) -> Iterator[list[np.ndarray]]:
    """Draw at most `n_tokens` tokens after each prompt; yields them in stretches, as they come.

    A row ends before its first `eos`, and drawing once all rows have ended. Prompts may differ in length: a row's
    tokens depend on its prompt, its place in the batch and the seed, not on the others'. Each device writes rows of
    its own, where their number divides. `prompts_are_seen`: the
    repetition penalty counts the prompt's tokens too, which are none of the text's where it is a source.

    Shapes   prompts: B arrays of ids, or B pictures (bytes or floats, of one shape) -> B arrays of ids, the next of
             each row, which add up to `n_tokens` or less.
    Raises   UserError for an empty prompt, no tokens to draw, a bad `sampling`, a model that does not step, and for
             more tokens than the model has room for.
    """
    sampling.check()
    inputs, lengths_B = pad(model, prompts, n_tokens)
    counted_BT = None
    if prompts_are_seen and lengths_B is not None:
        counted_BT = np.arange(inputs.shape[1]) < lengths_B[:, None]
    yield from draw_from(model, params, inputs, lengths_B, n_tokens, sampling, seed, eos, counted_BT)


def draw_from(
    model: nn.Module,
    params: Params,
    inputs: Any,
    lengths_B: Any,
    n_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    eos: int | None = None,
    counted_BT: np.ndarray | None = None,
) -> Iterator[list[np.ndarray]]:
    """Draw as `generate` does, from inputs that stand side by side already, whatever they are.

    `counted_BT`: which of them, that are ids then, the repetition penalty counts; None for none.
    """
    keys_B = row_keys(jax.random.key(seed), len(inputs))
    devices = jax.local_devices()[: math.gcd(len(inputs), jax.local_device_count())]
    mesh = Mesh(np.array(devices), (AXIS,))
    params = jax.device_put(params, NamedSharding(mesh, P()))
    state, logits_BV = _begin(model, mesh, params, inputs, lengths_B)
    seen_BV = None
    if sampling.repetition_penalty != 1:
        seen_BV = jnp.zeros(logits_BV.shape, bool)
        if counted_BT is not None:
            seen_BV = _see(seen_BV, jnp.where(counted_BT, inputs, logits_BV.shape[1]))

    carry = state, logits_BV, seen_BV
    ended_B1 = np.zeros((len(inputs), 1), bool)
    for first in range(0, n_tokens, STRETCH):
        carry, ids_BC = _draw(model, mesh, sampling, params, carry, keys_B, first)
        ids_BC = np.asarray(ids_BC)[:, : n_tokens - first]
        # A row draws on behind its end, and is cut here alone: the program need not know of ends.
        ended_BC = ended_B1 | np.logical_or.accumulate(ids_BC == eos, axis=1)
        yield [ids_C[~ended_C] for ids_C, ended_C in zip(ids_BC, ended_BC, strict=True)]
        ended_B1 = ended_BC[:, -1:]
        if ended_B1.all():
            return


@partial(jax.jit, static_argnums=(0, 1))
def _begin(model, mesh, params, inputs, lengths_B):
    def begin(params, inputs, lengths_B):
        return model.apply({"params": params}, inputs, lengths_B, method="begin")

    specs = P(), P(AXIS), P(AXIS)
    return jax.shard_map(begin, mesh=mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)(
        params, inputs, lengths_B
    )


def _see(seen_BV: Array, ids_BT: Array) -> Array:
    return seen_BV.at[jnp.arange(len(seen_BV))[:, None], ids_BT].set(True, mode="drop")


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _draw(model, mesh, sampling, params, carry, keys_B, first):
    def draw(params, keys_B, carry, t):
        state, logits_BV, seen_BV = carry
        if seen_BV is not None:
            logits_BV = penalise(logits_BV, seen_BV, sampling.repetition_penalty)
        ids_B = choose(jax.vmap(partial(jax.random.fold_in, data=t))(keys_B), logits_BV, sampling)
        if seen_BV is not None:
            seen_BV = _see(seen_BV, ids_B[:, None])
        state, logits_BV = model.apply({"params": params}, state, ids_B, method="step")
        return (state, logits_BV, seen_BV), ids_B

    def stretch(params, carry, keys_B, first):
        carry, ids_CB = lax.scan(partial(draw, params, keys_B), carry, first + jnp.arange(STRETCH))
        return carry, ids_CB.T

    specs = P(), P(AXIS), P(AXIS), P()
    return jax.shard_map(stretch, mesh=mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)(
        params, carry, keys_B, first
    )
