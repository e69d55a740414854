"""Laws of the encoder-decoder, over every YAML in conf/model/decoder and conf/model/teacher."""

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sparing import sparing

from seqlab.models.teacher import Always, Exponential, InverseSigmoid, Linear
from seqlab.tasks.objectives import cross_entropy
from seqlab.types import UserError

CONF = Path(__file__).parents[2] / "conf"
DECODERS = sorted(path.stem for path in (CONF / "model/decoder").glob("*.yaml"))
TEACHERS = sorted(path.stem for path in (CONF / "model/teacher").glob("*.yaml"))
B, S, T, V = 5, 7, 3, 11
LENGTHS = np.array([S, 3, 1, 5, 2])
TARGET_LENGTHS = np.array([T, 1, 2, 3, 2])
WEIGHTS = (np.arange(T) < TARGET_LENGTHS[:, None]).astype(np.float32)
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def build(compose):
    @cache
    def built(*overrides):
        sizes = "task.n_symbols=7", "task.vocab_size=10", "+debug=tiny"
        model = instantiate(compose_model(compose, "task=copy_sequence", *sizes, *overrides))
        init = partial(model.init, train=False)
        shapes = jax.eval_shape(init, KEY, jnp.zeros((B, S), int), LENGTHS, jnp.zeros((B, T), int), WEIGHTS)["params"]
        rng = np.random.default_rng(7)
        return model, jax.tree.map(lambda a: rng.normal(scale=0.5, size=a.shape).astype(a.dtype), shapes)

    return built


def compose_model(compose, *overrides):
    config = compose(*overrides)
    config.model.n_outputs, config.model.inputs.vocab_size = V, V - 1
    return OmegaConf.create(OmegaConf.to_container(config.model, resolve=True))


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, V - 1, (B, S)), rng.integers(0, V, (B, T))


def told(model, params, sources, targets):
    return model.apply({"params": params}, sources, LENGTHS, targets, WEIGHTS, train=False)


@pytest.mark.parametrize("decoder", sparing(DECODERS, {"fixed", "context", "hard", "transformer"}.__contains__))
def test_writing_step_by_step_equals_being_told(build, decoder):
    model, params = build(f"model/decoder={decoder}")
    sources, targets = draw()

    @jax.jit
    def stepped(params, sources, targets):
        apply = partial(model.apply, {"params": params})
        state, logits_BV = apply(sources, LENGTHS, method="begin")
        all_logits = [logits_BV]
        for t in range(T - 1):
            state, logits_BV = apply(state, targets[:, t], method="step")
            all_logits.append(logits_BV)
        return jnp.stack(all_logits, 1)

    whole = jax.jit(partial(told, model))(params, sources, targets)
    real = WEIGHTS > 0
    np.testing.assert_allclose(stepped(params, sources, targets)[real], whole[real], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decoder", sparing(DECODERS, {"fixed", "context"}.__contains__))
def test_the_targets_ahead_and_all_padding_change_nothing(build, decoder):
    model, params = build(f"model/decoder={decoder}")
    sources, targets = draw()
    logits = jax.jit(partial(told, model))
    expected = logits(params, sources, targets)
    # What a model says of a target depends on those before it alone: it cannot copy what it is asked for.
    for t in range(T):
        changed = targets.copy()
        changed[:, t:] = (changed[:, t:] + 1) % V
        got = logits(params, sources, changed)
        np.testing.assert_array_equal(got[:, : t + 1], expected[:, : t + 1])
        assert t == T - 1 or np.abs(got[0, t + 1] - expected[0, t + 1]).max() > 1e-6
    padded = np.where(np.arange(S) < LENGTHS[:, None], sources, V + 999)
    past_the_end = np.where(WEIGHTS > 0, targets, -7)
    got = logits(params, padded, past_the_end)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got[WEIGHTS > 0], expected[WEIGHTS > 0], rtol=1e-5, atol=1e-6)
    other, _ = draw(1)
    assert np.abs(logits(params, other, targets) - expected)[:, 0].max() > 1e-6


def in_training(model, params, sources, targets, step):
    variables = {"params": params, "training": {"step": step}}
    logits, _ = model.apply(
        variables, sources, LENGTHS, targets, WEIGHTS, train=True, rngs={"dropout": KEY}, mutable="losses"
    )
    return logits


# What hard attention draws in training is not what it takes in evaluation.
@pytest.mark.parametrize(
    "decoder", sparing([name for name in DECODERS if name != "hard"], {"fixed", "context", "transformer"}.__contains__)
)
def test_a_teacher_leaves_by_its_schedule(build, decoder):
    model, params = build(f"model/decoder={decoder}", "model/teacher=linear", "model.teacher.steps=10")
    sources, targets = draw()
    learn = jax.jit(partial(in_training, model))
    real = WEIGHTS > 0
    expected = jax.jit(partial(told, model))(params, sources, targets)
    np.testing.assert_allclose(learn(params, sources, targets, 0)[real], expected[real], rtol=1e-4, atol=1e-5)
    # Left alone, it goes on from what it said itself.
    alone, other = learn(params, sources, targets, 10), learn(params, sources, (targets + 1) % V, 10)
    np.testing.assert_array_equal(alone, other)
    assert np.abs(alone - expected)[real].max() > 1e-5


