"""What a row says, token by token, for the axes of figures."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from seqlab.types import Batch, Task

SHOWN = {"\n": "↵", " ": "␣", "\t": "⇥"}


def input_tokens(task: Task, batch: Batch, row: int) -> list[str]:
    """The names of a row's inputs up to its length; numbers from 0 for what are no tokens, none of a picture."""
    n = None if batch.lengths is None else int(batch.lengths[row])
    inputs = np.asarray(batch.inputs[row])[:n]
    if inputs.ndim == 3:
        return []
    if inputs.ndim > 1 or task.vocab_size is None:
        return [str(t) for t in range(len(inputs))]
    vocabulary: Any = getattr(task, "vocabulary", None)
    if vocabulary is not None:
        # What is no token of the vocabulary is the task's own: a mask.
        return [show(vocabulary.decode([i])) if i < vocabulary.size else "<mask>" for i in inputs]
    return _decode(task, inputs)


def target_tokens(task: Task, batch: Batch, row: int) -> list[str]:
    """The names of what is to be written for a row, with the end."""
    return _decode(task, np.asarray(batch.targets[row])[np.asarray(batch.weights[row]) > 0], getattr(task, "eos", None))


def show(token: str) -> str:
    """A token whose white space can be seen."""
    return "".join(SHOWN.get(character, character) for character in token) or "<>"


def tell_cut(n: int, *of: tuple[int, str]) -> str:
    """Say what is shown where of so many steps, or whatever each is, the first n are; nothing of what is whole."""
    return " and ".join(f"the first {n} of {n_all} {what}" for n_all, what in of if n_all > n)


def _decode(task: Any, ids: Iterable[int], eos: int | None = None) -> list[str]:
    if not hasattr(task, "decode_target"):
        return [str(i) for i in ids]
    return ["<eos>" if i == eos else show(task.decode_target([i])) for i in ids]
