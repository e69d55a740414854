"""Rows of many lengths as one array."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqlab.types import Batch


class Padded(NamedTuple):
    """Rows filled up with zeros, their lengths, and how many of them were cut."""

    rows_BT: np.ndarray
    lengths_B: np.ndarray
    n_cut: int

    @property
    def told_BT(self) -> np.ndarray:
        """Which steps are those of a row and not what fills it."""
        return np.arange(self.rows_BT.shape[1]) < self.lengths_B[:, None]


def pad_rows(rows: Sequence[np.ndarray], max_length: int | None = None) -> Padded:
    """Fill rows up to the longest of them, and cut what lies past `max_length`.

    Shapes   rows of (T,) or (T, D), each with a T of its own -> rows_BT or rows_BTD, T at least 1.
    """
    lengths_B = np.array([len(row) for row in rows], np.int32)
    kept_B = lengths_B if max_length is None else np.minimum(lengths_B, max_length)
    filled = np.zeros((len(rows), max(1, kept_B.max(initial=0)), *rows[0].shape[1:]), rows[0].dtype)
    for b, row in enumerate(rows):
        filled[b, : kept_B[b]] = row[: kept_B[b]]
    return Padded(filled, kept_B.astype(np.int32), int((kept_B < lengths_B).sum()))


def fill_batch(batch: Batch, batch_size: int, target_per: str, length: int, target_length: int) -> Batch:
    """A batch of NumPy arrays filled up with zeros to so many rows, and where it has lengths, to so many steps.

    What is filled in has length and weight 0.
    """

    def fill(array: Any, n_steps: int | None = None) -> Any:
        shape = [batch_size, *array.shape[1:]]
        if n_steps is not None:
            shape[1] = n_steps
        return np.pad(array, [(0, wanted - given) for wanted, given in zip(shape, array.shape, strict=True)])

    steps = None if batch.lengths is None else length
    told = {"row": None, "step": steps, "sequence": target_length}[target_per]
    return Batch(
        inputs=fill(batch.inputs, steps),
        lengths=None if batch.lengths is None else fill(batch.lengths),
        targets=fill(batch.targets, told),
        weights=fill(batch.weights, told),
    )
