"""Measure a model on a fixed set."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.types import Array, Batch, Params, Sums


def evaluate_set(
    measure: Callable[[Params, Batch], Sums], params: Params, batch: Batch, batch_size: int, multiple_of: int = 1
) -> Sums:
    """Sum the loss and the metrics over a whole set, `batch_size` rows at a time.

    Rows of weight 0 and length 0 fill the last batch, so that all are of one size, rounded up to a multiple of
    `multiple_of`, and the sums depend on it only in rounding. Jittable (`measure` and the sizes static) and vmappable
    over the parameters of replicas.
    """
    n_rows = batch.inputs.shape[0]
    batch_size = -(-min(batch_size, n_rows) // multiple_of) * multiple_of
    n_batches = -(-n_rows // batch_size)
    n_filling = n_batches * batch_size - n_rows

    def split(a: Array) -> Array:
        filled = jnp.pad(a, [(0, n_filling)] + [(0, 0)] * (a.ndim - 1))
        return filled.reshape(n_batches, batch_size, *a.shape[1:])

    parts = jax.lax.map(lambda part: measure(params, part), jax.tree.map(split, batch))
    return jax.tree.map(lambda part: part.sum(0), parts)


def finalise(sums: Sums) -> dict[str, Array]:
    """Divide each total by its weight; a metric that met no weight is NaN.

    A perplexity, whatever else its name says, is summed as its logarithm, so it is exp(total / weight).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        means: dict[str, Any] = {name: total / weight for name, (total, weight) in sums.items()}
        return {name: np.exp(mean) if name.startswith("perplexity") else mean for name, mean in means.items()}
