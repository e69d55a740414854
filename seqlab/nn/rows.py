"""The rows of a batch, its sequences: each draws its own random numbers, wherever it is computed."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.types import Array

AXIS = "data"  # the mesh axis that rows are spread over


def row_keys(key: Array, n_rows: int) -> Array:
    """Derive a key for each row from its place in the whole batch.

    Where a device works on its own rows alone (`shard_map` over the data axis), those rows have the keys that they
    have where one device works on all.

    Shapes   -> keys_B with B = `n_rows`, the rows of this device.
    """
    spread = AXIS in jax.sharding.get_abstract_mesh().manual_axes
    first = lax.axis_index(AXIS) * n_rows if spread else 0
    return jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(n_rows))
