"""Dropout and zoneout, where each row draws its own masks (`rows.py`)."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.rows import row_keys
from seqlab.types import Array, require


def check_rate(name: str, rate: float) -> None:
    """Refuse a rate outside [0, 1)."""
    require(0 <= rate < 1, f"{name} is {rate}, but it must be at least 0 and below 1")


def dropout_mask(key: Array, rate: float, shape: tuple[int, ...]) -> Array:
    """Zero with probability `rate`, else 1 / (1 − rate), so that the mean is 1; the first axis is the rows."""
    kept = jax.vmap(partial(jax.random.bernoulli, p=1 - rate, shape=shape[1:]))(row_keys(key, shape[0]))
    return kept / jnp.float32(1 - rate)


class Dropout(nn.Module):
    """In training, drop each number with a probability, and scale what stays so that the mean stays too.

        y = m ⊙ x / (1 − rate)    m = 0 with probability `rate`, else 1

    `once_a_row`: one mask for all steps of a row.

    Shapes   x_B… -> the same; with `once_a_row` x_BTD.
    Source   Srivastava et al. 2014, JMLR 15; once a row: Gal & Ghahramani 2016, arXiv:1512.05287.
    Differs  Unlike Flax's, a row's mask does not depend on how many devices the rows are spread over.
    """

    rate: float
    once_a_row: bool = False

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        if not train or self.rate == 0:
            return x
        shape = (x.shape[0], 1, *x.shape[2:]) if self.once_a_row else x.shape
        mask = dropout_mask(self.make_rng("dropout"), self.rate, shape).astype(x.dtype)
        return jnp.where(mask > 0, x * mask, 0)


def zoneout_masks(key: Array, rate: float, n_steps: int, carry):
    """For each step and each unit of the carry, True with probability `rate`: the unit keeps its old value."""
    leaves, tree = jax.tree.flatten(carry)
    keys = jax.random.split(key, len(leaves))
    masks = [_row_masks(k, rate, n_steps, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, masks)


def _row_masks(key: Array, rate: float, n_steps: int, shape: tuple[int, ...]) -> Array:
    draw = partial(jax.random.bernoulli, p=rate, shape=(n_steps, *shape[1:]))
    return jax.vmap(draw, out_axes=1)(row_keys(key, shape[0]))


def zoneout_rates(rate: float, n_steps: int, carry):
    """The expectation of `zoneout_masks`."""
    return jax.tree.map(lambda leaf: jnp.full((n_steps,) + (1,) * leaf.ndim, rate, leaf.dtype), carry)
