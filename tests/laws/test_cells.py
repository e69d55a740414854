"""Laws of every YAML in conf/model/cell, of our cells and of foreign ones."""

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab.nn.cell import Cell
from seqlab.nn.cells.gru import GRU
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.cells.rnn import RNN
from seqlab.types import UserError

GROUP = Path(__file__).parents[2] / "conf/model/cell"
B, D, F = 3, 5, 7


def build(path: Path) -> Any:
    """The cell that the YAML says, for F features."""
    return instantiate(OmegaConf.load(path))(features=F)


PATHS = sorted(GROUP.glob("*.yaml"))
OURS = [path for path in PATHS if isinstance(build(path), Cell)]


def initial(cell, d_input=D):
    x = np.zeros((1, d_input), np.float32)
    return jax.jit(cell.init)(jax.random.key(3), cell.initialize_carry(jax.random.key(0), x.shape), x)["params"]


def abstract(cell, d_input=D):
    x = np.zeros((1, d_input), np.float32)
    return jax.eval_shape(cell.init, jax.random.key(0), cell.initialize_carry(jax.random.key(0), x.shape), x)["params"]


def draw(cell, seed=0):
    """Random parameters, far from their initial zeros and ones, a carry and an input."""
    rng = np.random.default_rng(seed)
    trees = {"params": abstract(cell)}, cell.initialize_carry(jax.random.key(0), (B, D)), np.zeros((B, D))
    return jax.tree.map(lambda a: rng.normal(0.2, 0.6, a.shape).astype(np.float32), trees)


def σ(a):
    return 1 / (1 + np.exp(-a))


