"""Copy the first token."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class CopyFirst:
    """Remember the first token over a stretch of zeros and name it at the end.

        x_1 ~ uniform{1 … V−1},   x_2 … x_T = 0,   target = x_1

    A model without memory guesses: accuracy 1/(V−1), loss ln(V−1). At best: accuracy 1, loss 0.

    Shapes   inputs_BT, targets_B; logits_BV.
    Metrics  loss (cross-entropy), accuracy.
    Raises   UserError for length < 1, vocab_size < 2, n_eval < 1.
    """

    length: int = 50
    vocab_size: int = 10
    n_eval: int = 1024
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "row"
    length_fields: ClassVar[tuple[str, ...]] = ("length",)

    def __post_init__(self) -> None:
        require_size("copy_first", "length", self.length, 1)
        require_size("copy_first", "vocab_size", self.vocab_size, 2, ", the zero and a token to remember")
        require_size("copy_first", "n_eval", self.n_eval, 1)

    @property
    def n_outputs(self) -> int:
        return self.vocab_size

    def sample(self, key: Array, batch_size: int) -> Batch:
        first_B = jax.random.randint(key, (batch_size,), 1, self.vocab_size)
        inputs_BT = jnp.zeros((batch_size, self.length), jnp.int32).at[:, 0].set(first_B)
        return Batch(inputs=inputs_BT, lengths=None, targets=first_B, weights=jnp.ones(batch_size))

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return {
            "loss": objectives.cross_entropy(outputs, batch.targets, batch.weights),
            "accuracy": objectives.accuracy(outputs, batch.targets, batch.weights),
        }

    def solve(self, batch: Batch) -> Array:
        return LARGE * jax.nn.one_hot(batch.inputs[:, 0], self.n_outputs)
