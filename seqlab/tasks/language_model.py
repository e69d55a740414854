"""Language modelling: the next token of a text."""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.tasks.corpus import Corpus, log_bigrams, measure_next_token
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class LanguageModel(Corpus):
    """Say after each token of a text which one comes next.

        window    x_0 … x_L,  L + 1 tokens in a row of the text, L = `length`
        inputs    x_0 … x_{L−1}
        targets   x_1 … x_L
        loss      −(1/L) Σ_t ln p(x_t | x_0 … x_{t−1})

    Windows are those of `Corpus` and share their ends, so that each token but the first of the validation or test
    piece is predicted once, from the tokens of its window alone.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT; logits_BTV.
    Metrics  loss (cross-entropy, nats a token), perplexity e^loss; for char and byte bits_per_character.
    Raises   UserError as `Corpus`.
    Source   Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, §2.
    """

    owner: ClassVar[str] = "language_model"
    overlap: ClassVar[int] = 1

    def sample(self, key: Array, batch_size: int) -> Batch:
        return shift(self.draw_windows(key, batch_size), None)

    def evaluation_sets(self) -> dict[str, Batch]:
        return {name: shift(*self.cut_windows(name)) for name in ("validation", "test")}

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
