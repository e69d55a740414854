"""The recurrent layers of a model, each by itself with what it read: to be run again and looked into."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict
from jax.flatten_util import ravel_pytree

from seqlab.analysis.probe import ENCODERS, SEEN, Path, along_the_model, count_targets, looking, name_part
from seqlab.models.bilm import reverse_rows
from seqlab.nn.recurrent import Recurrent
from seqlab.types import Array, Params


class RecurrentPart(NamedTuple):
    """A recurrent layer by itself: what it is and has learned, where it starts, what it read, and how many steps.

    A layer that reads from the end is here one that reads forwards; its row is to be turned. What a decoder's layer
    reads is the target before and, if the decoder looks at the source, what it saw there.
    """

    name: str
    layer: Recurrent
    params: Params
    start: Any
    x_BTD: Array
    lengths_B: Array | None
    reverse: bool


def recurrent_parts(model: nn.Module, params: Params, arguments: tuple[Any, ...]) -> list[RecurrentPart]:
    """The recurrent layers of a model, the encoder's before the decoder's, each with what it reads in a batch."""
    layers: dict[Path, Recurrent] = {}

    def note(layer: Recurrent, x: Array, state: Any) -> None:
        layers[layer.path] = layer.clone(parent=None)
        if layer.is_mutable_collection(SEEN):
            layer.put_variable(SEEN, "x", x)
            # A carry may be a dict.
            layer.put_variable(SEEN, "before", (state,))

    def watch(module: nn.Module, next_fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if isinstance(module, Recurrent) and module.path[0] in (*ENCODERS, "decoder"):
            state = kwargs.get("state")
            note(module, args[0], module.init_state(len(args[0])) if state is None else state)
        return next_fun(*args, **kwargs)

    def watch_step(layer: Recurrent, next_fun: Callable[..., Any], state: Any, x_BD: Array) -> Any:
        note(layer, x_BD, state)
        return next_fun(state, x_BD)

    def run(params: Params) -> Any:
        with nn.intercept_methods(looking(watch, watch_step)):
            return model.apply({"params": params}, *arguments, train=False, mutable=[SEEN])[1].get(SEEN, {})

    jax.eval_shape(run, params)
    if not layers:
        return []
    seen = flatten_dict(jax.jit(run)(params))
    n_targets_B = count_targets(arguments[3]) if hasattr(model, "decoder") else None
    parts = []
    for path in sorted(layers, key=along_the_model):
        layer, own = layers[path], params
        for key in path:
            own = own[key]
        x, (before,) = seen[*path, "x"], seen[*path, "before"]
        stacked = x.ndim == 4
        if not stacked and jax.tree.leaves(before)[0].ndim == 3:
            # Seen step by step.
            before = jax.tree.map(lambda leaf: leaf[:, 0], before)
        lengths_B = n_targets_B if path[0] == "decoder" else arguments[1]
        for n in range(len(x) if stacked else 1):
            name = name_part(model, path, n if stacked else None, layer.reverse)
            forwards = layer.clone(parent=None, reverse=False)
            given = own, before, x
            of_layer, start, x_BTD = jax.tree.map(lambda leaf, n=n: leaf[n], given) if stacked else given
            parts.append(RecurrentPart(name, forwards, of_layer, start, x_BTD, lengths_B, layer.reverse))
    return parts


def walk(part: RecurrentPart) -> tuple[Array, Array, Callable[..., Array]]:
    """The states of a recurrent layer along its rows, and its step as a function of vectors.

        s_t = step(params, s_{t−1}, x_t),   s = the leaves of the carry one behind the other

    Shapes   -> s_BTS before each step, x_BTD as it is read, step(params, s_S, x_D) -> s_S.
    """
    layer, x_BTD = part.layer, part.x_BTD
    if part.reverse:
        x_BTD = reverse_rows(x_BTD, part.lengths_B)
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], part.start))

    def step(params: Params, s_S: Array, x_D: Array) -> Array:
        carry, x_BD = jax.tree.map(lambda leaf: leaf[None], (unravel(s_S), x_D))
        carry, _ = layer.apply({"params": params}, carry, x_BD, method="step")
        return ravel_pytree(jax.tree.map(lambda leaf: leaf[0], carry))[0]

    @jax.jit
    def states(params: Params, start: Any, x_BTD: Array) -> Array:
        def body(s_BS: Array, x_BD: Array) -> tuple[Array, Array]:
            return jax.vmap(partial(step, params))(s_BS, x_BD), s_BS

        start_BS = jax.vmap(lambda carry: ravel_pytree(carry)[0])(start)
        return jax.lax.scan(body, start_BS, x_BTD.swapaxes(0, 1))[1].swapaxes(0, 1)

    return states(part.params, part.start, x_BTD), x_BTD, step