def test_half_of_the_time_it_is_told_half_of_the_symbols(build):
    model, params = build("model/decoder=fixed", "model/teacher=linear", "model.teacher.steps=10")
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, V - 1, (997, S)), rng.integers(0, V, (997, 2))
    args = sources, np.full(997, S), targets, np.ones((997, 2))
    learn = jax.jit(
        lambda step: model.apply(
            {"params": params, "training": {"step": step}}, *args, train=True, rngs={"dropout": KEY}, mutable="losses"
        )[0]
    )
    taught = np.isclose(learn(5)[:, 1], learn(0)[:, 1], atol=1e-6).all(-1)
    # It says the target by itself in one of eleven cases.
    np.testing.assert_allclose(taught.mean(), 0.5 + 0.5 / V, atol=0.06)


def test_schedules_by_hand():
    np.testing.assert_allclose([Linear(10, 0.2)(s) for s in (0, 5, 9)], [1, 0.5, 0.2], rtol=1e-6)
    np.testing.assert_allclose([Exponential(0.5)(s) for s in (0, 1, 3)], [1, 0.5, 0.125], rtol=1e-6)
    k, s = 7.0, 11
    np.testing.assert_allclose(InverseSigmoid(k)(s), k / (k + np.exp(s / k)), rtol=1e-5)
    assert 0 < InverseSigmoid(1)(jnp.int32(10**6)) < 1e-30 and InverseSigmoid(1e3)(0) > 0.99


@pytest.mark.parametrize("teacher", TEACHERS)
def test_every_teacher_begins_by_telling(teacher):
    config = OmegaConf.merge(
        {"trainer": {"steps": 7}}, {"node": OmegaConf.load(CONF / f"model/teacher/{teacher}.yaml")}
    )
    schedule = instantiate(config.node)
    if isinstance(schedule, Always):
        return
    shares = np.array([schedule(step) for step in (0, 1, 7, 10**4)])
    assert shares[0] > 0.95
    assert (np.diff(shares) <= 0).all() and shares[-1] < 0.01


@pytest.mark.parametrize(
    ("build_it", "message"),
    [
        (lambda: Linear(0), "steps 0; expected at least 1"),
        (lambda: Linear(5, 1.5), "least 1.5; expected a probability"),
        (lambda: Exponential(1.0), "k 1.0; expected a number between 0 and 1"),
        (lambda: InverseSigmoid(0.5), "k 0.5; expected at least 1"),
    ],
)
def test_schedules_that_are_none_are_refused(build_it, message):
    with pytest.raises(UserError, match=message):
        build_it()


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["always", pytest.param("linear", marks=pytest.mark.slow)])
def test_where_to_look_is_learned_from_draws(build, teacher):
    """The term of the choices has no value, and is all that moves the scores of hard attention and its baseline."""
    model, params = build("model/decoder=hard", f"model/teacher={teacher}")
    sources, targets = draw()

    def losses(params, with_term):
        logits, sown = model.apply(
            {"params": params, "training": {"step": 500}},
            *(sources, LENGTHS, targets, WEIGHTS),
            train=True,
            rngs={"dropout": KEY},
            mutable="losses",
        )
        term = sum(jax.tree.leaves(sown["losses"]))
        return cross_entropy(logits, targets, WEIGHTS)[0] + with_term * term, term

    gradient = jax.jit(jax.grad(losses, has_aux=True))
    (with_term, value), (without, _) = gradient(params, 1.0), gradient(params, 0.0)
    assert value == 0
    for name in ("W", "U", "fit", "baseline"):
        size = [max(np.abs(leaf).max() for leaf in jax.tree.leaves(g["decoder"][name])) for g in (with_term, without)]
        assert size[0] > 1e-4 and size[1] == 0


def test_a_tied_head_is_the_table_of_the_targets(build):
    model, params = build("model/decoder=fixed", "model.tied=true")
    assert "head" not in params and params["targets"]["E"]["embedding"].shape[0] == V + 1
    sources, targets = draw()
    free = model.clone(tied=False)
    head = {"kernel": params["targets"]["E"]["embedding"][:V].T, "bias": params["bias"]}
    free_params = {**{k: v for k, v in params.items() if k != "bias"}, "head": head}
    logits = jax.jit(partial(told, free))(free_params, sources, targets)
    np.testing.assert_allclose(jax.jit(partial(told, model))(params, sources, targets), logits, rtol=1e-5, atol=1e-6)


def test_a_table_of_another_width_is_not_tied(build):
    with pytest.raises(UserError, match="gives out 16 features and the table of the targets is 8 wide"):
        build("model/decoder=soft", "model.tied=true")
