"""Laws of rows spread over devices: the same numbers, and nothing said between devices inside a loop."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_recurrence import OURS, D, F, assert_close, build, fast

from seqlab.nn.recurrence import Given

B, T, N_DEVICES = 6, 5, 2


def draw(cell):
    rng = np.random.default_rng(0)
    carry = cell.initialize_carry(jax.random.key(0), (B, D))
    variables = jax.eval_shape(cell.init, jax.random.key(0), carry, np.zeros((B, D), np.float32))
    draws = jax.tree.map(
        lambda a: rng.normal(0.1, 0.5, a.shape).astype(np.float32), (variables, carry, np.zeros((B, T, D)))
    )
    given = Given(
        valid=np.arange(T)[:, None] < np.array([T, 0, 3, 1, T, 2]),
        zoneout=jax.tree.map(lambda leaf: rng.random((T, *leaf.shape)) < 0.2, carry),
        drop=rng.choice([0, 1.5], (B, F)).astype(np.float32),
    )
    return draws, given


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_on_two_devices_it_is_the_same(path):
    """Outputs and gradients, with lengths, zoneout and recurrent dropout; gradients are summed once, after the loop."""
    cell = build(path)
    draws, given = draw(cell)

    def run(*draws):
        out, pull = jax.vjp(lambda *a: fast(cell, *a, given), *draws)
        return out, pull(out)

    expected = jax.jit(run)(*draws)
    mesh = Mesh(np.array(jax.devices()[:N_DEVICES]), ("data",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    placed = [jax.device_put(tree, place) for tree, place in zip(draws, (whole, rows, rows), strict=True)]
    with jax.set_mesh(mesh):
        spread = jax.jit(lambda *draws: run(*draws)).lower(*placed).compile()
    assert_close(spread(*placed), expected, 1e-5)
    computations = re.split(r"\n(?=\S)", spread.as_text())
    talking = [c.split(" ", 1)[0] for c in computations if re.search(r" (all-reduce|all-gather|all-to-all)\(", c)]
    assert talking == ["ENTRY"]


def test_rows_that_do_not_divide_stay_together():
    cell = build(OURS[0])
    (variables, carry, x_BTD), _ = draw(cell)
    carry, x_BTD = jax.tree.map(lambda a: a[:3], (carry, x_BTD))
    expected = jax.jit(lambda *a: fast(cell, *a, Given()))(variables, carry, x_BTD)
    with jax.set_mesh(Mesh(np.array(jax.devices()[:N_DEVICES]), ("data",))):
        assert_close(jax.jit(lambda *a: fast(cell, *a, Given()))(variables, carry, x_BTD), expected, 1e-6)
