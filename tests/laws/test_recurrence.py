"""Laws of the recurrence: its derivative is that of a plain scan, over every cell of ours."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from jax import lax
from omegaconf import OmegaConf
from sparing import is_variant, sparing

from seqlab.nn.cell import Cell
from seqlab.nn.cells.gru import GRU
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.recurrence import Given, recurrence

GROUP = Path(__file__).parents[2] / "conf/model/cell"
B, T, D, F = 3, 5, 2, 7
LENGTHS = np.array([T, 0, 3])


def build(path: Path) -> Any:
    return instantiate(OmegaConf.load(path))(features=F)


OURS = [path for path in sorted(GROUP.glob("*.yaml")) if isinstance(build(path), Cell)]


def draw(cell, dtype=np.float32):
    """Parameters, a carry, inputs, masks: (weights, carry, x_BTD), given."""
    rng = np.random.default_rng(0)
    carry = cell.initialize_carry(jax.random.key(0), (B, D))
    variables = jax.eval_shape(cell.init, jax.random.key(0), carry, np.zeros((B, D), np.float32))
    draws = jax.tree.map(lambda a: rng.normal(0.1, 0.5, a.shape).astype(dtype), (variables, carry, np.zeros((B, T, D))))
    given = Given(
        valid=np.arange(T)[:, None] < LENGTHS,
        zoneout=jax.tree.map(lambda leaf: rng.random((T, *leaf.shape)) < 0.2, carry),
        drop=rng.choice([0, 1.5], (B, F)).astype(dtype),
    )
    return draws, given


def fast(cell, variables, carry, x_BTD, given, reverse=False):
    weights = cell.apply(variables, D, method="weights")
    return recurrence(cell.equation, reverse, weights, carry, x_BTD, given)


def plain(cell, variables, carry, x_BTD, given, reverse=False):
    """The same as a scan over the cell, for JAX to differentiate; without recurrent dropout."""

    def step(old, per_step):
        x, valid, zoneout = per_step
        new, _ = cell.apply(variables, old, x)
        new = jax.tree.map(lambda z, o, n: jnp.where(z, o, n), zoneout, old, new)
        new = jax.tree.map(lambda o, n: jnp.where(valid[:, None], n, o), old, new)
        return new, jnp.where(valid[:, None], jax.tree.leaves(new)[-1], 0)

    carry, y_TBF = lax.scan(step, carry, (x_BTD.swapaxes(0, 1), given.valid, given.zoneout), reverse=reverse)
    return carry, y_TBF.swapaxes(0, 1)


def weigh(tree):
    """A scalar in which every number of a tree counts differently."""
    leaves = map(jnp.ravel, jax.tree.leaves(tree))
    return sum(jnp.vdot(leaf, jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype))) for leaf in leaves)


def assert_close(got, expected, tolerance):
    """Equal up to `tolerance` of each array's largest number."""

    def check(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(np.abs(b).max(), 1e-3))

    jax.tree.map(check, got, expected)


def dot(a, b):
    return sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("path", sparing(OURS, is_variant), ids=lambda path: path.stem)
def test_derivatives_equal_those_of_a_plain_scan(path):
    """In reverse mode, and in forward mode: the slope along v is the gradient times v. Half of the cells run back."""
    cell, reverse = build(path), OURS.index(path) % 2 == 1

    def run(*draws):
        f, g = (lambda *a, scan=scan: weigh(scan(cell, *a, given, reverse)) for scan in (fast, plain))
        v = jax.tree.map(jnp.cos, draws)
        gradient = jax.grad(f, (0, 1, 2))(*draws)
        _, slope = jax.jvp(f, draws, v)
        return (gradient, f(*draws)), jax.value_and_grad(g, (0, 1, 2))(*draws)[::-1], slope, dot(gradient, v)

    with jax.enable_x64(True):
        draws, given = draw(cell, np.float64)
        given = given._replace(drop=None)
        got, expected, slope, along = jax.jit(run)(*draws)
    assert_close(got, expected, 1e-10)
    np.testing.assert_allclose(slope, along, rtol=1e-10)
    assert got[1].dtype == np.float64


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_float32_gradients_equal_those_of_a_plain_scan(name):
    cell = build(GROUP / f"{name}.yaml")
    draws, given = draw(cell)
    given = given._replace(drop=None)

    def gradient(scan):
        return jax.jit(jax.grad(lambda *a: weigh(scan(cell, *a, given)), (0, 1, 2)))(*draws)

    got, expected = gradient(fast), gradient(plain)
    assert_close(got, expected, 1e-5)


@pytest.fixture(scope="module")
def gru():
    """The cell whose equation has every shape: a product of h and one of r ⊙ h."""
    cell = GRU(F)
    return cell, *draw(cell)


def test_under_vmap_every_row_is_its_own_run(gru):
    cell, draws, given = gru
    gradient = jax.grad(lambda *a: weigh(fast(cell, *a, given)), (0, 1, 2))
    two = jax.tree.map(lambda a: np.stack([a, 0.5 * a]), draws)
    together = jax.jit(jax.vmap(gradient))(*two)
    apart = [jax.jit(gradient)(*jax.tree.map(lambda a, n=n: a[n], two)) for n in range(2)]
    assert_close(together, jax.tree.map(lambda *a: np.stack(a), *apart), 1e-6)


