"""Bucketing: rows of many lengths in arrays of a few shapes, so that little is padded and little is compiled."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from seqlab.types import Batch


def bucket_examples(examples: Batch, n_buckets: int, target_per: str) -> tuple[tuple[Batch, ...], tuple[int, ...]]:
    """Examples in buckets, and the lengths of these: one bucket of no length in particular where all rows are full."""
    if examples.lengths is None:
        return (examples,), ()
    bounds = choose_bounds(np.asarray(examples.lengths), n_buckets)
    return split_by_length(examples, bounds, target_per), bounds


def choose_bounds(lengths_N: np.ndarray, n_buckets: int) -> tuple[int, ...]:
    """The lengths of at most `n_buckets` buckets that pad these rows with the fewest steps in all.

        padding(T_1 < … < T_k) = Σ_rows (T_(row) − length),   T_(row) the least bound that holds the row

    Found exactly, by dynamic programming over the different lengths: the best k buckets up to a length are the best
    k − 1 up to a shorter one, and a bucket from there.
    """
    steps_U, counts_U = np.unique(np.maximum(lengths_N, 1), return_counts=True)
    U = len(steps_U)
    before_U = np.concatenate([[0], np.cumsum(counts_U)])
    # size_UU[i, j]: steps of a bucket that holds the different lengths i … j, all rows as long as the longest.
    size_UU = np.where(
        np.arange(U)[:, None] <= np.arange(U), steps_U * (before_U[None, 1:] - before_U[:-1, None]), np.inf
    )
    best_U, begins = size_UU[0], []
    for _ in range(min(n_buckets, U) - 1):
        split_UU = np.concatenate([[np.inf], best_U[:-1]])[:, None] + size_UU
        begins.append(split_UU.argmin(0))
        best_U = split_UU.min(0)
    ends = [U - 1]
    for begin_U in reversed(begins):
        ends.append(begin_U[ends[-1]] - 1)
    return tuple(steps_U[ends[::-1]].tolist())


def split_by_length(batch: Batch, bounds: Sequence[int], target_per: str) -> tuple[Batch, ...]:
    """The rows of a batch in parts of a length each, in the order of the bounds; parts without rows are left out.

    What lies past a part's length is padding and is cut; targets that are sequences of their own are cut behind the
    part's longest. A row that is longer than all bounds goes to a part as long as the batch.
    """
    rows = jax.tree.map(np.asarray, batch)
    T = rows.inputs.shape[1]
    lengths_B = np.full(len(rows.inputs), T) if rows.lengths is None else rows.lengths
    bounds = tuple(bound for bound in bounds if bound < T)
    part_B = np.searchsorted(np.asarray(bounds, np.int64), lengths_B)
    return tuple(
        _cut(jax.tree.map(lambda leaf, k=k: leaf[part_B == k], rows), bound, target_per)
        for k, bound in enumerate((*bounds, T))
        if (part_B == k).any()
    )


def _cut(rows: Batch, length: int, target_per: str) -> Batch:
    last = {"row": None, "step": length, "sequence": 0}[target_per]
    if target_per == "sequence":
        told_T = (rows.weights != 0).any(0)
        last = max(1, int(told_T.nonzero()[0].max(initial=0)) + 1)
    inputs = rows.inputs[:, :length]
    if last is None:
        return dataclasses.replace(rows, inputs=inputs)
    return dataclasses.replace(rows, inputs=inputs, targets=rows.targets[:, :last], weights=rows.weights[:, :last])
