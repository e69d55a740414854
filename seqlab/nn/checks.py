"""What a layer's constructor and its door refuse, each in one sentence."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from seqlab.types import Array, require

KINDS = {
    "ids": ("integer ids of shape (B, T)", "token"),
    "vectors": ("vectors of shape (B, T, D)", "linear"),
    "images": ("images of floats of shape (B, H, W, C)", "lenet, grid or patches"),
    "video": ("video of floats of shape (B, T, H, W, C)", "frames"),
}
"""What inputs can read, by the number of axes from 2 on, and which choices read it."""


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


def check_kind(name: str, x: Array, wanted: str) -> None:
    """Refuse inputs of another kind than the wanted one, and say which inputs read what was given."""
    integer = jnp.issubdtype(x.dtype, jnp.integer)
    given = dict(zip((2, 3, 4, 5), KINDS, strict=True)).get(x.ndim)
    hint = f"; model/inputs={KINDS[given][1]} reads {given}" if given not in (None, wanted) else ""
    fits = given == wanted and (wanted == "vectors" or integer == (wanted == "ids"))
    require(fits, f"{name} got {x.dtype} of shape {x.shape}; expected {KINDS[wanted][0]}{hint}.")


def check_images(name: str, image_BHWC: Array, lengths_B: Array | None) -> None:
    """Refuse what is no images, and lengths, which images do not have."""
    check_kind(name, image_BHWC, "images")
    require(lengths_B is None, f"{name} got lengths, but images have none")


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


def check_place(name: str, value: int, n: int) -> None:
    """Refuse what is no place among n."""
    require(0 <= value < n, f"{name} is {value}, but there are {n}: expected 0 to {n - 1}")