def test_remat_changes_nothing(gru):
    cell, draws, given = gru

    def run(wrap):
        return jax.jit(jax.grad(wrap(lambda *a: weigh(fast(cell, *a, given))), (0, 1, 2)))(*draws)

    assert_close(run(jax.checkpoint), run(lambda f: f), 1e-6)


def test_second_derivatives_equal_those_of_a_plain_scan(gru):
    cell, draws, given = gru
    given = given._replace(drop=None)

    def curvature(scan):
        """The Hessian of a nonlinear function of the run, times a direction: forward over reverse."""
        gradient = jax.grad(lambda *a: jnp.sin(weigh(scan(cell, *a, given))), (0, 1, 2))
        return jax.jit(lambda *a: jax.jvp(gradient, a, jax.tree.map(jnp.cos, a))[1])(*draws)

    assert_close(curvature(fast), curvature(plain), 1e-5)


def test_recurrent_dropout_masks_what_is_multiplied_and_nothing_else():
    """Dropping units of h is dropping rows of U; the part of h that a GRU keeps is not dropped."""
    cell = GRU(F)
    (variables, carry, x_BTD), given = draw(cell)
    row = given.drop[0]
    given = Given(drop=np.broadcast_to(row, (B, F)))
    masked = jax.tree_util.tree_map_with_path(
        lambda path, a: row[:, None] * a if path[-1].key == "recurrent_kernel" else a, variables
    )
    dropped = fast(cell, variables, carry, x_BTD, given)
    assert_close(dropped, fast(cell, masked, carry, x_BTD, Given()), 1e-6)


def test_bfloat16_is_close_and_its_carry_is_float32():
    cell = LSTM(F)
    (variables, carry, x_BTD), _ = draw(cell)

    def run(variables, carry, x_BTD):
        (carry, y_BTF), pull = jax.vjp(lambda *a: fast(cell, *a, Given()), variables, carry, x_BTD)
        return carry, y_BTF, pull((carry, y_BTF))

    exact = jax.jit(run)(variables, carry, x_BTD)
    narrow, x_BTD = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (variables, x_BTD))
    rounded = jax.jit(run)(narrow, carry, x_BTD)
    assert rounded[1].dtype == jnp.bfloat16 and rounded[0][0].dtype == jnp.float32
    assert_close(jax.tree.map(lambda a: a.astype(jnp.float32), rounded), exact, 0.03)


def loops(cell):
    """The forward and the backward loop of a gradient without lengths and masks."""
    draws, _ = draw(cell)
    gradient = jax.grad(lambda *a: weigh(fast(cell, *a, Given())), (0, 1, 2))
    return (e for e in jax.make_jaxpr(gradient)(*draws).jaxpr.eqns if e.primitive.name == "scan")


@pytest.mark.parametrize("path", sparing(OURS, is_variant), ids=lambda path: path.stem)
def test_no_kernel_gradient_is_summed_in_the_backward_loop(path):
    """Its products are those of the carry's cotangent with each U; its results have a time axis, or are as small as
    the carry and the vectors."""
    _, backward = loops(build(path))
    for variable in backward.outvars:
        shape = variable.aval.shape
        assert shape[0] == T or shape[-1] in (1, B) or len(shape) == 1 or shape == (3, F), shape
    products = [e for e in backward.params["jaxpr"].jaxpr.eqns if e.primitive.name == "dot_general"]
    assert products and all(sorted(e.outvars[0].aval.shape) == [B, F] for e in products)


# By rows, y and what each product met; by features: h or φ's sign; f, i, o, C̃, C, tanh C; z, r, h̃, h or U h.
KEPT = {"rnn": 3, "rnn_relu": 3, "lstm": 8, "gru": 7, "gru_after": 7}


@pytest.mark.parametrize("name", KEPT)
def test_each_number_is_kept_once(name):
    forward, _ = loops(build(GROUP / f"{name}.yaml"))
    stacked = [v.aval for v in forward.outvars if v.aval.shape[0] == T]
    assert sum(aval.size for aval in stacked) == KEPT[name] * T * B * F


@pytest.mark.parametrize("name", sparing(["lstm", "gru_after", "gru_layer_norm"], lambda name: name != "lstm"))
def test_with_the_input_product_ahead_of_the_loop_it_is_the_same(name, monkeypatch):
    """As it is on an accelerator, for maps with all parts, without W and without U."""
    cell = build(GROUP / f"{name}.yaml")
    draws, given = draw(cell)
    given = given._replace(drop=None)

    def run(*draws):
        return jax.vjp(lambda *a: fast(cell, *a, given), *draws)[1](fast(cell, *draws, given))

    inside = jax.jit(run)(*draws)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert_close(jax.jit(lambda *draws: run(*draws))(*draws), inside, 1e-5)


@pytest.mark.slow
def test_without_lengths_there_are_no_masks():
    assert all("select_n" not in str(loop) for path in OURS for loop in loops(build(path)))
