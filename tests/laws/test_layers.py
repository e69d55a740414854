"""Laws of recurrent layers and stacks, over every YAML in conf/model/cell and conf/model/layer."""

from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sparing import is_variant, sparing

from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.dropout import zoneout_masks
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.types import Encoding, UserError

CONF = Path(__file__).parents[2] / "conf/model"
CELLS = sorted(CONF.glob("cell/*.yaml"))
B, T, D, F = 5, 7, 3, 11
LENGTHS = np.array([T, 4, 0, 1, 6])
PADDED = np.arange(T) >= LENGTHS[:, None]


def load(path: Path) -> Any:
    return instantiate(OmegaConf.load(path))


def draw(layer, seed=0):
    """Random parameters, an initial state and inputs."""
    rng = np.random.default_rng(seed)
    x_BTD = np.zeros((B, T, D), np.float32)
    variables = jax.eval_shape(partial(layer.init, train=False), jax.random.key(0), x_BTD)
    state = jax.eval_shape(lambda: layer.apply(variables, B, method="init_state"))
    return jax.tree.map(lambda a: rng.normal(0.1, 0.5, a.shape).astype(np.float32), (variables, state, x_BTD))


def assert_close(got, expected, tolerance=2e-6):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=tolerance), got, expected)


class Case:
    """A bidirectional layer over one cell: it has a forward and a backward run in it."""

    def __init__(self, path: Path):
        self.cell = load(path)
        self.layer = Bidirectional(self.cell, F)
        self.variables, self.state, self.x_BTD = draw(self.layer)

        @jax.jit
        def run(variables, state, x_BTD, lengths_B):
            def apply(variables, state, x_BTD):
                return self.layer.apply(variables, x_BTD, lengths_B, state=state, train=False)

            encoding, pull = jax.vjp(apply, variables, state, x_BTD)
            # The cotangent of a padded step is not zero, as a careless head's would be.
            return encoding, pull(jax.tree.map(jnp.cos, encoding))

        self.run = run

    def loop(self):
        """Both directions as Python loops over the cell, row by row of their real steps."""
        core = self.cell(features=F)
        step = jax.jit(core.apply)
        y_BTF, last_BF = np.zeros((B, T, 2 * F), np.float32), np.zeros((B, 2 * F), np.float32)
        states = []
        for k, name in enumerate(("forward", "backward")):
            params = {"params": self.variables["params"][name]["core"]}
            part = slice(k * F, (k + 1) * F)
            carry = self.state[k]
            for t in range(T) if k == 0 else reversed(range(T)):
                new, y = step(params, carry, self.x_BTD[:, t])
                real = ~PADDED[:, t, None]
                carry = jax.tree.map(lambda o, n, real=real: np.where(real, n, o), carry, new)
                y_BTF[:, t, part] = np.where(real, y, 0)
                last_BF[:, part] = np.where(real, y, last_BF[:, part])
            states.append(carry)
        return y_BTF, last_BF, tuple(states)


@pytest.fixture(scope="module", params=sparing(CELLS, is_variant), ids=lambda path: path.stem)
def case(request):
    return Case(request.param)


def test_a_scan_equals_a_loop_over_the_cell(case):
    encoding, _ = case.run(case.variables, case.state, case.x_BTD, LENGTHS)
    assert_close((encoding.y_BTF, encoding.last_BF, encoding.state), case.loop(), 1e-5)


def test_padding_changes_nothing(case):
    """Neither outputs nor gradients, whatever the padding holds; its own gradient is zero."""
    results = []
    for garbage in (0, 1e3, np.nan):
        x_BTD = np.where(PADDED[..., None], np.float32(garbage), case.x_BTD)
        results.append(case.run(case.variables, case.state, x_BTD, LENGTHS))
    for result in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, result, results[0])
    encoding, (_, _, dx_BTD) = results[0]
    assert (np.asarray(encoding.y_BTF)[PADDED] == 0).all() and (np.asarray(dx_BTD)[PADDED] == 0).all()


def test_a_row_without_steps_keeps_its_state(case):
    encoding, _ = case.run(case.variables, case.state, case.x_BTD, LENGTHS)
    empty = LENGTHS == 0
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[empty], b[empty]), encoding.state, case.state)
    assert (np.asarray(encoding.last_BF)[empty] == 0).all()


def test_a_row_does_not_depend_on_its_batch(case):
    """A row alone, in a batch of copies of itself, comes out as it does among others."""
    encoding, _ = case.run(case.variables, case.state, case.x_BTD, LENGTHS)
    b = 1
    alone, _ = case.run(
        case.variables, *jax.tree.map(lambda a: np.repeat(a[b : b + 1], B, 0), (case.state, case.x_BTD, LENGTHS))
    )
    jax.tree.map(
        lambda a, one: assert_close(np.asarray(one), np.repeat(np.asarray(a)[b : b + 1], B, 0)), encoding, alone
    )


