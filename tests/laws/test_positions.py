"""Laws of every YAML in conf/model/positions."""

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab.nn.positions import Alibi, Learned, Positions, Relative, Rotary, Sinusoidal, bucket, sinusoid, slopes
from seqlab.types import UserError

GROUP = Path(__file__).parents[2] / "conf/model/positions"
# The width of a head is even, as rotary positions want it.
B, T, S, D, H, K = 3, 5, 7, 11, 13, 6
rng = np.random.default_rng(0)
X = rng.normal(size=(B, T, D)).astype(np.float32)
Q = rng.normal(size=(B, T, H, K)).astype(np.float32)
KEYS = rng.normal(size=(B, S, H, K)).astype(np.float32)
# Rows that stand at places of their own, in no order, near and far.
T_BT = rng.permutation(97)[: B * T].reshape(B, T).astype(np.int32)
S_BS = rng.permutation(97)[: B * S].reshape(B, S).astype(np.int32)


class Case(NamedTuple):
    """A kind of positions, its parameters, and a jitted map to (embedded x, q · k of the turned, bias or zeros)."""

    positions: Positions
    variables: Any
    run: Callable[..., Any]


def use(positions, x, q, k, t, s):
    """All that an encoder asks of positions."""
    qk = jnp.einsum("bthk,bshk->bhts", positions.rotate(q, t), positions.rotate(k, s))
    bias = positions.bias(H, t, s)
    return positions.embed(x, t), qk, jnp.zeros((1, H, t.shape[1], s.shape[1])) if bias is None else bias


@pytest.fixture(scope="module", params=sorted(GROUP.glob("*.yaml")), ids=lambda path: path.stem)
def case(request):
    positions = instantiate(OmegaConf.load(request.param))()
    variables = positions.init(jax.random.key(0), X, Q, KEYS, T_BT, S_BS, method=use)
    leaves, tree = jax.tree.flatten(variables)
    variables = jax.tree.unflatten(tree, [np.float32(rng.normal(size=leaf.shape)) for leaf in leaves])
    return Case(positions, variables, jax.jit(lambda v, *args: positions.apply(v, *args, method=use)))


def close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), a, b)


def test_yaml_opens_with_its_package_and_is_partial():
    for path in GROUP.glob("*.yaml"):
        assert path.read_text().startswith("# @package model.encoder.positions\n")
        assert OmegaConf.load(path)._partial_, "an encoder and each of its layers build their own"


def test_shapes_and_dtypes(case):
    half = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), (case.variables, X, Q))

    def parts(positions, x, q):
        return positions.embed(x, T_BT), positions.rotate(q, T_BT), positions.bias(H, T_BT, S_BS)

    x, q, bias = jax.eval_shape(lambda v, *args: case.positions.apply(v, *args, method=parts), *half)
    assert x.shape[:2] == (B, T) and x.dtype == jnp.bfloat16
    assert q.shape == (B, T, H, K) and q.dtype == jnp.bfloat16
    assert bias is None or (bias.shape == (B, H, T, S) and bias.dtype == jnp.float32)


def test_a_row_with_its_own_positions_equals_that_row_alone(case):
    x, qk, bias = case.run(case.variables, X, Q, KEYS, T_BT, S_BS)
    bias = jnp.broadcast_to(bias, (B, *bias.shape[1:]))
    for b in range(B):
        alone = case.run(case.variables, *(a[b : b + 1] for a in (X, Q, KEYS, T_BT, S_BS)))
        close((x[b], qk[b], bias[b]), jax.tree.map(lambda a: a[0], alone))


def test_one_row_of_positions_serves_all_rows(case):
    one, each = (
        case.run(case.variables, X, Q, KEYS, *positions)
        for positions in ((T_BT[:1], S_BS[:1]), (T_BT[[0] * B], S_BS[[0] * B]))
    )
    close(jax.tree.map(lambda a, b: jnp.broadcast_to(a, b.shape), one, each), each)


def test_a_step_with_its_own_position_equals_the_whole(case):
    x, qk, bias = case.run(case.variables, X, Q, KEYS, T_BT, S_BS)
    for t in range(T):
        step = case.run(case.variables, X[:, t : t + 1], Q[:, t : t + 1], KEYS, T_BT[:, t : t + 1], S_BS)
        close((x[:, t], qk[:, :, t], bias[:, :, t]), (step[0][:, 0], step[1][:, :, 0], step[2][:, :, 0]))


def test_scores_depend_on_the_offset_alone(case):
    _, *scores = case.run(case.variables, X, Q, KEYS, T_BT, S_BS)
    _, *shifted = case.run(case.variables, X, Q, KEYS, T_BT + 13, S_BS + 13)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), scores, shifted)


def test_other_positions_change_what_attention_sees_unless_there_are_none(case):
    here = case.run(case.variables, X, Q, KEYS, T_BT, S_BS)
    there = case.run(case.variables, X, Q, KEYS, T_BT[:, ::-1], S_BS)
    changed = any(np.abs(a - b).max() > 1e-2 for a, b in zip(here, there, strict=True))
    assert changed == (type(case.positions) is not Positions)


