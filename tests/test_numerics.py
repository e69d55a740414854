"""XLA computes right on the CPU: what JAX 0.10.2 and newer get wrong, or die of, without the flag that seqlab sets."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="module")
def optimised():
    """Compile as users do: it is optimised programs that were wrong."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def test_flag_is_set_before_jax_starts():
    assert "--xla_cpu_experimental_ynn_fusion_type=" in os.environ["XLA_FLAGS"].split()


def test_sum_of_squares_of_a_mapped_product():
    # jax issue 39103: wrong past 32,768 rows in float32.
    x = jnp.zeros((32_769, 3)).at[:, 0].set(jnp.arange(32_769.0))
    squares = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(x)
    np.testing.assert_allclose(squares, np.arange(32_769.0) ** 2, rtol=1e-6)


def test_reduction_of_a_broadcast_product_of_rank_8():
    # jax issue 39257: crashes or hangs.
    obs, a = jnp.ones((10, 4, 6)), jnp.ones((10, 4, 6, 9, 9, 9, 9, 2))
    total = jax.jit(lambda obs, a: jnp.log(jnp.sum(obs[..., None, None, None, None, None] * a, axis=2)))(obs, a)
    np.testing.assert_allclose(total, np.log(6.0), rtol=1e-6)


def test_reduction_of_a_product_of_rank_7():
    # jax issue 40412: crashes.
    u, v = jnp.float32(np.random.default_rng(0).normal(size=(2, 3, 1, 2, 2, 8, 8, 8)))
    total = jax.jit(lambda a, b: jnp.sum(a * b, axis=3))(u, v)
    np.testing.assert_allclose(total, np.sum(np.asarray(u) * np.asarray(v), axis=3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [64, 256])
def test_sum_of_a_product_of_ones(n):
    ones = jnp.ones((n, n))
    assert float(jax.jit(lambda a: (a @ jnp.ones((n, n))).sum())(ones)) == n**3
