"""Laws of decoders, over every YAML in conf/model/decoder."""

from functools import cache, partial
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from sparing import in_short, sparing

from seqlab.nn.bridge import CopyBridge, TanhBridge
from seqlab.nn.cells.gru import GRU
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.decoders.fixed_context import FixedContext
from seqlab.nn.decoders.hard_attention import HardAttention
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.nn.reinforce import Choices, reinforce_loss
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.source_attention import SourceAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import Encoding, UserError

CONF = Path(__file__).parents[2] / "conf"
B, T, S, D = 5, 7, 11, 8  # D: four heads of an even width
LENGTHS, FULL = np.array([5, 4, 0, 1, 3]), np.full(B, T)
REAL = np.arange(T) < LENGTHS[:, None]
S_LENGTHS = np.array([S, 4, 7, 0, 1])
S_REAL = np.arange(S) < S_LENGTHS[:, None]

CELL = "model/cell@model.decoder.layer.layer.cell"
VARIANTS = [
    [
        "soft",
        f"{CELL}=flax_lstm",
        "model.decoder.layer.n_layers=2",
        "model.decoder.layer.residual=true",
        "model.decoder.source_attention.score._target_=seqlab.nn.scores.General",
        "model.decoder.source_attention.n_heads=2",
    ],
    [
        "hard",
        f"{CELL}=lstm",
        "model.decoder.layer.n_layers=2",
        "model.decoder.layer.dropout=0.3",
        "model.decoder.score._target_=seqlab.nn.scores.Dot",
    ],
    [
        "transformer",
        "model.decoder.placement=post",
        "model.decoder.norm=rms",
        "model.decoder.remat=true",
        "model/positions@model.decoder.positions=learned",
        "model.decoder.source_attention.n_kv_heads=2",
    ],
    ["transformer", "model/mixer@model.decoder.mixer=gru"],
]
CASES = [[path.stem] for path in sorted((CONF / "model/decoder").glob("*.yaml"))] + VARIANTS


def build(name, *overrides):
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose("config", [f"+model/decoder={name}", f"model.decoder.features={D}", *overrides])
    return instantiate(config.model.decoder)


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = draw(0, B, T, D)
ENCODERS = {
    "stacked": Stack(partial(Recurrent, cell=GRU), features=3, n_layers=2),
    "bidirectional": Stack(partial(Bidirectional, cell=LSTM), features=3),
    "transformer": Transformer(partial(SelfAttention, causal=False, n_heads=1), features=5, d_ff=3),
}


@cache
def encode(name):
    encoder, z = ENCODERS[name], draw(1, B, S, 5)
    return jax.jit(lambda: encoder.init_with_output(jax.random.key(0), z, S_LENGTHS, train=False)[0])()


SOURCE = encode("bidirectional")


def whole(decoder, source, x, lengths, train=False):
    return decoder(x, lengths, state=decoder.start(source, S_LENGTHS), train=train)


def fill(decoder, source=SOURCE):
    rng = np.random.default_rng(2)
    shapes = jax.eval_shape(lambda: decoder.init(jax.random.key(0), source, X, LENGTHS, method=whole))
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(scale=0.4, size=a.shape), a.dtype), shapes)


def same(a, b, **tolerance):
    jax.tree.map(partial(np.testing.assert_allclose, **({"rtol": 0, "atol": 2e-5} | tolerance)), a, b)


class Case:
    """A decoder, its parameters, and its programs, compiled once for all laws; in training with dropout."""

    def __init__(self, decoder):
        self.decoder, self.variables = decoder, fill(decoder)
        apply = partial(decoder.apply, self.variables)
        self.whole = jax.jit(partial(apply, method=whole))
        self.go_on = jax.jit(lambda state, x, lengths: apply(x, lengths, state=state))
        self.by_steps = jax.jit(self._by_steps)
        self.differentiate = jax.jit(self._differentiate)

    def _by_steps(self, source, x):
        first = self.decoder.apply(self.variables, source, S_LENGTHS, method="start")
        step = partial(self.decoder.apply, self.variables, method="step")
        return first, jax.lax.scan(step, first, x.swapaxes(0, 1))

    def _differentiate(self, source_y, x, lengths, weigh_y, weigh_choices):
        """Outputs in training, and the gradients of their weighted sum in parameters, source and inputs."""
        decoder, rngs = self.decoder, {"dropout": jax.random.key(0)}
        if hasattr(decoder, "dropout"):
            decoder = decoder.clone(dropout=0.3, source_attention=partial(decoder.source_attention, dropout=0.3))

        def total(variables, source_y, x):
            source = SOURCE.replace(y_BTF=source_y)
            encoding = decoder.apply(variables, source, x, lengths, True, method=whole, rngs=rngs)
            choices = sum(jnp.sum(jnp.cos(leaf)) for leaf in jax.tree.leaves(encoding.choices))
            y = encoding.y_BTF
            return jnp.sum(weigh_y * y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)) + weigh_choices * choices, y

        return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(self.variables, source_y, x)


