"""Schedules: the factor in [0, 1] by which the learning rate is multiplied at each step.

Steps count from 0. Every schedule opens with a linear warm-up over W = `warmup_steps` updates,

    factor(s) = (s + 1) / W        s < W

so that the first update already moves (by 1/W) and update W − 1 has the full rate. What follows is a function of
k = s − W, the updates since the warm-up; a decay reaches its final value at step `steps`, one past the last update,
so that no update is spent on the final value itself (0 by default). Beyond `steps` the final value stays.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from seqlab.types import Array, require

Schedule = Callable[[Array], Array]


def constant(warmup_steps: int = 0) -> Schedule:
    """The full learning rate once warmed up.

    factor = 1
    """
    return _after_warmup(warmup_steps, optax.constant_schedule(1.0))


def cosine(steps: int, warmup_steps: int = 0, final: float = 0.0) -> Schedule:
    """Half a period of the cosine, from 1 at k = 0 down to `final` at step `steps`.

        factor = final + (1 − final) ½ (1 + cos(π k / (steps − W)))

    Source   Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5.
    """
    decay_steps = _steps_after_warmup(steps, warmup_steps)
    _require_fraction("final", final)
    return _after_warmup(warmup_steps, optax.cosine_decay_schedule(1.0, decay_steps, alpha=final))


def linear(steps: int, warmup_steps: int = 0, final: float = 0.0) -> Schedule:
    """A straight line from 1 at k = 0 down to `final` at step `steps`.

    factor = final + (1 − final) (1 − k / (steps − W))
    """
    decay_steps = _steps_after_warmup(steps, warmup_steps)
    _require_fraction("final", final)
    return _after_warmup(warmup_steps, optax.linear_schedule(1.0, final, decay_steps))


def inverse_sqrt(warmup_steps: int) -> Schedule:
    """The inverse square root of the number of updates; it knows no end.

        factor = √(W / (s + 1))

    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 3, scaled so that the warm-up ends at 1.
    """
    require(warmup_steps >= 1, f"warmup_steps={warmup_steps} should be at least 1: the inverse root is scaled by it.")
    return _after_warmup(warmup_steps, lambda k: jnp.sqrt(warmup_steps / (jnp.maximum(k, 0) + warmup_steps + 1)))


def wsd(steps: int, warmup_steps: int = 0, decay_fraction: float = 0.2, final: float = 0.0) -> Schedule:
    """Warm-up, stable, decay: the full rate until the last `decay_fraction` of all steps, then a line to `final`.

        factor = 1                                      s < steps − D,   D = round(decay_fraction · steps)
               = final + (1 − final) (steps − s) / D    after

    Source   Hägele et al. 2024, arXiv:2405.18392, section 3.
    """
    _require_fraction("decay_fraction", decay_fraction)
    _require_fraction("final", final)
    decay_steps = round(decay_fraction * steps)
    stable_steps = _steps_after_warmup(steps, warmup_steps) - decay_steps
    require(
        stable_steps >= 0,
        f"warmup_steps={warmup_steps} and a decay of {decay_steps} steps (decay_fraction={decay_fraction}) "
        f"do not fit into steps={steps}.",
    )
    return _after_warmup(warmup_steps, optax.linear_schedule(1.0, final, decay_steps, transition_begin=stable_steps))


def _after_warmup(warmup_steps: int, after: optax.Schedule) -> Schedule:
    require(warmup_steps >= 0, f"warmup_steps={warmup_steps} should be zero or positive.")

    def factor(step: Array) -> Array:
        warming = (step + 1) / max(warmup_steps, 1)
        factor = jnp.where(step < warmup_steps, warming, after(step - warmup_steps)).astype(jnp.float32)
        return jnp.clip(factor, 0.0, 1.0)  # the last value of optax's line is a rounding error off its end

    return factor


def _steps_after_warmup(steps: int, warmup_steps: int) -> int:
    require(steps >= 1, f"steps={steps} should be at least 1.")
    require(
        warmup_steps < steps,
        f"warmup_steps={warmup_steps} should be below steps={steps}, the training with its warm-up.",
    )
    return steps - warmup_steps


def _require_fraction(name: str, value: float) -> None:
    require(0 <= value <= 1, f"{name}={value} should lie between 0 and 1.")
