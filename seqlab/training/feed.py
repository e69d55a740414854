"""Batches that come from outside of the compiled program, one of them ahead of the step that takes it."""

import time
from collections.abc import Callable, Iterator

import jax
from jax.sharding import Sharding

from seqlab.training.hosts import hold_part, own_rows
from seqlab.types import Batch


class Feed:
    """The batches of the updates in a row, on their devices.

    `shapes` is what they all look like, as the example does. A stream is opened at a step, for the rows of each batch
    that this host's devices hold. `seconds` counts how long the program has waited for them: a stream that is ahead
    costs next to nothing.
    """

    def __init__(
        self, open_stream: Callable[[int, slice], Iterator[Batch]], example: Batch, sharding: Sharding
    ) -> None:
        self.seconds = 0.0
        self._open, self._sharding = open_stream, sharding
        self._rows = own_rows(sharding, len(example.inputs))
        self._stream: Iterator[Batch] | None = None
        self._next_step = -1
        self._ahead: Batch | None = None
        self.shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), example
        )

    def take(self, step: int) -> Batch:
        """The batch of an update; one that does not follow the last opens the stream there."""
        if self._stream is None or step != self._next_step:
            self.close()
            self._stream, self._next_step, self._ahead = self._open(step, self._rows), step, None
        batch = self._fetch() if self._ahead is None else self._ahead
        self._next_step, self._ahead = step + 1, None
        return batch

    def look_ahead(self) -> None:
        """Fetch the next batch, to be called while the devices are at work."""
        self._ahead = self._fetch()

    def close(self) -> None:
        """Let go of the stream, and of the processes that read for it."""
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()
        self._stream = self._ahead = None

    def _fetch(self) -> Batch:
        assert self._stream is not None
        began = time.perf_counter()
        batch = next(self._stream)
        self.seconds += time.perf_counter() - began
        return hold_part(batch, self.shapes, self._rows, self._sharding)
