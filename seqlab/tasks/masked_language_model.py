"""Masked language modelling: the tokens that are hidden in a text."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.nn.masks import valid_mask
from seqlab.tasks import objectives
from seqlab.tasks.corpus import Corpus, log_bigrams
from seqlab.tasks.drawing import evaluation_keys
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModel(Corpus):
    """Say which tokens were chosen in a window of a text, most of which the model does not see.

        window    x_0 … x_{L−1},  L tokens in a row of the text, L = `length`
        chosen    each token with probability `rate`, by itself: a row may have none, and then it counts for nothing
        inputs    of a chosen token: with probability `masked` the mask id, with `random` any of the V tokens, each as
                  likely, else x_t; of the others x_t
        targets   x_0 … x_{L−1}
        loss      the mean of −ln p(x_t | inputs) over the chosen t

    The mask is one id more than the text has: `vocab_size` is V + 1, `n_outputs` V. Windows are those of `Corpus`; each
    batch of training is chosen anew, while the validation and the test set are the same in every run.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT, weights_BT: 1 for the chosen;
             logits_BTV.
    Metrics  loss (cross-entropy, nats a chosen token), perplexity e^loss, accuracy of the chosen.
    Raises   UserError as `Corpus`, for a rate outside (0, 1], and for shares that are negative or exceed 1 together.
    Source   Devlin, Chang, Lee, Toutanova 2019, arXiv:1810.04805, §3.1, task 1.
    Differs  There are no pairs of sentences, and no token is exempt.
    """

    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    owner: ClassVar[str] = "masked_language_model"

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, f"{self.owner} has rate {self.rate!r}; expected more than 0 and at most 1.")
        require(
            min(self.masked, self.random) >= 0 and self.masked + self.random <= 1 + 1e-9,
            f"{self.owner} has masked {self.masked!r} and random {self.random!r}; expected shares from 0 on that "
            "exceed 1 not even together.",
        )
        super().__post_init__()

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size + 1

    @property
    def mask(self) -> int:
        return self.vocabulary.size

    def sample(self, key: Array, batch_size: int) -> Batch:
        windows, hiding = jax.random.split(key)
        return self._hide(hiding, self.draw_windows(windows, batch_size), None)

    def evaluation_sets(self) -> dict[str, Batch]:
        hide = jax.jit(self._hide)
        return {name: hide(key, *self.cut_windows(name)) for name, key in evaluation_keys().items()}

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        told = outputs, batch.targets, batch.weights
        loss = objectives.cross_entropy(*told)
        return {"loss": loss, "perplexity": loss, "accuracy": objectives.accuracy(*told)}

    def solve(self, batch: Batch) -> Array:
        """What a token's neighbours and its own input say: p(x | l, r, i) ∝ p(x | l) p(x | r) / q_x · p(i | x).

        Neighbours are taken as they stand in the inputs; one that is masked, or not there, says nothing (q). Best where
        the text is a Markov chain of pairs, `log_bigrams` its probabilities, and no neighbour was replaced.
        """
        inputs_BT, mask = batch.inputs, self.mask
        inputs_BT = jnp.where(valid_mask(batch.lengths, self.length), inputs_BT, mask)
        edge_B1 = jnp.full((len(inputs_BT), 1), mask)
        before_BT = jnp.concatenate([edge_B1, inputs_BT[:, :-1]], 1)
        after_BT = jnp.concatenate([inputs_BT[:, 1:], edge_B1], 1)
        before_MV, after_MV, itself_MV = map(jnp.asarray, self._tables)
        return before_MV[before_BT] + after_MV[after_BT] + itself_MV[inputs_BT]

    @functools.cached_property
    def _tables(self) -> tuple[np.ndarray, ...]:
        """ln p(x | l), ln p(x | r) / q_x and ln p(i | x), each with a row for the mask."""
        V, ids_N = self.vocabulary.size, self.ids["train"]
        q_1V = np.log((np.bincount(ids_N, minlength=V) + 1) / (len(ids_N) + V))[None]
        before_MV = np.concatenate([log_bigrams(ids_N[:-1], ids_N[1:], V), q_1V])
        after_MV = np.concatenate([log_bigrams(ids_N[1:], ids_N[:-1], V), q_1V]) - q_1V
        kept = 1 - self.masked - self.random
        itself_MV = np.concatenate([kept * np.eye(V) + self.random / V, np.full((1, V), self.masked)])
        tables = before_MV, after_MV, np.log(np.maximum(itself_MV, 1e-9))
        return tuple(table.astype(np.float32) for table in tables)

    def _hide(self, key: Array, windows_BT: Array, lengths_B: Array | None) -> Batch:
        choosing, showing, drawing = jax.random.split(key, 3)
        real_BT = valid_mask(lengths_B, self.length)
        chosen_BT = jax.random.bernoulli(choosing, self.rate, windows_BT.shape) & real_BT
        u_BT = jax.random.uniform(showing, windows_BT.shape)
        drawn_BT = jax.random.randint(drawing, windows_BT.shape, 0, self.vocabulary.size)
        shown_BT = jnp.where(u_BT < self.masked + self.random, drawn_BT, windows_BT)
        shown_BT = jnp.where(u_BT < self.masked, self.mask, shown_BT)
        inputs_BT = jnp.where(real_BT, jnp.where(chosen_BT, shown_BT, windows_BT), 0)
        return Batch(inputs_BT, lengths_B, windows_BT, chosen_BT.astype(jnp.float32))