def flat(params):
    """Parameters by path, in float64."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(key.key for key in path): np.asarray(leaf, np.float64) for path, leaf in leaves}


def norm(p, name, a):
    a = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-6)
    return p[f"{name}_norm_scale"] * a + p.get(f"{name}_norm_bias", 0)


def rnn_equation(cell, p, h, x):
    φ = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0), "sigmoid": σ}[cell.activation]
    a = x @ p["hidden.kernel"] + h @ p["hidden.recurrent_kernel"] + p.get("hidden.bias", 0)
    return φ(norm(p, "hidden", a) if cell.layer_norm else a)


def lstm_equation(cell, p, carry, x):
    C, h = carry
    if cell.layer_norm:
        a = norm(p, "gates_input", x @ p["gates_input.kernel"])
        a = a + norm(p, "gates_recurrent", h @ p["gates_recurrent.recurrent_kernel"])
    else:
        a = x @ p["gates.kernel"] + h @ p["gates.recurrent_kernel"] + p["gates.bias"]
    p_f, p_i, p_o = p.get("peephole", np.zeros((3, F)))
    a_f, a_i, a_o, a_C = a[:, :F], a[:, F : 2 * F], a[:, 2 * F : 3 * F], a[:, 3 * F :]
    f, i = σ(a_f + p_f * C), σ(a_i + p_i * C)
    C = f * C + i * np.tanh(a_C)
    o = σ(a_o + p_o * C)
    return C, o * np.tanh(norm(p, "cell", C) if cell.layer_norm else C)


def gru_equation(cell, p, h, x):
    def summed(name, q):
        if cell.layer_norm:
            wx, uh = x @ p[f"{name}_input.kernel"], q @ p[f"{name}_recurrent.recurrent_kernel"]
            return norm(p, f"{name}_input", wx) + norm(p, f"{name}_recurrent", uh)
        return x @ p[f"{name}.kernel"] + q @ p[f"{name}.recurrent_kernel"] + p[f"{name}.bias"]

    zr = σ(summed("gates", h))
    z, r = zr[:, :F], zr[:, F:]
    if cell.reset == "before":
        candidate = np.tanh(summed("candidate", r * h))
    else:
        wx, uh = x @ p["candidate_input.kernel"], h @ p["candidate_recurrent.recurrent_kernel"]
        if cell.layer_norm:
            wx, uh = norm(p, "candidate_input", wx), norm(p, "candidate_recurrent", uh)
        else:
            wx, uh = wx + p["candidate_input.bias"], uh + p["candidate_recurrent.bias"]
        candidate = np.tanh(wx + r * uh)
    return (1 - z) * h + z * candidate


EQUATIONS = {RNN: rnn_equation, LSTM: lstm_equation, GRU: gru_equation}
VARIANTS = {
    **{f"rnn-{φ}-{n}": RNN(F, activation=φ, layer_norm=n) for φ in ("tanh", "relu", "sigmoid") for n in (False, True)},
    **{f"lstm-{p}-{n}": LSTM(F, peephole=p, layer_norm=n) for p in (False, True) for n in (False, True)},
    **{f"gru-{r}-{n}": GRU(F, reset=r, layer_norm=n) for r in ("before", "after") for n in (False, True)},
}


@pytest.mark.parametrize("cell", VARIANTS.values(), ids=VARIANTS)
def test_a_cell_is_its_equation(cell):
    variables, carry, x = draw(cell)
    new, y = jax.jit(cell.apply)(variables, carry, x)
    carry = jax.tree.map(lambda a: np.asarray(a, np.float64), carry)
    expected = EQUATIONS[type(cell)](cell, flat(variables["params"]), carry, np.asarray(x))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=5e-6), new, expected)
    np.testing.assert_array_equal(y, jax.tree.leaves(new)[-1])


def gates(a, names):
    return dict(zip(names, jnp.split(a, len(names), axis=-1), strict=True))


def to_flax(cell, p):
    """Flax's cell and its parameters for the same function."""
    if isinstance(cell, RNN):
        hidden = p["hidden"]
        i = {"kernel": hidden["kernel"], "bias": hidden["bias"]}
        return nn.SimpleCell(F), {"i": i, "h": {"kernel": hidden["recurrent_kernel"]}}
    if isinstance(cell, LSTM):
        W, U, b = (gates(p["gates"][k], "fiog") for k in ("kernel", "recurrent_kernel", "bias"))
        return nn.OptimizedLSTMCell(F), {
            **{f"i{g}": {"kernel": W[g]} for g in "fiog"},
            **{f"h{g}": {"kernel": U[g], "bias": b[g]} for g in "fiog"},
        }
    W, U, b = (gates(p["gates"][k], "zr") for k in ("kernel", "recurrent_kernel", "bias"))
    x, h = p["candidate_input"], p["candidate_recurrent"]
    # Flax's z is the part that is kept: 1 − σ(a) = σ(−a).
    return nn.GRUCell(F), {
        "iz": {"kernel": -W["z"], "bias": -b["z"]},
        "ir": {"kernel": W["r"], "bias": b["r"]},
        "in": x,
        "hz": {"kernel": -U["z"]},
        "hr": {"kernel": U["r"]},
        "hn": {"kernel": h["recurrent_kernel"], "bias": h["bias"]},
    }


@pytest.mark.parametrize("cell", [RNN(F), LSTM(F), GRU(F, reset="after")], ids=lambda cell: type(cell).__name__)
def test_a_cell_equals_flax_after_mapping(cell):
    variables, carry, x = draw(cell)
    theirs, params = to_flax(cell, variables["params"])
    expected = jax.jit(theirs.apply)({"params": params}, carry, x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        jax.jit(cell.apply)(variables, carry, x),
        expected,
    )


COUNTS = {  # from d_x and d_h to the number of parameters
    "rnn": lambda x, h: x * h + h * h + h,
    "lstm": lambda x, h: 4 * (x * h + h * h + h),
    "gru": lambda x, h: 3 * (x * h + h * h + h),
    "lstm_peephole": lambda x, h: 4 * (x * h + h * h + h) + 3 * h,
    "gru_after": lambda x, h: 3 * (x * h + h * h + h) + h,
    "rnn_layer_norm": lambda x, h: x * h + h * h + 2 * h,
    "lstm_layer_norm": lambda x, h: 4 * (x * h + h * h + h) + 8 * h + 2 * h,
    "gru_layer_norm": lambda x, h: 3 * (x * h + h * h + h) + 6 * h,
}


