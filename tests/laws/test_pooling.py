"""Laws of every YAML in conf/model/pool."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab.nn.pooling import AttentionPool, MeanPool
from seqlab.types import Encoding, UserError

GROUP = Path(__file__).parents[2] / "conf/model/pool"
B, T, F, HIDDEN = 5, 7, 3, 11
LENGTHS = np.array([T, 4, 0, 1, 6])
PADDED = np.arange(T) >= LENGTHS[:, None]


def build(name):
    config = OmegaConf.load(GROUP / f"{name}.yaml")
    return instantiate(config, **({"features": HIDDEN} if "features" in config else {}))


def encode(garbage):
    """Give an encoding whose outputs past the length are garbage, which the contract of an encoder rules out."""
    y_BTF = np.random.default_rng(0).normal(size=(B, T, F)).astype(np.float32)
    last_BF = np.where(LENGTHS[:, None] > 0, y_BTF[np.arange(B), LENGTHS - 1], 0)
    y_BTF = np.where(PADDED[..., None], garbage, y_BTF).astype(np.float32)
    return Encoding(y_BTF=jnp.asarray(y_BTF), last_BF=jnp.asarray(last_BF), state=None)


@pytest.fixture(scope="module", params=sorted(path.stem for path in GROUP.glob("*.yaml")))
def case(request):
    """A pool, its parameters, and a jitted map to (z_BF, gradients in parameters and outputs)."""
    pool = build(request.param)
    variables = jax.tree.map(lambda a: a + 0.5, pool.init(jax.random.key(0), encode(0), LENGTHS))

    @jax.jit
    def run(variables, encoding, lengths):
        z_BF, pull = jax.vjp(lambda variables, encoding: pool.apply(variables, encoding, lengths), variables, encoding)
        return z_BF, pull(jnp.cos(jnp.arange(z_BF.size)).reshape(z_BF.shape))

    return pool, variables, run


@pytest.mark.parametrize("garbage", [1e3, np.nan, np.inf])
def test_padding_changes_nothing(case, garbage):
    _, variables, run = case
    z_BF, gradients = run(variables, encode(0), LENGTHS)
    jax.tree.map(np.testing.assert_array_equal, (z_BF, gradients), run(variables, encode(garbage), LENGTHS))
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((z_BF, gradients)))
    assert (np.asarray(gradients[1].y_BTF)[PADDED] == 0).all()


def test_length_zero_gives_zeros(case):
    _, variables, run = case
    z_BF, _ = run(variables, encode(0), LENGTHS)
    assert (np.asarray(z_BF)[LENGTHS == 0] == 0).all() and (np.asarray(z_BF)[LENGTHS > 0] != 0).all()


def test_a_row_does_not_depend_on_its_batch(case):
    _, variables, run = case
    z_BF, _ = run(variables, encode(0), LENGTHS)
    alone = [
        run(variables, jax.tree.map(lambda a, b=b: a[b : b + 1], encode(0)), LENGTHS[b : b + 1])[0][0] for b in range(B)
    ]
    np.testing.assert_allclose(z_BF, alone, rtol=1e-5, atol=1e-6)


def test_full_rows_need_no_lengths(case):
    _, variables, run = case
    full = run(variables, encode(0), np.full(B, T))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), full, run(variables, encode(0), None))


def test_dtype_follows_the_outputs(case):
    pool, variables, _ = case
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (variables, encode(0)))
    assert jax.eval_shape(lambda v, e: pool.apply(v, e, LENGTHS), *half).dtype == jnp.bfloat16


def equation(name, params, y_TF):
    """The pool of one row without padding, in NumPy."""
    if name == "attention":
        e_T = np.tanh(y_TF @ params["W"]["kernel"] + params["W"]["bias"]) @ params["v"]["kernel"][:, 0]
        return np.exp(e_T) / np.exp(e_T).sum() @ y_TF
    return {"first": lambda y: y[0], "last": lambda y: y[-1], "mean": lambda y: y.mean(0), "max": lambda y: y.max(0)}[
        name
    ](y_TF)


@pytest.mark.parametrize("name", ["first", "last", "mean", "max", "attention"])
def test_pools_equal_their_equations(name):
    pool, encoding = build(name), encode(0)
    variables = jax.tree.map(lambda a: a + 0.5, pool.init(jax.random.key(0), encoding, LENGTHS))
    z_BF = pool.apply(variables, encoding, LENGTHS)
    for b in np.flatnonzero(LENGTHS):
        z_F = equation(name, variables.get("params"), np.asarray(encoding.y_BTF[b, : LENGTHS[b]]))
        np.testing.assert_allclose(z_BF[b], z_F, rtol=1e-5, atol=1e-6)


def test_attention_weights_sum_to_one_over_valid_steps():
    pool = AttentionPool(HIDDEN)
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), encode(0))
    variables = jax.tree.map(lambda a: a.astype(jnp.bfloat16), pool.init(jax.random.key(0), half, LENGTHS))
    _, sown = pool.apply(variables, half, LENGTHS, mutable="intermediates")
    (a_BT,) = sown["intermediates"]["a_BT"]
    assert a_BT.dtype == jnp.float32
    np.testing.assert_allclose(a_BT.sum(axis=1), LENGTHS > 0, atol=1e-6)
    assert ((np.asarray(a_BT) > 0) == ~PADDED).all()


def test_a_long_mean_in_bfloat16_is_summed_in_float32():
    y_BTF = jnp.ones((1, 1009, 1), jnp.bfloat16)
    assert MeanPool().apply({}, Encoding(y_BTF, y_BTF[:, -1], None), np.array([1009]))[0, 0] == 1


@pytest.mark.parametrize("features", [0, -3, 1.5])
def test_bad_sizes_are_told(features):
    with pytest.raises(UserError, match=f"features {features};"):
        AttentionPool(features)