@pytest.mark.parametrize("path", sparing(CELLS, is_variant), ids=lambda path: path.stem)
def test_stepping_equals_scanning(path):
    """Also with zoneout, whose expectation both take in evaluation."""
    check_stepping(Recurrent(load(path), F, zoneout=0.3))


def test_a_stack_steps_as_its_layers_do():
    layer = partial(Recurrent, load(CONF / "cell/lstm.yaml"))
    check_stepping(Stack(layer, F, n_layers=3, residual=True, norm=True, dropout=0.5))


def check_stepping(layer):
    variables, state, x_BTD = draw(layer)
    whole = jax.jit(lambda state, x: layer.apply(variables, x, state=state, train=False))(state, x_BTD)
    step = jax.jit(lambda state, x: layer.apply(variables, state, x, method="step"))
    for t in range(T):
        state, y_BF = step(state, x_BTD[:, t])
        assert_close(y_BF, whole.y_BTF[:, t], 1e-5)
    assert_close(state, whole.state, 1e-5)
    assert_close(whole.last_BF, whole.y_BTF[:, -1])


LAYERS = sorted(CONF.glob("layer/*.yaml"))


@pytest.mark.parametrize("path", sparing(LAYERS, lambda path: path.stem == "bidirectional"), ids=lambda path: path.stem)
def test_every_layer_can_be_stacked(path):
    """And a stack too does not see the padding, forward or backward."""
    stack = Stack(partial(load(path), load(CONF / "cell/gru.yaml")), F, n_layers=2, residual=True, norm=True)
    variables, state, x_BTD = draw(stack)

    @jax.jit
    def run(variables, x_BTD):
        apply = partial(stack.apply, lengths_B=LENGTHS, state=state, train=False)
        encoding, pull = jax.vjp(apply, variables, x_BTD)
        return encoding, pull(jax.tree.map(jnp.cos, encoding))

    clean, dirty = (run(variables, np.where(PADDED[..., None], g, x_BTD)) for g in np.float32([0, np.nan]))
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)
    assert (np.asarray(clean[0].y_BTF)[PADDED] == 0).all() and (np.asarray(clean[0].last_BF)[LENGTHS == 0] == 0).all()
    if "forward" not in variables["params"]["layers_0"]:
        ends = np.asarray(clean[0].y_BTF)[np.arange(B), LENGTHS - 1]
        assert_close(clean[0].last_BF, np.where(LENGTHS[:, None] > 0, ends, 0))


def test_directions_are_merged_by_concat_or_sum():
    cell = load(CONF / "cell/rnn.yaml")
    layers = [Bidirectional(cell, F, merge=merge) for merge in ("concat", "sum")]
    variables, state, x_BTD = draw(layers[0])
    concat, total = (layer.apply(variables, x_BTD, LENGTHS, state=state, train=False) for layer in layers)
    for name in ("y_BTF", "last_BF"):
        ahead, back = np.split(np.asarray(getattr(concat, name)), 2, axis=-1)
        assert_close(getattr(total, name), ahead + back)


class Through(nn.Module):
    """A layer that hands on what it reads: a stack of these shows its dropout masks."""

    features: int

    def __call__(self, x_BTD, lengths_B=None, *, state=None, train):
        return Encoding(x_BTD, x_BTD[:, -1], ())


def masks(key=0, train=True, n_layers=2, **options):
    stack = Stack(Through, 97, n_layers=n_layers, dropout=0.3, **options)
    rngs = {"dropout": jax.random.key(key)}
    return np.asarray(stack.apply({}, np.ones((B, T, 97), np.float32), train=train, rngs=rngs).y_BTF)


def test_dropout_is_between_layers_and_in_training_only():
    assert (masks(train=False) == 1).all()
    assert (masks(n_layers=1) == 1).all()
    once = masks()
    assert set(np.unique(once)) == {0, np.float32(1 / 0.7)}
    # Four standard errors of a rate of 0.3 over the 97 B T draws.
    assert abs((once == 0).mean() - 0.3) < 4 * np.sqrt(0.21 / once.size)


def test_dropout_masks_differ_over_steps_rows_layers_and_keys():
    once = masks()
    assert len({once[b, t].tobytes() for b in range(B) for t in range(T)}) == B * T
    assert len(np.unique(masks(n_layers=3))) == 2 and ((masks(n_layers=3) == 0) != (once == 0)).any()
    assert (masks(key=1) != once).any()


def test_variational_masks_are_the_same_for_all_time():
    once = masks(variational=True)
    assert (once == once[:, :1]).all()
    assert len({row.tobytes() for row in once}) == B
    assert (masks(variational=True, key=1) != once).any()


