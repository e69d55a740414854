"""What the tasks share in which each token's target is the next one."""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.tasks.corpus import Corpus, log_bigrams, measure_next_token
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class NextToken(Corpus):
    """A text whose tokens are predicted from those before them: how that is measured, and a solver to compare with."""

    overlap: ClassVar[int] = 1
    targets_stand_ahead: ClassVar[bool] = True

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return measure_next_token(self.vocabulary, outputs, batch)

    def solve(self, batch: Batch) -> Array:
        """What the pairs of the training text say (`log_bigrams`), best among those that know the last token alone."""
        return jnp.asarray(self._log_bigrams_VV)[batch.inputs]

    @functools.cached_property
    def _log_bigrams_VV(self) -> np.ndarray:
        ids_N = self.ids["train"]
        return log_bigrams(ids_N[:-1], ids_N[1:], self.vocab_size)


def shift(windows_BT: Array, lengths_B: Array | None) -> Batch:
    """The one place where targets are shifted against inputs: each token's target is the next one."""
    inputs_BT, targets_BT = windows_BT[:, :-1], windows_BT[:, 1:]
    if lengths_B is None:
        return Batch(inputs_BT, None, targets_BT, jnp.ones(inputs_BT.shape))
    told_BT = jnp.arange(inputs_BT.shape[1]) < lengths_B[:, None]
    return Batch(jnp.where(told_BT, inputs_BT, 0), lengths_B, targets_BT, told_BT.astype(jnp.float32))