@pytest.fixture(
    scope="module",
    params=sparing(CASES, [["context"], ["hard"], *VARIANTS].__contains__),
    ids=in_short,
)
def case(request):
    return Case(build(*request.param))


def test_stepping_equals_many_steps_at_once(case):
    many = case.whole(SOURCE, X, FULL)
    first, (last, y_TBF) = case.by_steps(SOURCE, X)
    same(y_TBF.swapaxes(0, 1), many.y_BTF)
    same(jax.tree.leaves(last), jax.tree.leaves(many.state))
    same(many.last_BF, many.y_BTF[:, -1])
    assert all(leaf.shape[0] == B for leaf in jax.tree.leaves((first, last)))
    same(case.go_on(first, X, FULL).y_BTF, many.y_BTF)


def test_rows_of_different_lengths_go_on_together(case):
    full, rows = case.whole(SOURCE, X, FULL), np.arange(B)
    short = case.whole(SOURCE, np.where(REAL[..., None], X, np.nan), LENGTHS)
    same(short.y_BTF, np.where(REAL[..., None], full.y_BTF, 0))
    assert not np.any(short.last_BF[2])
    same(short.last_BF[3], full.y_BTF[3, 0])
    rest = np.where(np.arange(T)[:, None] == 0, X[rows, LENGTHS][:, None], np.nan)
    same(case.go_on(short.state, rest, np.ones(B, int)).last_BF, full.y_BTF[rows, LENGTHS])
    assert case.decoder.room() is None or case.decoder.room() >= T


def test_padding_changes_nothing(case):
    """Neither of the source nor of the targets, whatever stands there, in outputs and gradients."""

    def run(source_padding, padding):
        source_y = np.where(S_REAL[..., None], SOURCE.y_BTF, source_padding)
        x = np.where(REAL[..., None], X, padding)
        return case.differentiate(source_y, x, LENGTHS, np.ones((1, T, 1)), 1.0)

    clean = run(0, 0)
    for garbage in (1e3, np.nan):
        same(run(garbage, garbage), clean, atol=0)
    (_, _), (gradient, dsource, dx) = clean
    assert not np.any(dsource[~S_REAL]) and not np.any(dx[~REAL])
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(clean))
    unused = [jax.tree_util.keystr(k) for k, a in jax.tree_util.tree_leaves_with_path(gradient) if not np.any(a)]
    # What moves all scores of a query alike moves no weight.
    assert all("'W_k']['bias'" in name for name in unused), f"not used: {unused}"


def test_it_does_not_see_ahead(case):
    """By perturbation and by gradient, in training, where dropout and draws stay the same."""

    def run(x, t):
        (_, y), (_, _, dx) = case.differentiate(
            SOURCE.y_BTF, x, FULL, (np.arange(T)[:, None] == t).astype(float)[None], 0.0
        )
        return y, dx

    y, _ = run(X, 0)
    for t in range(1, T):
        changed, dx = run(np.where(np.arange(T)[:, None] >= t, 1 - X, X), t - 1)
        same(changed[:, :t], y[:, :t])
        assert not np.allclose(changed[:, t], y[:, t], atol=1e-3)
        assert not np.any(dx[:, t:]) and np.any(dx[:, t - 1])


def test_rows_do_not_know_of_each_other(case):
    y = case.whole(SOURCE, X, LENGTHS).y_BTF
    other = SOURCE.replace(y_BTF=SOURCE.y_BTF.at[0].add(1), last_BF=SOURCE.last_BF.at[0].add(1))
    changed = case.whole(other, np.where(np.arange(B)[:, None, None] == 0, 1 - X, X), LENGTHS).y_BTF
    same(changed[1:], y[1:], atol=0)
    assert not np.allclose(changed[0], y[0], atol=1e-3)


