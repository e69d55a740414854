"""What a row hands on from step to step."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from seqlab.analysis.lengths import to_length
from seqlab.nn.self_attention import Cache
from seqlab.types import Batch, Params, UserError, model_arguments, require


def state_bytes(model: nn.Module, params: Params, batch: Batch, lengths: list[int]) -> dict[str, Any]:
    """The bytes of the state of one row that has taken T steps, from shapes alone.

        used   all leaves, of a cache of S places the min(T, S) that are taken
        held   all leaves: a cache is made with all its places

    A tagger hands on its state, an encoder-decoder that of the decoder, which has read a source of T steps and written
    T, a classifier that of its encoder, if one reads on with it.

    Names    "lengths", "used" and "held", each of shape (len(lengths),); or "why" the model takes no steps.
    """
    used: list[int] = []
    held: list[int] = []
    for T in lengths:
        try:
            state = jax.eval_shape(lambda params, T=T: _step(model, params, batch, T), params)
        except UserError as error:
            if not used:
                return {"why": str(error)}
            break
        parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Cache))
        held.append(sum(map(_n_bytes, jax.tree.leaves(state))))
        used.append(sum(_used(part, T) if isinstance(part, Cache) else _n_bytes(part) for part in parts))
    return {"lengths": np.array(lengths[: len(used)]), "used": np.array(used), "held": np.array(held)}


def _step(model: nn.Module, params: Params, batch: Batch, T: int) -> Any:
    """The state of one row after a step."""
    inputs = model_arguments(model, batch)[0][:1]  # type: ignore[index]

    def step(model: Any) -> Any:
        if hasattr(model, "init_state"):
            return model.step(model.init_state(1), inputs[:, 0])[0]
        if hasattr(model, "begin"):
            source = inputs if inputs.ndim == 4 else to_length(inputs, T)
            return model.step(model.begin(source)[0], batch.targets[:1, 0])[0]
        encoder = getattr(model, "encoder", None)
        has_one = isinstance(encoder, nn.Module)
        require(has_one, f"{type(model).__name__} has no encoder that takes one step at a time")
        x_BTD = model.inputs(inputs, train=False)
        return encoder.step(encoder.init_state(1), x_BTD[:, 0])[0]  # type: ignore[union-attr]

    return model.apply({"params": params}, method=step)


def _used(cache: Cache, T: int) -> int:
    S = cache.k_BGSK.shape[2]
    return sum(map(_n_bytes, (cache.k_BGSK, cache.v_BGSK))) * min(T, S) // S + _n_bytes(cache.length_B)


def _n_bytes(leaf: Any) -> int:
    return leaf.size * leaf.dtype.itemsize
