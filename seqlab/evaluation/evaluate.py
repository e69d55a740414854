"""Measure a model on a fixed set."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.types import Array, Batch, Params, Sums, Task

Apply = Callable[[Params, Batch], Array]


def evaluate_set(apply: Apply, task: Task, params: Params, batch: Batch, batch_size: int) -> Sums:
    """Sum the loss and the metrics over a whole set, `batch_size` rows at a time.

    Rows of weight 0 and length 0 fill the last batch, so that all are of one size and the sums depend on it only in
    rounding. Jittable (`apply`, `task` and `batch_size` static) and vmappable over the parameters of replicas.
    """
    n_rows = batch.inputs.shape[0]
    batch_size = min(batch_size, n_rows)
    n_batches = -(-n_rows // batch_size)
    n_filling = n_batches * batch_size - n_rows

    def split(a: Array) -> Array:
        filled = jnp.pad(a, [(0, n_filling)] + [(0, 0)] * (a.ndim - 1))
        return filled.reshape(n_batches, batch_size, *a.shape[1:])

    def measure(part: Batch) -> Sums:
        return task.measure(apply(params, part), part)

    return jax.tree.map(lambda parts: parts.sum(0), jax.lax.map(measure, jax.tree.map(split, batch)))


def finalise(sums: Sums) -> dict[str, Array]:
    """Divide each total by its weight; a metric that met no weight is NaN.

    A perplexity is summed as its logarithm, so it is exp(total / weight).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        means: dict[str, Any] = {name: total / weight for name, (total, weight) in sums.items()}
        if "perplexity" in means:
            means["perplexity"] = np.exp(means["perplexity"])
        return means
