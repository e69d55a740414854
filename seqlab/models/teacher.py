"""Scheduled sampling: how often a decoder that learns is told the target, and not what it said itself."""

import dataclasses
import math

import jax.numpy as jnp

from seqlab.types import Array, require


@dataclasses.dataclass(frozen=True)
class Always:
    """The target at every step, ε = 1: teacher forcing.

    Source   Williams & Zipser 1989, Neural Computation 1.
    """


@dataclasses.dataclass(frozen=True)
class Linear:
    """ε = max(least, 1 − s / steps)

    Raises   UserError for steps < 1 and for a least outside [0, 1].
    Source   Bengio et al. 2015, arXiv:1506.03099, §2.4.
    """

    steps: int
    least: float = 0.0

    def __post_init__(self) -> None:
        _require_from("linear", "steps", self.steps, 1)
        require(0 <= self.least <= 1, f"teacher linear has least {self.least!r}; expected a probability.")

    def __call__(self, step: Array) -> Array:
        return jnp.maximum(self.least, 1 - step / self.steps)


@dataclasses.dataclass(frozen=True)
class Exponential:
    """ε = k^s

    Raises   UserError for a k outside (0, 1).
    Source   Bengio et al. 2015, arXiv:1506.03099, §2.4.
    """

    k: float

    def __post_init__(self) -> None:
        require(0 < self.k < 1, f"teacher exponential has k {self.k!r}; expected a number between 0 and 1.")

    def __call__(self, step: Array) -> Array:
        return jnp.exp(math.log(self.k) * step)


@dataclasses.dataclass(frozen=True)
class InverseSigmoid:
    """ε = k / (k + exp(s / k))

    Raises   UserError for a k below 1.
    Source   Bengio et al. 2015, arXiv:1506.03099, §2.4.
    """

    k: float

    def __post_init__(self) -> None:
        _require_from("inverse_sigmoid", "k", self.k, 1)

    def __call__(self, step: Array) -> Array:
        # 1 / (1 + exp(s/k − ln k)), which does not overflow.
        return 1 / (1 + jnp.exp(jnp.minimum(step / self.k - math.log(self.k), 80.0)))


def _require_from(name: str, field: str, value: float, least: float) -> None:
    require(value >= least, f"teacher {name} has {field} {value!r}; expected at least {least}.")
