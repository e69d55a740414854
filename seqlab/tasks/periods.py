"""Two superposed periods: what comes next?"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import draw_evaluation_sets
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class Periods:
    """Say the next value of a series that is the sum of two periodic ones.

        x_t = u_{t mod p} + v_{t mod q},   u, v ~ normal(0, ½), anew in each row
        target_t = x_{t+1}                 where t + 1 ≥ p + q; the steps before have no target

    From there on the past determines it: x_t = x_{t−p} + x_{t−q} − x_{t−p−q}. At best: loss 0.

    Baseline always 0; its loss is about 1, the variance of x.
    Shapes   inputs_BT1, targets_BT; outputs_BT1.
    Metrics  loss (squared error), absolute_error, within_0.1 (the fraction whose absolute error is below 0.1).
    Raises   UserError for periods below 1 or with a common divisor, a length of no more than p + q − 1, n_eval < 1.
    """

    length: int = 40
    first_period: int = 2
    second_period: int = 5
    n_eval: int = 1024
    vocab_size: ClassVar[None] = None
    d_input: ClassVar[int] = 1
    n_outputs: ClassVar[int] = 1
    target_per: ClassVar[str] = "step"
    baseline: ClassVar[str] = "always 0"
    length_fields: ClassVar[tuple[str, ...]] = ("length",)

    def __post_init__(self) -> None:
        for size in ("length", "first_period", "second_period", "n_eval"):
            require_size("periods", size, getattr(self, size), 1)
        p, q = self.first_period, self.second_period
        require(
            math.gcd(p, q) == 1,
            f"periods has first_period {p} and second_period {q}; expected numbers without a common divisor.",
        )
        require(
            self.length >= p + q,
            f"periods has length {self.length}; expected at least {p + q}, the sum of the periods.",
        )

    def sample(self, key: Array, batch_size: int) -> Batch:
        p, q, T = self.first_period, self.second_period, self.length
        key_u, key_v = jax.random.split(key)
        u_BP = jax.random.normal(key_u, (batch_size, p)) / math.sqrt(2)
        v_BQ = jax.random.normal(key_v, (batch_size, q)) / math.sqrt(2)
        t = jnp.arange(T + 1)
        x_BT = u_BP[:, t % p] + v_BQ[:, t % q]
        weights_T = (t[1:] >= p + q).astype(jnp.float32)
        weights_BT = jnp.broadcast_to(weights_T, (batch_size, T))
        return Batch(inputs=x_BT[:, :-1, None], lengths=None, targets=x_BT[:, 1:], weights=weights_BT)

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        told = outputs[..., 0], batch.targets, batch.weights
        return {
            "loss": objectives.squared_error(*told),
            "absolute_error": objectives.absolute_error(*told),
            "within_0.1": objectives.within(*told, 0.1),
        }

    def solve(self, batch: Batch) -> Array:
        def ago(n: int) -> Array:
            return jnp.roll(batch.inputs, n - 1, axis=1)

        p, q = self.first_period, self.second_period
        return ago(p) + ago(q) - ago(p + q)

    def guess(self, batch: Batch) -> Array:
        return jnp.zeros_like(batch.inputs)
