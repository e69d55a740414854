"""The rows of a batch at another length."""

import jax.numpy as jnp

from seqlab.types import Array, Batch, Task


def to_length(a: Array, T: int) -> Array:
    """The same along its second axis, repeated where it is shorter and cut where it is longer."""
    times = -(-T // a.shape[1])
    return jnp.tile(a, (1, times, *[1] * (a.ndim - 2)))[:, :T]


def resize(task: Task, batch: Batch, T: int) -> Batch:
    """The same rows, full and of length T; targets of steps and of sequences grow with them."""
    lengths = None if batch.lengths is None else jnp.full(len(batch.inputs), T, jnp.int32)
    batch = batch.replace(inputs=to_length(batch.inputs, T), lengths=lengths)  # type: ignore[attr-defined]
    if task.target_per == "row":
        return batch
    weights = jnp.ones_like(to_length(batch.weights, T))
    return batch.replace(targets=to_length(batch.targets, T), weights=weights)  # type: ignore[attr-defined]
