"""Dropout masks for the recurrence; between layers it is Flax's own `Dropout`."""

import jax
import jax.numpy as jnp

from seqlab.types import Array, require


def check_rate(name: str, rate: float) -> None:
    """Refuse a rate outside [0, 1)."""
    require(0 <= rate < 1, f"{name} is {rate}, but it must be at least 0 and below 1")


def dropout_mask(key: Array, rate: float, shape: tuple[int, ...]) -> Array:
    """Zero with probability `rate`, else 1 / (1 − rate), so that the mean is 1."""
    return jax.random.bernoulli(key, 1 - rate, shape) / jnp.float32(1 - rate)


def zoneout_masks(key: Array, rate: float, n_steps: int, carry):
    """For each step and each unit of the carry, True with probability `rate`: the unit keeps its old value."""
    leaves, tree = jax.tree.flatten(carry)
    keys = jax.random.split(key, len(leaves))
    masks = [jax.random.bernoulli(k, rate, (n_steps, *leaf.shape)) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, masks)


def zoneout_rates(rate: float, n_steps: int, carry):
    """The expectation of `zoneout_masks`."""
    return jax.tree.map(lambda leaf: jnp.full((n_steps,) + (1,) * leaf.ndim, rate, leaf.dtype), carry)