def test_none_is_the_identity():
    positions = Positions()
    assert positions.embed(X, T_BT) is X and positions.rotate(Q, T_BT) is Q and positions.bias(H, T_BT, S_BS) is None


# Sinusoidal


def test_three_entries_of_the_sinusoid_by_hand():
    p_TD = sinusoid(np.arange(7), 8)
    assert p_TD.shape == (7, 8)
    # The second pair of 8 features turns by 1 / 10000^(2/8) = 1/10 a step.
    np.testing.assert_allclose([p_TD[0, 1], p_TD[5, 2], p_TD[3, 3]], [1, math.sin(0.5), math.cos(0.3)], rtol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 11, 12])
def test_the_sinusoid_is_bounded_and_distinct(d):
    p_TD = np.asarray(sinusoid(np.arange(1009), d))
    assert p_TD.shape == (1009, d) and np.abs(p_TD).max() <= 1
    assert len(np.unique(p_TD, axis=0)) == 1009


def test_an_odd_width_ends_with_a_sine():
    t = np.arange(7)
    angle = t[:, None] / 10_000 ** (2 * np.arange(6) / 11)
    p_TD = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(7, 12)[:, :11]
    np.testing.assert_allclose(sinusoid(t, 11), p_TD, atol=1e-6)


def test_a_fixed_rotation_maps_the_sinusoid_on_by_k():
    d, k = 12, 17
    p_TD = np.asarray(sinusoid(np.arange(101), d))
    M, *_ = np.linalg.lstsq(p_TD[:-k], p_TD[k:])
    np.testing.assert_allclose(p_TD[:-k] @ M, p_TD[k:], atol=1e-4)
    # The pairs that turn fast fill their planes, so that the least squares have one solution there: a rotation.
    np.testing.assert_allclose(M[:4, :4] @ M[:4, :4].T, np.eye(4), atol=1e-3)


# Vectors: added or appended


@pytest.mark.parametrize("kind", [Sinusoidal, Learned])
@pytest.mark.parametrize(("d_position", "d"), [(None, D), (17, 17)])
def test_concat_appends_what_add_adds(kind, d_position, d):
    # Added to zeros, the vectors are seen alone.
    added, appended = kind(), kind(merge="concat", d_position=d_position)
    variables = appended.init(jax.random.key(0), X, T_BT, method="embed")
    p_BTd = added.apply(variables, np.zeros((B, T, d), np.float32), T_BT, method="embed")
    assert np.abs(p_BTd).max() > 1e-2
    np.testing.assert_allclose(
        appended.apply(variables, X, T_BT, method="embed"), np.concatenate([X, p_BTd], -1), rtol=1e-6
    )
    if d == D:
        np.testing.assert_allclose(added.apply(variables, X, T_BT, method="embed"), X + p_BTd, rtol=1e-6)


def test_learned_positions_end_at_max_length():
    positions, t_BT = Learned(max_length=T), np.arange(T)[None]
    variables = positions.init(jax.random.key(0), X, t_BT, method="embed")
    np.testing.assert_allclose(
        positions.apply(variables, X, t_BT, method="embed"), X + variables["params"]["embedding"], rtol=1e-6
    )
    with pytest.raises(UserError, match=rf"max_length is {T}, but {T + 4} positions"):
        positions.apply(variables, X, t_BT + 4, method="embed")
    longer = np.zeros((B, T + 2, D))
    with pytest.raises(UserError, match=rf"max_length is {T}, but {T + 2} positions"):
        jax.eval_shape(lambda t: positions.apply(variables, longer, t, method="embed"), np.zeros((1, T + 2), int))


def test_a_learned_position_out_of_range_is_nan_and_teaches_nothing():
    positions, t_BT = Learned(max_length=T), np.array([[0, 3, T - 1, T, -1]])
    variables = positions.init(jax.random.key(0), X, np.arange(T)[None], method="embed")

    @jax.jit
    def run(variables, t_BT):
        x_BTD, pull = jax.vjp(lambda v: positions.apply(v, X, t_BT, method="embed"), variables)
        return x_BTD, pull(jnp.ones_like(x_BTD))

    x_BTD, (gradient,) = run(variables, t_BT)
    out = (t_BT < 0) | (t_BT >= T)
    np.testing.assert_array_equal(np.isnan(x_BTD), np.broadcast_to(out[..., None], X.shape))
    met = np.isin(np.arange(T), t_BT)
    np.testing.assert_array_equal(gradient["params"]["embedding"], np.repeat(B * met[:, None], D, axis=1))


# Rotary


