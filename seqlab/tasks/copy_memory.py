"""The copying memory problem."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class CopyMemory:
    """Remember n symbols over a delay and write them in order once the delimiter has been read.

        inputs    s_1 … s_n   (delay − 1) × blank   delimiter   n × blank
        targets   (delay + n) × blank                           s_1 … s_n

    The ids 0 … V−3 are data, V−2 is the blank, V−1 the delimiter, which is never a target; T = delay + 2n.
    At best: loss 0.

    Baseline no memory: blank until the delimiter, then each symbol as likely as any. With the sizes of the paper
             (V = 10, n = 10) its loss is 10 ln 8 / (delay + 20), in general n ln(V−2) / (delay + 2n).
    Shapes   inputs_BT, targets_BT; logits_BTV.
    Metrics  loss (cross-entropy over all steps, as in the paper); accuracy and sequence_accuracy of the n recalled.
    Raises   UserError for n_symbols < 1, delay < 1, vocab_size < 3, n_eval < 1.
    Source   Arjovsky, Shah & Bengio 2016, arXiv:1511.06464, section 5.1; after Hochreiter & Schmidhuber 1997.
    """

    n_symbols: int = 10
    delay: int = 100
    vocab_size: int = 10
    n_eval: int = 1024
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "step"
    baseline: ClassVar[str] = "no memory"
    length_fields: ClassVar[tuple[str, ...]] = ("delay",)

    def __post_init__(self) -> None:
        require_size("copy_memory", "n_symbols", self.n_symbols, 1)
        require_size("copy_memory", "delay", self.delay, 1)
        require_size("copy_memory", "vocab_size", self.vocab_size, 3, ", a symbol, the blank and the delimiter")
        require_size("copy_memory", "n_eval", self.n_eval, 1)

    @property
    def n_outputs(self) -> int:
        return self.vocab_size - 1

    @property
    def blank(self) -> int:
        return self.vocab_size - 2

    @property
    def delimiter(self) -> int:
        return self.vocab_size - 1

    def sample(self, key: Array, batch_size: int) -> Batch:
        n, delay = self.n_symbols, self.delay
        symbols_BT = jax.random.randint(key, (batch_size, n), 0, self.blank)
        blanks_BT = jnp.full((batch_size, delay + n), self.blank)
        inputs_BT = jnp.concatenate([symbols_BT, blanks_BT.at[:, delay - 1].set(self.delimiter)], axis=1)
        targets_BT = jnp.concatenate([blanks_BT, symbols_BT], axis=1)
        return Batch(inputs=inputs_BT, lengths=None, targets=targets_BT, weights=jnp.ones(inputs_BT.shape))

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        recalled = slice(-self.n_symbols, None)
        logits, targets, weights = outputs[:, recalled], batch.targets[:, recalled], batch.weights[:, recalled]
        return {
            "loss": objectives.cross_entropy(outputs, batch.targets, batch.weights),
            "accuracy": objectives.accuracy(logits, targets, weights),
            "sequence_accuracy": objectives.sequence_accuracy(logits, targets, weights),
        }

    def solve(self, batch: Batch) -> Array:
        n = self.n_symbols
        answers_BT = jnp.full_like(batch.inputs, self.blank).at[:, -n:].set(batch.inputs[:, :n])
        return LARGE * jax.nn.one_hot(answers_BT, self.n_outputs)

    def guess(self, batch: Batch) -> Array:
        T = batch.inputs.shape[1]
        recalled_T1 = jnp.arange(T)[:, None] >= T - self.n_symbols
        is_blank_V = jnp.arange(self.n_outputs) == self.blank
        return jnp.broadcast_to(
            jnp.where(recalled_T1 == is_blank_V, -LARGE, 0.0), (len(batch.inputs), T, self.n_outputs)
        )
