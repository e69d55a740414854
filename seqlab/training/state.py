"""The state of training: everything that a step changes, and so everything that a checkpoint holds."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from seqlab.types import Array, Batch, Params, Sums

# What a key is for. Keys are derived from (seed, purpose, step) and never stored.
INIT, DATA, DROPOUT = range(3)


@struct.dataclass
class State:
    """One replica's state; in a run every leaf has a leading replica axis R.

    step           updates tried so far, skipped ones included: the step that comes next
    seed           the replica's seed
    params, opt_state, ema (the moving average of the parameters, None when off)
    sums           loss, metrics and diagnostics since the last training event, as (total, weight)
    learning_rate  the rate that the last update applied
    skipped        updates skipped because the loss or a gradient was not finite
    skipped_run    how many of those came in a row up to now
    carry          the model's state after each row's last window, of a task that goes on (`sample_at`); else None
    """

    step: Array
    seed: Array
    params: Params
    opt_state: Any
    ema: Params | None
    sums: Sums
    learning_rate: Array
    skipped: Array
    skipped_run: Array
    carry: Any

    @property
    def eval_params(self) -> Params:
        """The parameters to measure: the moving average where there is one."""
        return self.params if self.ema is None else self.ema


def derive_key(seed: Array, purpose: int, step: Array | int = 0) -> Array:
    """The key for `purpose` at `step`: fold_in(fold_in(key(seed), purpose), step)."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), step)


def cast_floats(tree: Any, dtype: Any) -> Any:
    """The same tree with every floating-point leaf in `dtype`."""

    def cast(leaf: Array) -> Array:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def clear(sums: Sums) -> Sums:
    """The same sums, empty."""
    return jax.tree.map(jnp.zeros_like, sums)


def count_tokens(batch: Batch) -> Array:
    """How many steps of the batch's rows are real; a picture is one."""
    if batch.lengths is None:
        is_picture = batch.inputs.ndim == 4
        return jnp.float32(batch.inputs.shape[0] * (1 if is_picture else batch.inputs.shape[1]))
    return batch.lengths.sum().astype(jnp.float32)
