"""Language modelling in both directions: the next token of a text, and the one before."""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.nn.masks import valid_mask
from seqlab.tasks import objectives
from seqlab.tasks.corpus import Corpus, log_bigrams
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class BidirectionalLanguageModel(Corpus):
    """Say of each token of a text which one comes next, and which one came before.

        window    x_0 … x_{L+1},  L + 2 tokens in a row of the text, L = `length`
        inputs    x_1 … x_L
        targets   (x_2, x_0) … (x_{L+1}, x_{L−1})
        loss      −(1/2L) Σ_t [ln p→(x_{t+1} | x_1 … x_t) + ln p←(x_{t−1} | x_t … x_L)]

    The tokens at both ends of a window are only told, so that each input has both targets. Windows are those of
    `Corpus` and share two tokens, so that each token of the validation or test piece is told once by each direction,
    but for two at one end of the piece, from the tokens of its window alone.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT2; outputs_BT2V with V logits of the next
             token, then V of the one before.
    Metrics  loss (nats a token), perplexity_forward and perplexity_backward.
    Raises   UserError as `Corpus`.
    Source   Peters et al. 2018, arXiv:1802.05365, §3.1.
    Differs  Peters et al. maximise the sum of both log likelihoods, twice the mean that is minimised here.
    """

    owner: ClassVar[str] = "bidirectional_language_model"
    overlap: ClassVar[int] = 2

    @property
    def n_outputs(self) -> int:
        return 2 * self.vocabulary.size

    def sample(self, key: Array, batch_size: int) -> Batch:
        return self._split(self.draw_windows(key, batch_size), None)

    def evaluation_sets(self) -> dict[str, Batch]:
        return {name: self._split(*self.cut_windows(name)) for name in ("validation", "test")}

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        ahead_BTV, back_BTV = jnp.split(outputs, 2, -1)
        ahead, n_tokens = objectives.cross_entropy(ahead_BTV, batch.targets[..., 0], batch.weights)
        back, _ = objectives.cross_entropy(back_BTV, batch.targets[..., 1], batch.weights)
        loss = (ahead + back) / 2
        perplexities = {"perplexity_forward": (ahead, n_tokens), "perplexity_backward": (back, n_tokens)}
        return {"loss": (loss, n_tokens), **perplexities}

    def solve(self, batch: Batch) -> Array:
        """What the pairs of the training text say, best among those that know the one token alone (`log_bigrams`)."""
        return jnp.asarray(self._log_bigrams_V2V)[batch.inputs]

    @functools.cached_property
    def _log_bigrams_V2V(self) -> np.ndarray:
        V, ids_N = self.vocabulary.size, self.ids["train"]
        ahead_VV, back_VV = log_bigrams(ids_N[:-1], ids_N[1:], V), log_bigrams(ids_N[1:], ids_N[:-1], V)
        return np.concatenate([ahead_VV, back_VV], 1)

    def _split(self, windows_BT: Array, lengths_B: Array | None) -> Batch:
        """The one place where targets are shifted against inputs."""
        inputs_BT, targets_BT2 = windows_BT[:, 1:-1], jnp.stack([windows_BT[:, 2:], windows_BT[:, :-2]], -1)
        real_BT = jnp.broadcast_to(valid_mask(lengths_B, self.length), inputs_BT.shape)
        return Batch(jnp.where(real_BT, inputs_BT, 0), lengths_B, targets_BT2, real_BT.astype(jnp.float32))
