"""Where a model's layers are, what they are called, and how they are looked at while they run."""

import re
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.recurrent import Recurrent
from seqlab.nn.transformer import Transformer
from seqlab.types import Array, Encoding

ENCODERS = ("encoder", "forward", "backward")
# What has a step for each target, and not for each input.
DECODING = ("decoder", "targets")
# A Transformer stacks this collection over its layers as it does its parameters.
SEEN = "intermediates"

Path = tuple[str, ...]


def carry_names(carry: Any) -> list[str]:
    """The names of a carry's leaves; the last is h, the output, and what is beside it is the cell state C."""
    n = len(jax.tree.leaves(carry))
    return ["h"] if n == 1 else ["C", "h"] if n == 2 else [f"s{k}" for k in range(1, n)] + ["h"]


def name_layer(path: Path, n: int | None) -> str:
    """Say a module's path as a reader would: "layer 2 backward"; `n` is its place in a stack of layers."""
    words = []
    for part in path[1:] if path[0] == "encoder" else path:
        if part == "layers" and n is not None:
            part = f"layers_{n}"
        numbered = re.fullmatch(r"layers_(\d+)", part)
        words.append(f"layer {int(numbered[1]) + 1}" if numbered else part)
    return " ".join(words) or path[0]


def name_part(model: nn.Module, path: Path, n: int | None, reverse: bool) -> str:
    """The same with the direction of a layer that reads from the end, and beside a decoder with the encoder's name."""
    # A decoder's layers are in its core.
    name = name_layer(tuple(part for part in path if part != "core"), n)
    if path[0] == "encoder" != name and hasattr(model, "decoder"):
        name = f"encoder {name}"
    return f"{name} backward" if reverse and "backward" not in path else name


def is_decoding(layer: str) -> bool:
    """Whether what has this name has a step for each target."""
    return layer.split()[0] in DECODING


def is_turned(layer: str) -> bool:
    """Whether what has this name is given its rows from the end: the backward half of a BiLM."""
    return layer.split()[0] == "backward"


def is_backward(layer: str) -> bool:
    """Whether the layer of this name reads from the end."""
    return "backward" in layer.split()


def place(name: str) -> list[tuple[int, str]]:
    """The key by which layer 2 comes before layer 10; JAX hands dicts back in the order of the alphabet."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def along_the_model(path: Path) -> tuple[bool, list[tuple[int, str]]]:
    """The key by which what reads the source comes before what writes."""
    return path[0] in DECODING, place("/".join(path))


def count_targets(weights_BT: Array) -> Array:
    """The steps up to a row's last real target, _B."""
    return jnp.max(jnp.where(weights_BT > 0, jnp.arange(1, weights_BT.shape[1] + 1), 0), 1)


def looking(at_call: Callable[..., Any], at_step: Callable[..., Any]) -> Callable[..., Any]:
    """An interceptor of what a model's modules are asked for.

    at_call(module, next_fun, args, kwargs) answers for a module that is called; but a recurrent decoder, which may look
    at the source between the steps of its layers, takes one step after the other, and at_step(layer, next_fun, state,
    x_BD) answers for a step of one of them. What that puts into the collection `SEEN` is stacked, time second.
    """
    in_steps = False

    def look(next_fun: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        nonlocal in_steps
        module, method = context.module, context.method_name
        if in_steps and isinstance(module, Recurrent) and method == "step":
            return at_step(module, next_fun, *args)
        if in_steps and isinstance(module, Recurrent) and method == "__call__":
            # A row of one step.
            state, y_BF = module.step(kwargs["state"], args[0][:, 0])
            return Encoding(y_BF[:, None], y_BF, state)
        if in_steps or method != "__call__" or not module.path:
            return next_fun(*args, **kwargs)
        if module.path == ("decoder",) and not isinstance(module, Transformer):
            in_steps = True
            encoding = _step_through(module, *args, **kwargs)
            in_steps = False
            return encoding
        return at_call(module, next_fun, args, kwargs)

    return look


def _step_through(decoder: nn.Module, x_BTD: Array, *, state: Any, train: bool) -> Encoding:
    def body(decoder: nn.Module, state: Any, x_BD: Array) -> tuple[Any, Array]:
        return decoder.step(state, x_BD)

    scan = nn.scan(
        body, variable_axes={SEEN: 1}, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1
    )
    state, y_BTF = scan(decoder, state, x_BTD)
    return Encoding(y_BTF, y_BTF[:, -1], state)
