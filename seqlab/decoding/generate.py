"""Text from a model that steps: prompts are read at once, then tokens are drawn one by one."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.decoding.sampling import Sampling, choose
from seqlab.types import Array, Params, require

STRETCH = 16  # tokens a dispatch


def generate(
    model: nn.Module,
    params: Params,
    prompts: Sequence[np.ndarray],
    n_tokens: int,
    sampling: Sampling,
    seed: int = 0,
) -> Iterator[np.ndarray]:
    """Draw `n_tokens` tokens after each prompt; yields them in stretches, as they come.

    Prompts may differ in length: a row's tokens depend on its prompt, its place in the batch and the seed, not on the
    others'. Prompts are padded to a power of two, so that few shapes are compiled.

    Shapes   prompts: B arrays of ids -> ids_BC, until C adds up to `n_tokens`.
    Raises   UserError for an empty prompt, no tokens to draw, a bad `sampling`, a model that does not step, and for
             more tokens than the model has room for.
    """
    sampling.check()
    require(n_tokens >= 1, f"the number of tokens to draw is {n_tokens}, but it must be at least 1")
    require(
        len(prompts) > 0 and all(len(p) > 0 for p in prompts), "a prompt is empty, but it must hold a token at least"
    )
    require(hasattr(model, "read"), f"{type(model).__name__} does not take one step at a time: choose model=tagger")
    lengths_B = np.array([len(prompt) for prompt in prompts])
    room = model.room()
    wanted = int(lengths_B.max()) + n_tokens
    require(
        room is None or wanted <= room,
        f"prompt and text are {wanted} tokens together, but the model has room for {room} (max_length)",
    )
    width = 1 << int(lengths_B.max() - 1).bit_length()
    ids_BT = np.zeros((len(prompts), width if room is None else min(width, room)), np.int32)
    for row, prompt in zip(ids_BT, prompts, strict=True):
        row[: len(prompt)] = prompt

    keys_B = jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.arange(len(prompts)))
    state, logits_BV = _read(model, params, ids_BT, lengths_B)
    for first in range(0, n_tokens, STRETCH):
        state, logits_BV, ids_BC = _draw(model, sampling, params, state, logits_BV, keys_B, first)
        yield np.asarray(ids_BC)[:, : n_tokens - first]


@partial(jax.jit, static_argnums=0)
def _read(model: nn.Module, params: Params, ids_BT: Array, lengths_B: Array) -> tuple[Any, Array]:
    def read(model: nn.Module) -> tuple[Any, Array]:
        return model.read(model.init_state(ids_BT.shape[0]), ids_BT, lengths_B)

    return nn.apply(read, model)({"params": params})


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _draw(model, sampling, params, state, logits_BV, keys_B, first):
    def draw(carry, t):
        state, logits_BV = carry
        ids_B = choose(jax.vmap(partial(jax.random.fold_in, data=t))(keys_B), logits_BV, sampling)
        return model.apply({"params": params}, state, ids_B, method="step"), ids_B

    (state, logits_BV), ids_CB = lax.scan(draw, (state, logits_BV), first + jnp.arange(STRETCH))
    return state, logits_BV, ids_CB.T
