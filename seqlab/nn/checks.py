"""What a layer's constructor and its door refuse, each in one sentence."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from seqlab.types import Array, require


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    choices = list(choices)
    nearest = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)[0]
    message = f"{name} is {value!r}, but it must be one of {', '.join(choices)}; the nearest is {nearest!r}"
    require(value in choices, message)


def check_positive(name: str, value: int) -> None:
    """Refuse a size below 1."""
    require(value >= 1, f"{name} is {value}, but it must be at least 1")


def check_lengths(lengths_B: Array | None, batch_size: int) -> None:
    """Refuse lengths that are not one a row."""
    shape = None if lengths_B is None else jnp.shape(lengths_B)
    message = f"lengths have the shape {shape}, but a batch of {batch_size} rows has lengths of shape ({batch_size},)"
    require(shape in (None, (batch_size,)), message)


def check_weights(
    state_dict: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], optional: Sequence[str] = ()
) -> None:
    """Refuse a state dict that lacks an array, has one too many, or one of another shape."""
    for key in state_dict:
        nearest = difflib.get_close_matches(key, shapes, n=1, cutoff=0.0)[0]
        require(key in shapes, f"{key} in the state dict is not expected by this layer; the nearest is {nearest}.")
    for key, shape in shapes.items():
        there = key in state_dict
        require(there or key in optional, f"{key} is missing from the state dict, but this layer needs it.")
        given = jnp.shape(state_dict[key]) if there else shape
        require(given == shape, f"{key} has shape {given}, but this layer needs {shape}.")
