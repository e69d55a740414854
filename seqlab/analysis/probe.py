"""Looking into a model while it runs: its layers are watched, or disturbed, without a word of theirs."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.flatten_util import ravel_pytree

from seqlab.models.bilm import reverse_rows
from seqlab.nn.dropout import zoneout_rates
from seqlab.nn.masks import valid_mask
from seqlab.nn.recurrent import Recurrent, advance
from seqlab.nn.transformer import Block
from seqlab.types import Array, Encoding, Params

ENCODERS = ("encoder", "forward", "backward")
# A Transformer stacks this collection over its layers as it does its parameters.
SEEN = "intermediates"
DISTURBANCE = "disturbance_"


class RecurrentPart(NamedTuple):
    """A recurrent layer of an encoder by itself: what it is, what it has learned, what it read.

    A layer that reads from the end is here one that reads forwards; its row is to be turned.
    """

    name: str
    layer: Recurrent
    params: Params
    x_BTD: Array
    reverse: bool


def carry_names(carry: Any) -> list[str]:
    """The names of a carry's leaves; the last is h, the output, and what is beside it is the cell state C."""
    n = len(jax.tree.leaves(carry))
    return ["h"] if n == 1 else ["C", "h"] if n == 2 else [f"s{k}" for k in range(1, n)] + ["h"]


def disturbances(model: nn.Module, params: Params, arguments: tuple[Any, ...]) -> Params:
    """Zeros for all that can be added inside a model, by layer: the third argument of `apply_disturbed`.

    Added to the vectors x_t that the encoder reads, the carry s_t that a recurrent layer of the encoder hands on, and
    the vector that a Transformer's block gives out, at each step t of each row.
    """

    def run(params: Params) -> Any:
        with nn.intercept_methods(_disturb):
            return model.apply({"params": params}, *arguments, train=False, mutable=[SEEN])[1][SEEN]

    seen = flatten_dict(jax.eval_shape(run, params))
    kept = {path: leaf for path, leaf in seen.items() if path[-1].startswith(DISTURBANCE)}
    return unflatten_dict(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept))


def apply_disturbed(model: nn.Module, params: Params, disturbance: Params, arguments: tuple[Any, ...]) -> Any:
    """The outputs of a model in whose inside something is added; for zeros those of the model."""
    with nn.intercept_methods(_disturb):
        return model.apply({"params": params, SEEN: disturbance}, *arguments, train=False)


def by_layer(tree: Params) -> Iterator[tuple[str, str, Array]]:
    """Give (layer, name, values) for each disturbance of a tree of them, each layer of a stack by itself."""
    for path, leaf in sorted(flatten_dict(tree).items(), key=lambda item: place("/".join(item[0]))):
        stacked = leaf.ndim == 4
        for n in range(len(leaf) if stacked else 1):
            name = name_layer(path[:-1], n if stacked else None)
            yield name, path[-1].removeprefix(DISTURBANCE), leaf[n] if stacked else leaf


def name_layer(path: tuple[str, ...], n: int | None) -> str:
    """Say a module's path as a reader would: "layer 2 backward"; `n` is its place in a stack of layers."""
    words = []
    for part in path[1:] if path[0] == "encoder" else path:
        if part == "layers" and n is not None:
            part = f"layers_{n}"
        numbered = re.fullmatch(r"layers_(\d+)", part)
        words.append(f"layer {int(numbered[1]) + 1}" if numbered else part)
    return " ".join(words) or path[0]


def place(name: str) -> list[tuple[int, str]]:
    """The key by which layer 2 comes before layer 10; JAX hands dicts back in the order of the alphabet."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def recurrent_parts(model: nn.Module, params: Params, arguments: tuple[Any, ...]) -> list[RecurrentPart]:
    """The recurrent layers of a model's encoder, in order, each with what it reads in a batch."""
    layers: dict[tuple[str, ...], Recurrent] = {}

    def watch(next_fun: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        layer = context.module
        if isinstance(layer, Recurrent) and context.method_name == "__call__" and layer.path[0] in ENCODERS:
            layers[layer.path] = layer.clone(parent=None)
            if layer.is_mutable_collection(SEEN):
                layer.put_variable(SEEN, "x_BTD", args[0])
        return next_fun(*args, **kwargs)

    def run(params: Params) -> Any:
        with nn.intercept_methods(watch):
            return model.apply({"params": params}, *arguments, train=False, mutable=[SEEN])[1].get(SEEN, {})

    jax.eval_shape(run, params)
    if not layers:
        return []
    seen = {path[:-1]: x for path, x in flatten_dict(jax.jit(run)(params)).items() if path[-1] == "x_BTD"}
    parts = []
    for path, x in sorted(seen.items(), key=lambda item: place("/".join(item[0]))):
        own = params
        for key in path:
            own = own[key]
        layer = layers[path]
        forwards = layer.clone(parent=None, reverse=False)
        if x.ndim == 3:
            parts.append(RecurrentPart(name_layer(path, None), forwards, own, x, layer.reverse))
            continue
        for n in range(len(x)):
            of_layer = jax.tree.map(lambda leaf, n=n: leaf[n], own)
            parts.append(RecurrentPart(name_layer(path, n), forwards, of_layer, x[n], layer.reverse))
    return parts


def _disturb(next_fun: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
    module = context.module
    if context.method_name != "__call__" or not module.path:
        return next_fun(*args, **kwargs)
    if module.path == ("inputs",):
        x_BTD = next_fun(*args, **kwargs)
        return x_BTD + _disturbance(module, "x", x_BTD)
    if module.path[0] in ENCODERS and isinstance(module, Recurrent):
        return _run_disturbed(module, *args, **kwargs)
    if module.path[0] in ENCODERS and isinstance(module, Block):
        y_BTD, state = next_fun(*args, **kwargs)
        return y_BTD + _disturbance(module, "y", y_BTD), state
    return next_fun(*args, **kwargs)


def _disturbance(module: nn.Module, name: str, like: Array) -> Array:
    name, zeros = f"{DISTURBANCE}{name}", jnp.zeros_like(like)
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


def walk(part: RecurrentPart, lengths_B: Array | None) -> tuple[Array, Array, Callable[..., Array]]:
    """The states of a recurrent layer along its rows, and its step as a function of vectors.

        s_t = step(params, s_{t−1}, x_t),   s = the leaves of the carry one behind the other

    Shapes   -> s_BTS before each step, x_BTD as it is read, step(params, s_S, x_D) -> s_S.
    """
    layer, params, x_BTD = part.layer, part.params, part.x_BTD
    if part.reverse:
        x_BTD = reverse_rows(x_BTD, lengths_B)
    like = jax.tree.map(lambda leaf: leaf[0], layer.bind({"params": params}).init_state(1))
    s_S, unravel = ravel_pytree(like)

    def step(params: Params, s_S: Array, x_D: Array) -> Array:
        carry, x_BD = jax.tree.map(lambda leaf: leaf[None], (unravel(s_S), x_D))
        carry, _ = layer.apply({"params": params}, carry, x_BD, method="step")
        return ravel_pytree(jax.tree.map(lambda leaf: leaf[0], carry))[0]

    @jax.jit
    def states(params: Params, x_BTD: Array) -> Array:
        def body(s_BS: Array, x_BD: Array) -> tuple[Array, Array]:
            return jax.vmap(partial(step, params))(s_BS, x_BD), s_BS

        start_BS = jnp.broadcast_to(s_S, (len(x_BTD), len(s_S)))
        return jax.lax.scan(body, start_BS, x_BTD.swapaxes(0, 1))[1].swapaxes(0, 1)

    return states(params, x_BTD), x_BTD, step