@pytest.mark.parametrize("encoder", sparing(ENCODERS, "bidirectional".__eq__))
@pytest.mark.parametrize("name", [case[0] for case in CASES if len(case) == 1])
def test_every_encoder_fits(name, encoder):
    decoder, source = build(name), encode(encoder)

    def run(source):
        return decoder.init_with_output(jax.random.key(0), source, X, LENGTHS, method=whole)[0]

    shape = jax.eval_shape(run, source).y_BTF.shape
    assert shape[:2] == (B, T) and shape[2] >= D


def test_the_context_of_an_empty_source_is_zero():
    attention = SourceAttention(D, n_heads=2)

    def run(attention, s, z):
        return attention(s, attention.memory(z, S_LENGTHS))

    y = jax.jit(lambda: attention.init_with_output(jax.random.key(0), X, SOURCE.y_BTF, method=run)[0])()
    assert np.array_equal(np.any(y, (1, 2)), S_LENGTHS > 0)


@pytest.mark.parametrize("name", ["soft", "transformer"])
def test_weights_are_handed_out_on_request(name):
    decoder = build(name)
    run = jax.jit(partial(decoder.apply, method=whole, mutable=["intermediates"]))
    _, sown = run(fill(decoder), SOURCE, X, None)
    sown = sown["intermediates"]
    (weights,) = sown["layers"]["source"]["weights"] if name == "transformer" else sown["weights"]
    assert weights.shape[-4:] == (B, 4 if name == "transformer" else 1, T, S)
    some = np.broadcast_to(S_REAL.any(1)[:, None, None], weights.shape[:-1])
    same(np.asarray(weights).sum(-1), some.astype(float))
    assert not np.any(np.moveaxis(np.asarray(weights), -4, 0)[3])


def test_bridges_are_their_equations():
    state = Stack(partial(Recurrent, cell=LSTM), features=3, n_layers=2).bind({}).init_state(B)
    made, params = jax.jit(lambda: TanhBridge().init_with_output(jax.random.key(0), SOURCE, state))()
    assert jax.tree.structure(made) == jax.tree.structure(state)
    for n, leaf in enumerate(jax.tree.leaves(made)):
        W = params["params"][f"W_{n}"]
        same(leaf, np.tanh(SOURCE.last_BF @ W["kernel"] + W["bias"]))
    stacked = encode("stacked")
    decoder = FixedContext(ENCODERS["stacked"].layer, 3, CopyBridge)
    with pytest.raises(UserError, match=r"shapes \(\(3,\), \(3,\)\), but the decoder's has \(3,\).*model/bridge=tanh"):
        decoder.apply({}, stacked, method="start")
    decoder = FixedContext(partial(Stack, ENCODERS["stacked"].layer, n_layers=2), 3, CopyBridge)
    same(decoder.apply({}, stacked, method="start").layer, stacked.state, atol=0)


def test_one_parameter_set_fits_a_source_of_any_length():
    """More padding is no other source."""
    decoder = build("soft")
    wide = SOURCE.replace(y_BTF=jnp.pad(SOURCE.y_BTF, [(0, 0), (0, 2), (0, 0)], constant_values=np.nan))
    run, variables = jax.jit(partial(decoder.apply, method=whole)), fill(decoder)
    same(run(variables, wide, X, LENGTHS).y_BTF, run(variables, SOURCE, X, LENGTHS).y_BTF)


def test_steps_beyond_the_room_are_refused():
    decoder = build("transformer", "model.decoder.mixer.max_length=5")
    with pytest.raises(UserError, match="max_length is 5, but the decoder is to write 7 steps"):
        fill(decoder)
    with pytest.raises(Exception, match="causal=false"):
        build("transformer", "model.decoder.mixer.causal=false")


def hard_case():
    """A decoder of three places and two steps, in float64: the nine rows of a batch make all nine choices."""
    decoder = HardAttention(partial(Recurrent, cell=GRU), features=3, entropy_bonus=0.3)
    rng = np.random.default_rng(0)
    one = [rng.normal(size=shape) for shape in ((1, 3, 5), (1, 5), (1, 2, 2))]
    z, last, x = (jnp.asarray(np.repeat(a, 9, 0)) for a in one)
    places = np.stack(np.meshgrid(range(3), range(3)), -1).reshape(9, 2)
    noise = jnp.asarray(1e6 * np.eye(3)[places])

    def read(decoder):
        return decoder.read(x, None, noise, state=decoder.start(Encoding(z, last, None)), train=True)

    shapes = jax.eval_shape(lambda: decoder.init(jax.random.key(0), method=read))
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), shapes)
    W, targets = jnp.asarray(rng.normal(size=(8, 7))), jnp.asarray(np.repeat([[3, 5]], 9, 0))

    def run(params):
        encoding = decoder.apply(params, method=read)
        log_p = jax.nn.log_softmax(encoding.y_BTF @ W)
        return jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0], encoding.choices

    return params, run


