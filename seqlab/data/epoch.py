"""An epoch over examples: which batch comes at which step, as a pure function of it."""

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.data.order import shuffle
from seqlab.types import Array, Batch

# The order of the shapes is the same for every seed, so that replicas that are computed together have one shape.
ORDER_OF_SHAPES = 0


class Turn(NamedTuple):
    """What comes at a step: the number of its epoch, which of the buckets, and which batch of it."""

    epoch: Array
    bucket: Array
    batch: Array


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The batches of an epoch: each bucket is cut into batches, and the batches of all of them come in a new order.

        n_steps = Σ_k ⌈n_k / B⌉          n_k rows in bucket k, `sizes`; B rows a batch

    Every example comes once an epoch; rows of length and weight 0 fill the last batch of a bucket.
    """

    sizes: tuple[int, ...]
    batch_size: int

    @property
    def starts(self) -> tuple[int, ...]:
        """How many batches stand before those of each bucket, and in all."""
        return (0, *itertools.accumulate(-(-size // self.batch_size) for size in self.sizes))

    @property
    def n_steps(self) -> int:
        return self.starts[-1]

    def turn(self, step: Array) -> Turn:
        """What comes at a step."""
        epoch, place = jnp.divmod(step, self.n_steps)
        place = shuffle(place[None], self.n_steps, jax.random.fold_in(jax.random.key(ORDER_OF_SHAPES), epoch))[0]
        starts = np.asarray(self.starts, np.int32)
        bucket = jnp.searchsorted(starts[1:-1], place, side="right")
        return Turn(epoch, bucket, place - jnp.asarray(starts)[bucket])

    def draw(self, bucket: int, examples: Batch, turn: Turn, key: Array) -> Batch:
        """The rows of a turn, in the order that the key gives the examples of this bucket in this epoch."""
        n = self.sizes[bucket]
        places_B = turn.batch * self.batch_size + jnp.arange(self.batch_size)
        real_B = places_B < n
        key = jax.random.fold_in(jax.random.fold_in(key, turn.epoch), bucket)
        rows_B = shuffle(jnp.minimum(places_B, n - 1), n, key)
        batch = jax.tree.map(lambda leaf: leaf[rows_B], examples)
        weights = jnp.where(real_B.reshape(-1, *[1] * (batch.weights.ndim - 1)), batch.weights, 0)
        lengths = None if batch.lengths is None else jnp.where(real_B, batch.lengths, 0)
        return batch.replace(lengths=lengths, weights=weights)
