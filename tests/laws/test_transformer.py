"""Laws of the Transformer, over every YAML of its mixers and positions."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from sparing import in_short, sparing

from seqlab.nn.self_attention import SelfAttention
from seqlab.types import UserError

CONF = Path(__file__).parents[2] / "conf"
B, T, D, N = 5, 7, 12, 2
LENGTHS, FULL = np.array([5, 4, 0, 1, 3]), np.full(B, T)
REAL = np.arange(T) < LENGTHS[:, None]


def names(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def build(*overrides):
    small = ["model/encoder=transformer", f"model.encoder.features={D}", f"model.encoder.n_layers={N}"]
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose("config", [*small, "model=tagger", *overrides])
    return instantiate(config.model.encoder)


UNROLL = "model.encoder.unroll=true"
ATTENTION = ["model.encoder.mixer.n_heads=3", "model.encoder.mixer.max_length=11"]
CASES = [[f"model/mixer={mixer}"] for mixer in names("model/mixer") if mixer != "attention"]
CASES += [[*ATTENTION, f"model/positions={positions}"] for positions in names("model/positions")]
SPARED = [["model/mixer=rnn"], ["model/mixer=lstm"]]
SPARED += [
    [*ATTENTION, f"model/positions={positions}"] for positions in ("none", "sinusoidal", "alibi", "relative", "rotary")
]
CASES += [
    [*ATTENTION, "model.encoder.mixer.n_kv_heads=1", "model.encoder.activation=swiglu", "model.encoder.norm=rms"],
    [
        *ATTENTION,
        "model.encoder.mixer.window=2",
        "model.encoder.activation=relu",
        "model.encoder.placement=post",
        UNROLL,
    ],
    [*ATTENTION, "model.encoder.mixer.implementation=chunked", "model.encoder.remat=true"],
]
SPARED += CASES[-3:]


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(B, T, D)).astype(np.float32)


def fill(model):
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((B, T, D))))
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(scale=0.5, size=a.shape), a.dtype), shapes)


class Case:
    """A model, its parameters, and its programs, compiled once for all laws."""

    def __init__(self, model):
        self.model, self.variables = model, fill(model)
        self.read = jax.jit(lambda x, lengths: model.apply(self.variables, x, lengths))
        self.go_on = jax.jit(lambda state, x, lengths: model.apply(self.variables, x, lengths, state=state))
        self.step = jax.jit(lambda state, x: model.apply(self.variables, state, x, method="step"))


@pytest.fixture(
    scope="module",
    params=sparing(CASES, SPARED.__contains__),
    ids=in_short,
)
def case(request):
    return Case(build(*request.param))


def test_padding_changes_nothing(case):
    @jax.jit
    def run(variables, x):
        y, pull = jax.vjp(lambda variables, x: case.model.apply(variables, x, LENGTHS).y_BTF, variables, x)
        return y, pull(jnp.cos(y))

    y, (gradient, dx) = run(case.variables, np.where(REAL[..., None], draw(), 0))
    garbage = run(case.variables, np.where(REAL[..., None], draw(), np.nan))
    jax.tree.map(np.testing.assert_array_equal, (y, (gradient, dx)), garbage)
    assert not np.any(y[~REAL]) and not np.any(dx[~REAL])
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((y, gradient)))
    whole = case.read(draw(), FULL).y_BTF
    np.testing.assert_allclose(y[1, :4], whole[1, :4], atol=1e-5)
    assert all(np.any(a) for a in jax.tree.leaves(gradient)), "a parameter is not used"


def test_the_future_changes_nothing(case):
    x = draw()
    y = case.read(x, FULL).y_BTF
    for t in range(1, T):
        changed = case.read(np.where(np.arange(T)[:, None] >= t, 1 - x, x), FULL).y_BTF
        np.testing.assert_allclose(changed[:, :t], y[:, :t], atol=1e-5)
        assert not np.allclose(changed[:, t], y[:, t], atol=1e-3)


def test_stepping_equals_reading_it_whole(case):
    x = draw()
    whole = case.read(x, FULL).y_BTF
    state = case.model.init_state(B)
    for t in range(T):
        state, y_BF = case.step(state, x[:, t])
        np.testing.assert_allclose(y_BF, whole[:, t], atol=2e-5)


def test_rows_of_different_lengths_go_on_together(case):
    """A prompt of each length first, then single steps: as if each row had been read whole."""
    x = draw()
    whole = case.read(x, LENGTHS + 2)
    prompt = case.go_on(case.model.init_state(B), np.where(REAL[..., None], x, np.nan), LENGTHS)
    state, rows = prompt.state, np.arange(B)
    np.testing.assert_allclose(prompt.y_BTF, np.where(REAL[..., None], whole.y_BTF, 0), atol=2e-5)
    last_BF = np.where(LENGTHS[:, None] > 0, np.asarray(whole.y_BTF)[rows, LENGTHS - 1], 0)
    np.testing.assert_allclose(prompt.last_BF, last_BF, atol=2e-5)
    for t in range(2):
        state, y_BF = case.step(state, x[rows, LENGTHS + t])
        np.testing.assert_allclose(y_BF, whole.y_BTF[rows, LENGTHS + t], atol=2e-5)


def test_compiling_takes_as_long_for_many_layers():
    def size(n_layers):
        model = build(*ATTENTION, f"model.encoder.n_layers={n_layers}")
        return str(jax.make_jaxpr(lambda v, x: model.apply(v, x).y_BTF)(fill(model), draw())).count("\n")

    assert size(2) == size(13)


def test_layers_are_a_loop_over_blocks():
    overrides = [*ATTENTION, "model.encoder.placement=post", "model/positions=none"]
    variables = fill(build(*overrides))
    y = jax.jit(build(*overrides).apply)(variables, draw()).y_BTF
    one, x = jax.jit(build(*overrides, "model.encoder.n_layers=1").apply), draw()
    for n in range(N):
        x = one(jax.tree.map(lambda a, n=n: a[n : n + 1], variables), x).y_BTF
    np.testing.assert_allclose(y, x, atol=1e-5)


@pytest.mark.slow
def test_without_positions_it_sees_a_set():
    """Attention in both directions without positions: permuted steps are permuted outputs; with positions not."""
    order = np.array([3, 0, 6, 2, 5, 1, 4])
    for positions in names("model/positions"):
        model = build(*ATTENTION, "model.encoder.mixer.causal=false", f"model/positions={positions}")
        variables, read = fill(model), jax.jit(model.apply)
        permuted = read(variables, draw()[:, order]).y_BTF
        same = np.allclose(permuted, read(variables, draw()).y_BTF[:, order], atol=1e-4)
        assert same == (positions == "none"), positions


def test_dropout_is_for_training_alone_and_shows_no_future():
    model = build(*ATTENTION, "model.encoder.dropout=0.4", "model.encoder.mixer.dropout=0.4")
    variables, x = fill(model), draw()

    @jax.jit
    def both(x, seed):
        key = {"dropout": jax.random.key(seed)}
        dropped = model.apply(variables, x, train=True, rngs=key).y_BTF
        return dropped, model.apply(variables, x, rngs=key).y_BTF

    (first, whole), (second, same) = both(x, 0), both(x, 1)
    assert np.array_equal(whole, same) and not np.allclose(first, second)
    assert np.array_equal(first, both(x, 0)[0]) and not np.allclose(first, whole)
    changed = both(np.where(np.arange(T)[:, None] > 3, 100 + x, x), 0)[0]
    np.testing.assert_allclose(changed[:, :4], first[:, :4], atol=1e-5)
    assert not np.allclose(changed[:, 4:], first[:, 4:], atol=0.1)


def test_a_row_that_takes_more_than_its_cache_gets_nan_and_no_other():
    layer = SelfAttention(D, n_heads=3, max_length=4)
    variables = fill(layer)
    state = layer.init_state(B)
    lengths = np.array([3, 4, 5, 0, 7])
    encoding = jax.jit(layer.apply)(variables, draw(), lengths, state=state)
    assert np.array_equal(np.isnan(encoding.y_BTF).any((1, 2)), lengths > 4)
    _, y = jax.jit(lambda state, x: layer.apply(variables, state, x, method="step"))(encoding.state, draw()[:, 0])
    assert np.array_equal(np.isnan(y).any(1), lengths + 1 > 4)


@pytest.mark.parametrize("cut", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 5])
def test_a_window_is_all_that_its_cache_holds(cut):
    """Whatever a row has taken before, several steps and single ones, and beyond max_length."""
    layer = SelfAttention(D, n_heads=3, window=3, max_length=4)
    variables, lengths = fill(layer), np.array([3, 0, 7, 5, 2])
    state = layer.init_state(B)
    assert layer.room() is None and state.k_BGSK.shape == (B, 3, 3, 4)
    x_BTD = np.concatenate([draw(), draw()[:, ::-1]], 1)
    taken = np.minimum(lengths, cut)
    read = jax.jit(layer.apply)
    first = read(variables, x_BTD[:, :cut], taken, state=state)
    rest = np.stack([x_BTD[b, n : n + 5] for b, n in enumerate(taken)])
    second = read(variables, rest[:, :4], state=first.state)
    _, y_BF = jax.jit(lambda state, x: layer.apply(variables, state, x, method="step"))(second.state, rest[:, 4])
    whole = np.stack([np.concatenate([x_BTD[b, :n], rest[b], x_BTD[b, : cut - n]]) for b, n in enumerate(taken)])
    y_BTD = read(variables, whole).y_BTF
    for b, n in enumerate(taken):
        got = np.concatenate([first.y_BTF[b, :n], second.y_BTF[b], y_BF[b : b + 1]])
        np.testing.assert_allclose(got, y_BTD[b, : n + 5], atol=1e-5)


def test_weights_are_handed_out_on_request():
    model = build(*ATTENTION)
    _, sown = jax.jit(lambda v: model.apply(v, draw(), LENGTHS, mutable=["intermediates"]))(fill(model))
    (weights,) = jax.tree.leaves(sown)
    assert weights.shape == (N, B, 3, T, T)
    rows = np.asarray(weights).sum(-1)[:, :, 0]
    np.testing.assert_allclose(rows[:, REAL], 1, atol=1e-5)
    assert not np.any(np.triu(weights, 1))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.encoder.mixer.n_heads=5"], "features is 12 and n_heads is 5"),
        ([*ATTENTION, "model.encoder.mixer.n_kv_heads=2"], "n_heads is 3 and n_kv_heads is 2"),
        (["model.encoder.activation=gelo"], "nearest is 'gelu'"),
        (["model.encoder.dropout=1.0"], "dropout is 1.0"),
        (["model.encoder.mixer.window=0"], "window is 0"),
    ],
)
def test_bad_settings_are_refused(overrides, message):
    with pytest.raises((UserError, InstantiationException), match=message):
        model = build(*overrides)
        jax.eval_shape(model.init, jax.random.key(0), draw())


def test_inputs_of_another_width_are_refused():
    with pytest.raises(UserError, match="features=12 got inputs of width 5"):
        jax.eval_shape(build(*ATTENTION).init, jax.random.key(0), draw()[..., :5])


def test_it_keeps_the_dtype_of_its_parameters():
    model = build(*ATTENTION)
    variables = jax.tree.map(lambda a: a.astype(jnp.bfloat16), fill(model))
    read = jax.jit(model.apply)
    narrow = read(variables, draw().astype(jnp.bfloat16)).y_BTF
    assert narrow.dtype == jnp.bfloat16
    wide = read(jax.tree.map(lambda a: a.astype(jnp.float32), variables), draw()).y_BTF
    np.testing.assert_allclose(narrow.astype(np.float32), wide, atol=0.15)
