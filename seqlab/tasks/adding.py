"""The adding problem."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import draw_evaluation_sets
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class Adding:
    """Add the two marked numbers of a row.

        x_t = (u_t, m_t),  u_t ~ uniform[0, 1),  m_t = 1 at one step of the first half and one of the second, else 0
        target = Σ_t m_t u_t

    At best: loss 0.

    Baseline always 1; its loss is about 1/6, the variance of the sum of two uniform numbers.
    Shapes   inputs_BTD with D = 2, targets_B; outputs_BV with V = 1.
    Metrics  loss (squared error), absolute_error, within_0.04 (the fraction whose absolute error is below 0.04).
    Raises   UserError for length < 2, n_eval < 1.
    Source   Le, Jaitly & Hinton 2015, arXiv:1504.00941, section 4.1, and Arjovsky, Shah & Bengio 2016,
             arXiv:1511.06464, section 5.2; after Hochreiter & Schmidhuber 1997, section 5.4.
    Differs  from 1997, where numbers are drawn from [−1, 1], lengths vary, the ends are marked by −1 and the target is
             0.5 + (x_1 + x_2)/4, half of ours in scale: the tolerance 0.04 of that paper is twice as strict here.
    """

    length: int = 100
    n_eval: int = 1024
    vocab_size: ClassVar[None] = None
    d_input: ClassVar[int] = 2
    n_outputs: ClassVar[int] = 1
    target_per: ClassVar[str] = "row"
    baseline: ClassVar[str] = "always 1"
    length_fields: ClassVar[tuple[str, ...]] = ("length",)

    def __post_init__(self) -> None:
        require_size("adding", "length", self.length, 2, ", a step for each number")
        require_size("adding", "n_eval", self.n_eval, 1)

    def sample(self, key: Array, batch_size: int) -> Batch:
        key_u, key_first, key_second = jax.random.split(key, 3)
        half = self.length // 2
        u_BT = jax.random.uniform(key_u, (batch_size, self.length))
        first_B = jax.random.randint(key_first, (batch_size,), 0, half)
        second_B = jax.random.randint(key_second, (batch_size,), half, self.length)
        m_BT = jax.nn.one_hot(first_B, self.length) + jax.nn.one_hot(second_B, self.length)
        rows_B = jnp.arange(batch_size)
        targets_B = u_BT[rows_B, first_B] + u_BT[rows_B, second_B]
        inputs_BTD = jnp.stack([u_BT, m_BT], axis=-1)
        return Batch(inputs=inputs_BTD, lengths=None, targets=targets_B, weights=jnp.ones(batch_size))

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        y_B = outputs[:, 0]
        return {
            "loss": objectives.squared_error(y_B, batch.targets, batch.weights),
            "absolute_error": objectives.absolute_error(y_B, batch.targets, batch.weights),
            "within_0.04": objectives.within(y_B, batch.targets, batch.weights, 0.04),
        }

    def solve(self, batch: Batch) -> Array:
        return batch.inputs.prod(-1).sum(1, keepdims=True)

    def guess(self, batch: Batch) -> Array:
        return jnp.ones((len(batch.inputs), 1))