def test_the_expected_estimate_is_the_gradient_of_the_expectation():
    with jax.enable_x64(True):
        params, run = hard_case()

        @jax.jit
        @jax.grad
        def exact(params, w_T):
            log_likelihood, choices = run(params)
            return -jnp.sum(jnp.exp(choices.log_probability_BT.sum(1)) * (log_likelihood @ w_T))

        @jax.jit
        @partial(jax.grad, has_aux=True)
        def expected(params, w_T, with_baseline):
            log_likelihood, choices = run(params)
            p = jax.lax.stop_gradient(jnp.exp(choices.log_probability_BT.sum(1)))
            choices = choices._replace(baseline_BT=choices.baseline_BT * with_baseline, bonus_BT=0 * p[:, None])
            rows = jax.tree.map(lambda a: a[:, None], (log_likelihood, choices))
            terms = jax.vmap(lambda likelihood, choices: reinforce_loss(likelihood, choices, w_T[None]))(*rows)
            return jnp.sum(p * (terms - log_likelihood @ w_T)), (p, terms)

        for weights, with_baseline in product(([1.0, 1.0], [0.0, 1.0], [0.5, 0.0]), (1.0, 0.0)):
            wanted = exact(params, jnp.asarray(weights))["params"]
            given, (p, terms) = expected(params, jnp.asarray(weights), with_baseline)
            np.testing.assert_allclose(p.sum(), 1, rtol=1e-12)
            assert p.max() < 0.9 and not np.any(terms)
            baseline = given["params"].pop("baseline")
            assert np.any(baseline["kernel"]) == with_baseline
            wanted.pop("baseline")
            assert all(np.any(wanted[name]["kernel"]) for name in ("W", "U"))
            same(given["params"], wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_without_the_estimator_it_is_not_the_gradient():
    """The likelihood's own gradient knows nothing of the choice, and an entropy bonus bends it."""
    with jax.enable_x64(True):
        params, run = hard_case()

        def own(params):
            return -run(params)[0].sum()

        def bonus(params):
            _, choices = run(params)
            zero = jnp.zeros_like(choices.bonus_BT)
            return reinforce_loss(zero, Choices(zero, zero, choices.bonus_BT), zero + 1)

        def entropy(params):
            log_π = run(params)[1].log_probability_BT[:, 0]  # of the first step, three rows for each place
            return 0.3 * 3 * jnp.sum(jnp.exp(log_π) * log_π) - run(params)[1].bonus_BT[:, 1].sum()

        assert not np.any(jax.jit(jax.grad(own))(params)["params"]["fit"]["v"])
        same(jax.jit(jax.grad(bonus))(params), jax.jit(jax.grad(entropy))(params), atol=1e-12)


def test_a_hard_decoder_draws_by_its_probabilities_and_takes_the_best_in_evaluation():
    decoder = build("hard")
    variables = fill(decoder)
    read = jax.jit(partial(decoder.apply, variables, method="read"), static_argnames="train")
    state = jax.jit(partial(decoder.apply, variables, method="start"))(SOURCE, S_LENGTHS)
    forced = []
    for place in range(S):
        noise = np.broadcast_to(1e6 * np.eye(S)[place], (B, 1, S)).astype(np.float32)
        forced.append(read(X[:, :1], None, noise, state=state, train=True).choices.log_probability_BT[:, 0])
    log_p = np.asarray(forced)[:, 1]  # of the second row, of four real places
    assert len(np.unique(log_p[:4].round(5))) == 4

    @jax.jit
    @jax.vmap
    def sample(key):
        run = partial(decoder.apply, variables, X[:, :1], None, state=state, train=True)
        return run(rngs={"dropout": key}).choices.log_probability_BT[:, 0]

    drawn = np.asarray(sample(jax.random.split(jax.random.key(0), 4001)))
    shares = (np.abs(drawn[:, 1, None] - log_p[:4]) < 1e-5).mean(0)
    np.testing.assert_allclose(shares, np.exp(log_p[:4]), atol=0.03)
    assert not np.any(drawn[:, 3]), "nothing is drawn from an empty source"
    best = jax.jit(lambda: decoder.apply(variables, X[:, :1], None, state=state).choices.log_probability_BT)()
    np.testing.assert_allclose(best[1, 0], log_p[:4].max(), atol=1e-6)