def run_in_training(layer, key=0, train=True):
    variables, state, x_BTD = draw(layer)
    rngs = {"dropout": jax.random.key(key)}
    encoding = jax.jit(partial(layer.apply, train=train))(variables, x_BTD, state=state, rngs=rngs)
    return jax.tree.leaves(state)[-1], np.asarray(encoding.y_BTF)


@pytest.mark.parametrize("name", ["lstm", pytest.param("flax_gru", marks=pytest.mark.slow)])
def test_zoneout_keeps_old_values_at_its_rate(name):
    F, rate = 211, 0.3
    layer = Recurrent(load(CONF / f"cell/{name}.yaml"), F, zoneout=rate)
    h_BF, y_BTF = run_in_training(layer)
    kept = y_BTF == np.concatenate([h_BF[:, None], y_BTF[:, :-1]], 1)
    assert abs(kept.mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / kept.size)
    assert len({kept[b, t].tobytes() for b in range(B) for t in range(T)}) == B * T
    assert (run_in_training(layer, key=1)[1] != y_BTF).any()
    assert (run_in_training(layer, key=1, train=False)[1] == run_in_training(layer, train=False)[1]).all()


def test_zoneout_of_an_lstm_masks_cell_and_output_apart():
    masks = zoneout_masks(jax.random.key(0), 0.5, T, LSTM(F).initialize_carry(jax.random.key(0), (B, D)))
    assert (masks[0] != masks[1]).any()


def test_recurrent_dropout_is_in_training_only_and_new_for_each_key():
    layer = Recurrent(load(CONF / "cell/gru.yaml"), F, recurrent_dropout=0.4)
    plain = run_in_training(Recurrent(load(CONF / "cell/gru.yaml"), F))[1]
    assert (run_in_training(layer, train=False)[1] == plain).all()
    once, again = (run_in_training(layer, key=key)[1] for key in (0, 1))
    assert (once[:, 0] != plain[:, 0]).any() and (once != again).any()


class Noisy(nn.RNNCellBase):
    """A foreign cell with dropout in it."""

    features: int

    @nn.compact
    def __call__(self, h, x):
        y = nn.Dropout(0.5, deterministic=False)(jnp.ones_like(h))
        return h, y

    def initialize_carry(self, rng, input_shape):
        return jnp.zeros((*input_shape[:-1], self.features))

    num_feature_axes = 1


def test_a_foreign_cell_draws_anew_at_each_step():
    y_BTF = Recurrent(Noisy, 97).apply({}, np.zeros((B, T, D)), train=True, rngs={"dropout": jax.random.key(0)}).y_BTF
    assert len({np.asarray(y_BTF[:, t]).tobytes() for t in range(T)}) == T


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Recurrent(LSTM, 0), "features is 0"),
        (lambda: Recurrent(LSTM, F, zoneout=1.0), "zoneout is 1.0, .* at least 0 and below 1"),
        (lambda: Recurrent(LSTM, F, recurrent_dropout=-0.1), "recurrent_dropout is -0.1"),
        (lambda: Bidirectional(LSTM, F, merge="cat"), "merge is 'cat', .* nearest is 'concat'"),
        (lambda: Bidirectional(LSTM, F, zoneout=2.0), "zoneout is 2.0"),
        (lambda: Stack(partial(Recurrent, LSTM), F, n_layers=0), "n_layers is 0"),
        (lambda: Stack(partial(Recurrent, LSTM), F, dropout=1.5), "dropout is 1.5"),
        (lambda: init(Recurrent(nn.OptimizedLSTMCell, F, recurrent_dropout=0.1)), "OptimizedLSTMCell does not say"),
        (lambda: init(Recurrent(nn.Dense, F)), "cell is Dense, .* over vectors"),  # type: ignore[arg-type]
        (
            lambda: init(Recurrent(partial(nn.ConvLSTMCell, kernel_size=(3,)), F)),
            "cell is ConvLSTMCell, .* over vectors",
        ),
        (lambda: init(Recurrent(LSTM, F), np.ones(B + 1, int)), r"lengths have the shape \(6,\), .* \(5,\)"),
        (lambda: init(Stack(partial(Recurrent, LSTM), F), np.ones((B, 1), int)), r"lengths have the shape \(5, 1\)"),
        (lambda: step(Recurrent(LSTM, F, reverse=True)), "reads from the end"),
        (lambda: step(Bidirectional(LSTM, F)), "reads from both ends"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


def init(layer, lengths_B=None):
    return jax.eval_shape(partial(layer.init, train=False), jax.random.key(0), np.zeros((B, T, D)), lengths_B)


def step(layer):
    return layer.apply({}, None, np.zeros((B, D)), method="step")
