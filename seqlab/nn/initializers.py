"""Initialisers that Flax does not have."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from seqlab.types import Array, require

Initializer = Callable[..., Array]


def per_gate(init: Initializer, n_gates: int) -> Initializer:
    """Draw each gate's block of the last axis on its own, so that a stacked kernel starts as its gates would alone."""

    def draw(key: Array, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
        *rest, n_outputs = shape
        block = (*rest, n_outputs // n_gates)
        return jnp.concatenate([init(k, block, dtype) for k in jax.random.split(key, n_gates)], -1)

    return draw


def forget_bias(value: float) -> Initializer:
    """b_f = value, b_i = b_o = b_C = 0, in the order f, i, o, C of the LSTM's gates.

    Source   Gers et al. 2000; Jozefowicz et al. 2015, §2.3 (value 1).
    """

    def draw(key: Array, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
        return jnp.zeros((4, shape[0] // 4), dtype).at[0].set(value).reshape(shape)

    return draw


def chrono(t_max: int) -> Initializer:
    """b_f = log u with u ~ U[1, T_max − 1], b_i = −b_f, b_o = b_C = 0, in the order f, i, o, C of the LSTM's gates.

    A unit then remembers for about u steps: the memories cover the lags up to T_max.

    Raises   UserError unless t_max ≥ 3.
    Source   Tallec & Ollivier 2018, arXiv:1804.11188, eq. 16.
    """
    require(t_max >= 3, f"chrono is {t_max}, but the longest lag T_max must be at least 3")

    def draw(key: Array, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
        F = shape[0] // 4
        b_f = jnp.log(jax.random.uniform(key, (F,), dtype, 1.0, t_max - 1.0))
        return jnp.concatenate([b_f, -b_f, jnp.zeros(2 * F, dtype)])

    return draw