def count(name, d_x, d_h):
    cell = instantiate(OmegaConf.load(GROUP / f"{name}.yaml"))(features=d_h)
    return sum(leaf.size for leaf in jax.tree.leaves(abstract(cell, d_x)))


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_as_many_as_the_formula_says(name):
    assert count(name, 11, 13) == COUNTS[name](11, 13)


def test_an_lstm_of_128_and_256_has_394240_parameters():
    assert count("lstm", 128, 256) == 394_240


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_vectors_are_named_bias_or_norm(path):
    """A rule for weight decay goes by the path."""
    for keys, leaf in jax.tree_util.tree_leaves_with_path(abstract(build(path))):
        name = jax.tree_util.keystr(keys)
        assert (leaf.ndim == 1) == ("bias" in name or "norm" in name), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_cell_takes_any_batch_shape_and_keeps_float32_carries(path):
    cell = build(path)
    variables, carry, x = draw(cell)
    step = jax.jit(cell.apply)
    carry, x = jax.tree.map(lambda a: a[:2], (carry, x))
    one = step(variables, carry, x)
    deep = step(variables, *jax.tree.map(lambda a: a[:, None, None], (carry, x)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[:, 0, 0], b, rtol=1e-5, atol=1e-6), deep, one)
    narrow, x = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (variables, x))
    new, _ = jax.eval_shape(cell.apply, narrow, carry, x)
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype("float32")}


def test_recurrent_kernels_start_orthogonal_gate_by_gate():
    U = initial(LSTM(F))["gates"]["recurrent_kernel"]
    blocks = np.split(U, 4, axis=-1)
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(F), atol=1e-5)
    assert len({np.asarray(block).tobytes() for block in blocks}) == 4


def test_the_forget_gate_starts_open():
    zeros = nn.initializers.zeros_init()
    b_f, b_i, b_o, b_C = np.split(initial(LSTM(F, forget_bias=2.5, recurrent_init=zeros))["gates"]["bias"], 4)
    np.testing.assert_array_equal(b_f, np.full(F, 2.5))
    assert not np.any(np.stack([b_i, b_o, b_C]))
    assert LSTM(F).forget_bias == 1


def test_chrono_spreads_the_memories_over_the_lags():
    F, t_max = 1009, 101
    cell = LSTM(F, chrono=t_max, recurrent_init=nn.initializers.zeros_init())
    b_f, b_i, b_o, b_C = np.split(np.asarray(initial(cell)["gates"]["bias"]), 4)
    np.testing.assert_array_equal(b_i, -b_f)
    assert not np.any(np.stack([b_o, b_C]))
    lags = np.exp(b_f)
    assert lags.min() >= 1 and lags.max() <= t_max - 1
    # Uniform on [1, T_max − 1]: the mean of 1009 draws lies within four standard errors of T_max / 2.
    assert abs(lags.mean() - t_max / 2) < 4 * (t_max - 2) / np.sqrt(12 * F)


def test_initialisers_are_chosen_from_yaml():
    config = OmegaConf.load(GROUP / "gru.yaml")
    constants = {"kernel_init": 2.0, "recurrent_init": 3.0, "bias_init": 5.0}
    for name, value in constants.items():
        config[name] = {"_target_": "jax.nn.initializers.constant", "value": value}
    p = initial(instantiate(config)(features=F))
    for part in p.values():
        for leaf, value in zip(("kernel", "recurrent_kernel", "bias"), constants.values(), strict=True):
            assert (part[leaf] == value).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: RNN(F, activation="tahn"), "activation is 'tahn', .* nearest is 'tanh'"),
        (lambda: GRU(F, reset="befor"), "reset is 'befor', .* nearest is 'before'"),
        (lambda: LSTM(F, chrono=2), "chrono is 2, .* at least 3"),
        (lambda: LSTM(0), "features is 0, .* at least 1"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()
