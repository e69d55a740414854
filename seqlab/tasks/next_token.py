"""What the tasks share in which each token's target is the next one."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.nn.masks import valid_mask
from seqlab.tasks import objectives
from seqlab.tasks.corpus import Corpus, log_bigrams
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class NextToken(Corpus):
    """A text whose tokens are predicted from those before them: how that is measured, and a solver to compare with."""

    overlap: ClassVar[int] = 1
    targets_stand_ahead: ClassVar[bool] = True

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        nats, n_tokens = objectives.cross_entropy(outputs, batch.targets, batch.weights)
        sums = {"loss": (nats, n_tokens), "perplexity": (nats, n_tokens)}
        starts_V = self.vocabulary.starts_character()
        if starts_V is not None:
            n_characters = jnp.sum(batch.weights * jnp.asarray(starts_V)[batch.targets])
            sums["bits_per_character"] = (nats / math.log(2), n_characters)
        return sums

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
    told_BT = valid_mask(lengths_B, inputs_BT.shape[1])
    return Batch(jnp.where(told_BT, inputs_BT, 0), lengths_B, targets_BT, told_BT.astype(jnp.float32))
