"""The checks at the door: sizes of a task, and batches, which inside a compiled step would fail silently."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqlab.types import Batch, Task, require


def require_size(owner: str, name: str, value: int, at_least: int, why: str = "") -> None:
    """Raise UserError unless a size is an integer from `at_least` on."""
    is_size = isinstance(value, int) and not isinstance(value, bool) and value >= at_least
    require(is_size, f"{owner} has {name} {value!r}; expected an integer of at least {at_least}{why}.")


def require_token_sizes(task: Any, counts: Sequence[str], least: int, why: str) -> None:
    """Raise UserError unless these fields of a task are counts, and its vocabulary's `max_size` one too, or None."""
    for name in counts:
        require_size(task.owner, name, getattr(task, name), 1)
    if task.max_size is not None:
        require_size(task.owner, "max_size", task.max_size, least, why)


def check_batch(batch: Batch, task: Task) -> None:
    """Refuse a batch that does not keep the promises of its task, in one sentence with the first offending value.

    Shapes   of `Batch`, with T, D = task.d_input and target_per as the task says.
    Raises   UserError for a wrong shape or kind, an id or label out of range, a length below 0 or above T,
             a number that is not finite, a negative weight, a weight on a padded step.
    """
    who = type(task).__name__
    inputs, targets, weights = (np.asarray(a) for a in (batch.inputs, batch.targets, batch.weights))
    _check_inputs(who, inputs, task)
    B, T = inputs.shape[:2]  # A picture has lengths nowhere, a film those of its frames.
    lengths = np.full(B, T) if batch.lengths is None else np.asarray(batch.lengths)
    _check_lengths(who, lengths, B, T)
    if batch.fresh is not None:
        fresh = np.asarray(batch.fresh)
        flags = fresh.shape == (B,) and fresh.dtype == bool
        require(flags, f"{who} gives {fresh.dtype} fresh of shape {fresh.shape}; expected a bool a row, ({B},).")
    shape = (B, *{"row": (), "step": (T,), "sequence": targets.shape[1:2] or (1,)}[task.target_per])
    rows = {"row": "one a row", "step": "one a step", "sequence": "one a step of the target"}[task.target_per]
    require(weights.shape == shape, f"{who} gives weights of shape {weights.shape}; expected {shape}, {rows}.")
    require(targets.shape[: len(shape)] == shape, f"{who} gives targets of shape {targets.shape}; expected {shape}.")
    _refuse(~(np.isfinite(weights) & (weights >= 0)), weights, f"{who} gives the weight", "a finite number from 0 on")
    if task.target_per == "step":
        padded = (np.arange(T) >= lengths[:, None]) & (weights != 0)
        _refuse(padded, weights, f"{who} gives the weight", "0, as the step lies past the row's length")
    counted = (weights != 0).reshape(shape + (1,) * (targets.ndim - len(shape)))
    if np.issubdtype(targets.dtype, np.integer):
        outside = (targets < 0) | (targets >= task.n_outputs)
        expected = f"labels 0..{task.n_outputs - 1}, as n_outputs is {task.n_outputs}"
        _refuse(outside & counted, targets, f"{who} gives the label", expected)
    else:
        _refuse(~np.isfinite(targets) & counted, targets, f"{who} gives the target", "a finite number")


def _check_inputs(who: str, inputs: np.ndarray, task: Task) -> None:
    shape: tuple[int, ...] | None = getattr(task, "image_shape", None)
    if shape is not None:
        kind = inputs.dtype == np.uint8 or np.issubdtype(inputs.dtype, np.floating)
        fits = inputs.ndim in (4, 5) and inputs.shape[-3:] == tuple(shape) and kind
        H, W, C = shape
        expected = f"bytes or floats (B, {H}, {W}, {C}), or (B, T, {H}, {W}, {C})"
        require(fits, f"{who} gives {inputs.dtype} inputs of shape {inputs.shape}; expected {expected}.")
        _refuse(~np.isfinite(inputs), inputs, f"{who} gives the input", "a finite number")
    elif task.vocab_size is not None:
        tokens = inputs.ndim == 2 and np.issubdtype(inputs.dtype, np.integer)
        require(tokens, f"{who} gives {inputs.dtype} inputs of shape {inputs.shape}; expected integer ids (B, T).")
        outside = (inputs < 0) | (inputs >= task.vocab_size)
        expected = f"ids 0..{task.vocab_size - 1}, as vocab_size is {task.vocab_size}"
        _refuse(outside, inputs, f"{who} gives the id", expected)
    else:
        vectors = inputs.ndim == 3 and inputs.shape[2] == task.d_input and np.issubdtype(inputs.dtype, np.floating)
        expected = f"floats (B, T, {task.d_input})"
        require(vectors, f"{who} gives {inputs.dtype} inputs of shape {inputs.shape}; expected {expected}.")
        _refuse(~np.isfinite(inputs), inputs, f"{who} gives the input", "a finite number")


def _check_lengths(who: str, lengths: np.ndarray, B: int, T: int) -> None:
    whole = lengths.shape == (B,) and np.issubdtype(lengths.dtype, np.integer)
    require(whole, f"{who} gives {lengths.dtype} lengths of shape {lengths.shape}; expected integers ({B},).")
    _refuse((lengths < 0) | (lengths > T), lengths, f"{who} gives the length", f"0..{T}, the steps there are")


def _refuse(bad: np.ndarray, values: np.ndarray, what: str, expected: str) -> None:
    """Name the first bad value and its place."""
    if bad.any():
        index = tuple(np.argwhere(bad)[0])
        place = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "position", "component"), index, strict=False))
        require(False, f"{what} {values[index]} at {place}; expected {expected}.")
