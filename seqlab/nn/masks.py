"""Masks, derived from lengths: True = may be looked at."""

import jax.numpy as jnp

from seqlab.types import Array


def valid_mask(lengths_B: Array | None, n_steps: int) -> Array:
    """Mark the steps before each row's length.

    mask_bt = t < length_b

    Shapes   lengths_B -> mask_BT with T = `n_steps`; `None` (every row full) -> a mask_1T of True, to broadcast.
    """
    if lengths_B is None:
        return jnp.ones((1, n_steps), bool)
    return jnp.arange(n_steps) < lengths_B[:, None]
