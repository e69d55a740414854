"""Prompts at the door of decoding: what a model cannot begin with or go on to is refused, the rest is padded."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import numpy as np

from seqlab.types import read_levels, require


def pad(model: nn.Module, prompts: Sequence[np.ndarray], n_tokens: int) -> tuple[Any, np.ndarray | None]:
    """Put prompts side by side, padded to a power of two, so that few shapes are compiled, or to what has room.

    Shapes   prompts: B arrays of ids -> ids_BT, lengths_B;  or B pictures of one shape -> image_BHWC, None.
    Raises   UserError for an empty prompt, n_tokens < 1, a model that does not step, and for more tokens than it has
             room for.
    """
    check_count("the number of tokens to draw", n_tokens)
    require(
        len(prompts) > 0 and all(len(p) > 0 for p in prompts), "a prompt is empty, but it must hold a token at least"
    )
    require(hasattr(model, "begin"), f"{type(model).__name__} does not take one step at a time: choose model=tagger")
    longest = max(n_steps(prompt) for prompt in prompts)
    room = model.room(longest)
    require(
        room is None or room > 0 or not longest,
        f"{longest} tokens to go on from leave the model no room for another (max_length)",
    )
    require(
        room is None or n_tokens <= room,
        f"{n_tokens} tokens are to follow {longest or 'a picture'}, but the model has room for {max(room or 0, 0)} "
        "there (max_length)",
    )
    if longest == 0:
        return read_levels(np.stack(prompts)), None
    lengths_B = np.array([len(prompt) for prompt in prompts], np.int32)
    width = round_up(longest)
    while (room := model.room(width)) is not None and room < 0:
        width -= 1
    ids_BT = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(ids_BT, prompts, strict=True):
        row[: len(prompt)] = prompt
    return ids_BT, lengths_B


def n_steps(prompt: np.ndarray) -> int:
    """How much of a model's room a prompt takes: its ids, and none for a picture, which is of the one shape."""
    return len(prompt) if prompt.ndim == 1 else 0


def round_up(n: int) -> int:
    """Give the least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1.

    Raises   UserError.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    require(is_count, f"{name} is {value!r}, but it must be a whole number of at least 1")


def check_number(name: str, value: Any, least: float, most: float, expected: str) -> None:
    """Refuse what is no number, or lies outside [least, most].

    Raises   UserError.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number and least <= value <= most, f"{name} is {value!r}, but it must be {expected}")
