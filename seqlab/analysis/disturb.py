"""Something small added inside a model while it runs, without a word of its layers: what gradients are taken in."""

from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from seqlab.analysis.probe import ENCODERS, SEEN, along_the_model, carry_names, looking, name_part
from seqlab.nn.dropout import zoneout_rates
from seqlab.nn.masks import valid_mask
from seqlab.nn.recurrent import Recurrent, advance
from seqlab.nn.transformer import Block
from seqlab.types import Array, Encoding, Params

DISTURBANCE = "disturbance_"
# The same of a layer that reads from the end.
BACKWARD = "disturbance_backward_"


def disturbances(model: nn.Module, params: Params, arguments: tuple[Any, ...]) -> Params:
    """Zeros for all that can be added inside a model, by layer: the third argument of `apply_disturbed`.

    Added to the vectors x_t that the encoder and the decoder read, the carry s_t that a recurrent layer hands on, and
    the vector that a Transformer's block gives out, at each step t of each row.
    """

    def run(params: Params) -> Any:
        with nn.intercept_methods(looking(_disturb, _disturb_step)):
            return model.apply({"params": params}, *arguments, train=False, mutable=[SEEN])[1][SEEN]

    seen = flatten_dict(jax.eval_shape(run, params))
    kept = {path: leaf for path, leaf in seen.items() if path[-1].startswith(DISTURBANCE)}
    return unflatten_dict(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept))


def apply_disturbed(model: nn.Module, params: Params, disturbance: Params, arguments: tuple[Any, ...]) -> Any:
    """The outputs of a model in whose inside something is added; for zeros those of the model."""
    with nn.intercept_methods(looking(_disturb, _disturb_step)):
        return model.apply({"params": params, SEEN: disturbance}, *arguments, train=False)


def by_layer(model: nn.Module, tree: Params) -> Iterator[tuple[str, str, Array]]:
    """Give (layer, name, values_BTF) for each disturbance of a tree of them, each layer of a stack by itself."""
    for path, leaf in sorted(flatten_dict(tree).items(), key=lambda item: along_the_model(item[0])):
        reverse, stacked = path[-1].startswith(BACKWARD), leaf.ndim == 4
        what = path[-1].removeprefix(BACKWARD if reverse else DISTURBANCE)
        for n in range(len(leaf) if stacked else 1):
            yield name_part(model, path[:-1], n if stacked else None, reverse), what, leaf[n] if stacked else leaf


def _disturb(module: nn.Module, next_fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if module.path in (("inputs",), ("targets",)):
        x_BTD = next_fun(*args, **kwargs)
        return x_BTD + _disturbance(module, "x", x_BTD)
    if module.path[0] in (*ENCODERS, "decoder") and isinstance(module, Recurrent):
        return _run_disturbed(module, *args, **kwargs)
    if module.path[0] in (*ENCODERS, "decoder") and isinstance(module, Block):
        y_BTD, state = next_fun(*args, **kwargs)
        return y_BTD + _disturbance(module, "y", y_BTD), state
    return next_fun(*args, **kwargs)


def _disturb_step(layer: Recurrent, next_fun: Callable[..., Any], state: Any, x_BD: Array) -> tuple[Any, Array]:
    """carry_t = cell(carry_{t−1}, x_t) + δ_t, and its h_t is what is given out."""
    carry, y_BF = next_fun(state, x_BD)
    leaves, tree = jax.tree.flatten(carry)
    leaves = [leaf + _disturbance(layer, name, leaf) for name, leaf in zip(carry_names(carry), leaves, strict=True)]
    return jax.tree.unflatten(tree, leaves), leaves[-1].astype(y_BF.dtype)


def _disturbance(module: nn.Module, name: str, like: Array) -> Array:
    prefix = BACKWARD if getattr(module, "reverse", False) else DISTURBANCE
    name, zeros = f"{prefix}{name}", jnp.zeros_like(like)
    if module.is_mutable_collection(SEEN):
        module.put_variable(SEEN, name, zeros)
    return module.get_variable(SEEN, name, zeros)


def _run_disturbed(
    layer: Recurrent, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
) -> Encoding:
    """carry_t = cell(carry_{t−1}, x_t) + δ_t, by a plain scan over the cell."""
    B, T, _ = x_BTD.shape
    state = layer.init_state(B) if state is None else state
    real_BT1 = jnp.broadcast_to(valid_mask(lengths_B, T), (B, T))[..., None]
    leaves, names = jax.tree.leaves(state), carry_names(state)
    δ_BTF = [
        _disturbance(layer, name, jnp.zeros((B, T, leaf.shape[-1]), leaf.dtype))
        for name, leaf in zip(names, leaves, strict=True)
    ]
    at_steps = [jnp.where(real_BT1, δ, 0).swapaxes(0, 1) for δ in δ_BTF]
    δ_TBF = jax.tree.unflatten(jax.tree.structure(state), at_steps)
    zoneout = zoneout_rates(layer.zoneout, T, state) if layer.zoneout else None

    def body(cell: nn.RNNCellBase, carry: Any, per_step: Any) -> Any:
        δ, *given = per_step
        carry = jax.tree.map(jnp.add, advance(cell, carry, given)[0], δ)
        return carry, jax.tree.leaves(carry)[-1]

    scan = nn.scan(body, variable_broadcast="params", split_rngs={"params": False}, reverse=layer.reverse)
    x_TBD = jnp.where(real_BT1, x_BTD, 0).swapaxes(0, 1)
    state, y_TBF = scan(layer.core, state, (δ_TBF, x_TBD, real_BT1[..., 0].T, zoneout))
    last_BF = jnp.where(real_BT1[:, :1].any(1), jax.tree.leaves(state)[-1], 0)
    return Encoding(jnp.where(real_BT1, y_TBF.swapaxes(0, 1), 0), last_BF, state)
