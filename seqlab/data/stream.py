"""Batches read from records while training goes on, by Grain: for what does not fit into memory."""

import functools
from collections.abc import Callable, Iterator

import grain
import jax
import numpy as np
from absl import flags

from seqlab.data.records import Chosen, Records
from seqlab.types import Batch

N_AHEAD = 4
"""Batches that are read before they are asked for."""


def stream_batches(
    records: Records,
    encode: Callable[[Records], Batch],
    *,
    seed: int,
    step: int,
    batch_size: int,
    n_workers: int | None,
    rows: slice = slice(None),
) -> Iterator[Batch]:
    """The batches from an update on, each example once an epoch, in an order of (seed, epoch) alone.

    `n_workers` processes read and encode, or with None threads of this one. Neither changes what comes. Of each batch
    the `rows` alone are read.
    """
    batches = (
        grain.MapDataset.range(len(records))
        # Grain adds the epoch to the seed: neighbouring seeds would go through the same orders.
        .shuffle(int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1)
        .batch(batch_size, drop_remainder=False)
        .repeat()
        .slice(slice(step, None))
        .map(functools.partial(_read, records, encode, rows))
    )
    reading = grain.ReadOptions(num_threads=1 if n_workers else N_AHEAD, prefetch_buffer_size=N_AHEAD)
    stream = batches.to_iter_dataset(reading)
    if n_workers:
        if not flags.FLAGS.is_parsed():  # Workers are told of the flags, which a program without absl never parses.
            flags.FLAGS.mark_as_parsed()
        stream = stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=n_workers))
    return _copied(iter(stream)) if n_workers else iter(stream)


def _copied(stream: grain.DatasetIterator) -> Iterator[Batch]:
    """The batches out of the memory that is shared with the processes which read them.

    Each of its pieces is let go of by a thread once nobody holds it; one that the last batch held until the program
    ended would be told as leaked.
    """
    try:
        while True:
            yield jax.tree.map(np.array, next(stream))
    finally:
        stream.close()


def _read(records: Records, encode: Callable[[Records], Batch], rows: slice, numbers_B: np.ndarray) -> Batch:
    if own := Chosen(records, numbers_B[rows])[:]:
        return encode(own)
    # An epoch's last batch may end before these rows: they are filled, with weight 0.
    return jax.tree.map(np.zeros_like, encode(Chosen(records, numbers_B[:1])[:]))