def test_rotary_equals_the_paper_and_keeps_norms():
    turned = np.asarray(Rotary().rotate(Q, T_BT))
    # A pair of features is a complex number, and a turn a product with e^{iθ}.
    theta = T_BT[..., None] / 10_000 ** (2 * np.arange(K // 2) / K)
    w = (Q[..., ::2] + 1j * Q[..., 1::2]) * np.exp(1j * theta)[:, :, None]
    np.testing.assert_allclose(turned, np.stack([w.real, w.imag], -1).reshape(Q.shape), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(Q, axis=-1), rtol=1e-5)


def test_rotary_in_bfloat16_turns_in_float32():
    half = jnp.asarray(Q, jnp.bfloat16)
    far = T_BT + 1000  # 1000 and 1001 are one number in bfloat16
    exact = Rotary().rotate(half.astype(jnp.float32), far)
    np.testing.assert_array_equal(Rotary().rotate(half, far), exact.astype(jnp.bfloat16))


# ALiBi


def test_alibi_slopes():
    np.testing.assert_array_equal(slopes(8), [2.0**-h for h in range(1, 9)])
    np.testing.assert_allclose(slopes(16), [2 ** (-h / 2) for h in range(1, 17)])
    for n_heads in range(1, 34):
        assert slopes(n_heads).shape == (n_heads,) and len(np.unique(slopes(n_heads))) == n_heads
    np.testing.assert_allclose(slopes(12), [*slopes(8), *slopes(16)[[0, 2, 4, 6]]])


def test_alibi_equals_the_equation():
    bias = Alibi().bias(H, T_BT, S_BS)
    distance = np.abs(T_BT[:, :, None] - S_BS[:, None])
    np.testing.assert_allclose(bias, -slopes(H)[:, None, None] * distance[:, None], rtol=1e-6)


# Relative


def slow_bucket(offset, n, o_max, bidirectional):
    """The rule of T5 by counting, in whole numbers: how many of the ranges begin at or before this offset."""
    first = 0
    if bidirectional:
        n //= 2
        first = n if offset < 0 else 0
        offset = abs(offset)
    offset = max(offset, 0)
    e = n // 2
    if offset < e:
        return first + offset
    # Range j begins where (o/e)^(n−e) = (o_max/e)^j.
    begun = sum(Fraction(offset, e) ** (n - e) >= Fraction(o_max, e) ** j for j in range(1, n - e))
    return first + e + begun


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (4, 3), (14, 37), (24, 192)])
def test_buckets_equal_the_rule_of_t5(n_buckets, max_distance, bidirectional):
    offsets = np.arange(-max_distance - 7, max_distance + 8)
    fast = bucket(offsets, n_buckets, max_distance, bidirectional)
    assert fast.tolist() == [slow_bucket(int(o), n_buckets, max_distance, bidirectional) for o in offsets]
    assert fast.min() == 0 and fast.max() == n_buckets - 1


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_looks_its_bucket_up_and_teaches_every_bucket_met(bidirectional):
    positions = Relative(n_buckets=14, max_distance=37, bidirectional=bidirectional)
    variables = positions.init(jax.random.key(0), H, T_BT, S_BS, method="bias")

    @jax.jit
    def run(variables):
        bias, pull = jax.vjp(lambda v: positions.apply(v, H, T_BT, S_BS, method="bias"), variables)
        return bias, pull(jnp.ones_like(bias))

    bias, (gradient,) = run(variables)
    met = bucket(T_BT[:, :, None] - S_BS[:, None], 14, 37, bidirectional)
    E = np.asarray(variables["params"]["embedding"])
    np.testing.assert_array_equal(bias, np.moveaxis(E[met], -1, 1))
    counts = np.bincount(met.ravel(), minlength=14)
    assert (counts > 0).sum() > 7
    np.testing.assert_allclose(gradient["params"]["embedding"], np.repeat(counts[:, None], H, axis=1))


def test_layers_that_share_an_instance_share_its_parameters():
    class Layer(nn.Module):
        positions: Positions

        def __call__(self):
            return self.positions.bias(H, T_BT, S_BS)

    class Encoder(nn.Module):
        positions: Positions

        @nn.compact
        def __call__(self):
            return Layer(self.positions)() + Layer(self.positions)()

    encoder = Encoder(Relative())
    twice, variables = encoder.init_with_output(jax.random.key(0))
    assert jax.tree.map(jnp.shape, variables) == {"params": {"positions": {"embedding": (32, H)}}}
    once = Relative().apply({"params": variables["params"]["positions"]}, H, T_BT, S_BS, method="bias")
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Sinusoidal(merge="ad"), "merge is 'ad', .*nearest is 'add'"),
        (lambda: Sinusoidal(merge="concat", d_position=0), "d_position is 0,"),
        (lambda: Sinusoidal(d_position=5), "d_position is 5, .*merge=concat"),
        (lambda: Learned(max_length=0), "max_length is 0,"),
        (lambda: Learned(merge="sum"), "merge is 'sum',"),
        (lambda: Rotary().rotate(jnp.zeros((B, T, H, 7)), jnp.asarray(T_BT)), "a head is 7 wide"),
        (lambda: Relative(n_buckets=2), "n_buckets is 2, .*at least 4"),
        (lambda: Relative(n_buckets=31), "n_buckets is 31, .*even"),
        (lambda: Relative(n_buckets=1, bidirectional=False), "n_buckets is 1, .*at least 2"),
        (lambda: Relative(max_distance=8), "max_distance is 8, .*above 8"),
        (lambda: Relative(max_distance=16, bidirectional=False), "max_distance is 16, .*above 16"),
    ],
)
def test_mistakes_are_told(make, told):
    with pytest.raises(UserError, match=told):
        make()
