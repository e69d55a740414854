"""Laws of every YAML in conf/model, with every YAML of its inputs that read a sequence, and of its pools."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.errors import InstantiationException
from kinds import CONF, LENGTHS, PADDED, VOCAB, B, build_node, draw, inputs_reading, kind_of
from sparing import sparing

from seqlab.models.classifier import Classifier
from seqlab.models.tagger import Tagger
from seqlab.nn.inputs import TokenInputs
from seqlab.types import UserError

READABLE = inputs_reading("ids", "vectors", "video")  # test_image_inputs.py has the laws of those that read images


def names(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def build(model, *overrides):
    """Compose and instantiate a tiny model, whose cell compiles fast, and say what it reads."""
    small = ["model/cell=rnn", "model.encoder.features=5", "model.inputs.features=3"]
    model = build_node(f"model/{model}", "model", *small, *overrides)
    return model, kind_of(model.inputs)


def fill(model, x):
    """Draw every parameter, biases too, from a normal distribution, which takes no compilation."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), x, train=False))
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(scale=0.5, size=a.shape), a.dtype), shapes)


# A model with a decoder is taught by its targets: test_encoder_decoder.py.
MODELS = [name for name in names("model") if "decoder: " not in (CONF / f"model/{name}.yaml").read_text()]
CASES: list[tuple[str, ...]] = [(model, f"model/inputs={inputs}") for model in MODELS for inputs in READABLE]
# The first output of an encoder that reads forwards has seen one step.
DIRECTION = {"first": "model.encoder.layer.reverse=true"}
CASES += [
    ("classifier", f"model/pool={pool}", DIRECTION.get(pool, "model/layer=bidirectional"))
    for pool in names("model/pool")
]


def is_spared(case):
    """Inputs that a tagger has, too, and those that test_pretrained.py is about."""
    inputs = case[1].removeprefix("model/inputs=")
    return inputs == "pretrained" or (case[0] != "tagger" and inputs not in (case[1], "token"))


TIED = ["model.tied=true", "model.inputs.features=5", f"model.n_outputs={VOCAB}"]
CASES += [("tagger", *TIED)]


@pytest.fixture(scope="module")
def with_run(make_run):
    """Add the run that pretrained inputs are read from."""

    def with_run(overrides):
        return [*overrides, *(f"model.inputs.run={make_run()}" for o in overrides if o == "model/inputs=pretrained")]

    return with_run


@pytest.fixture(scope="module", params=sparing(CASES, is_spared), ids=" ".join)
def case(request, with_run):
    """A model, its parameters, what it reads, and a jitted map to (logits, gradients)."""
    model, kind = build(*with_run(request.param))

    @jax.jit
    def run(variables, x, lengths):
        # The cotangent of what lies past the length is not zero: the model itself must stop it.
        logits, pull = jax.vjp(lambda variables: model.apply(variables, x, lengths, train=False), variables)
        return logits, pull(jnp.ones_like(logits))[0]

    return model, fill(model, draw(kind)), kind, run


def test_padding_changes_nothing(case):
    _, variables, kind, run = case
    logits, gradients = run(variables, draw(kind), LENGTHS)
    jax.tree.map(np.testing.assert_array_equal, (logits, gradients), run(variables, draw(kind, 10**6), LENGTHS))
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((logits, gradients)))
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.any(gradient) != ("frozen" in jax.tree_util.keystr(path)), f"{path} is not used"


def test_length_zero_gives_what_no_evidence_gives(case):
    _, variables, kind, run = case
    logits, _ = run(variables, draw(kind), LENGTHS)
    if logits.ndim == 3:
        assert (np.asarray(logits)[PADDED] == 0).all() and (np.asarray(logits)[~PADDED] != 0).all()
    else:
        np.testing.assert_array_equal(logits[2], variables["params"]["head"]["bias"])


def test_a_row_does_not_depend_on_its_batch(case):
    _, variables, kind, run = case
    x = draw(kind)
    logits, _ = run(variables, x, LENGTHS)
    others = np.array([1, 0, 0, 0, 0])
    alone, _ = run(variables, x * others.reshape(-1, *[1] * (x.ndim - 1)), LENGTHS * others)
    np.testing.assert_allclose(alone[0], logits[0], rtol=1e-5, atol=1e-5)


def test_padding_behind_equals_full_rows_without_lengths(case):
    model, variables, kind, run = case
    x, n = draw(kind), 5
    logits, _ = run(variables, x, np.full(B, n))
    full = jax.jit(lambda x: model.apply(variables, x, train=False))(x[:, :n])
    np.testing.assert_allclose(logits[:, :n] if logits.ndim == 3 else logits, full, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "overrides",
    sparing([*([f"model/inputs={inputs}"] for inputs in READABLE), TIED], ["model/inputs=pretrained"].__eq__),
)
def test_stepping_a_tagger_equals_reading_the_row(overrides, with_run):
    model, kind = build("tagger", *with_run(overrides))
    x = draw(kind)
    variables = fill(model, x)

    @jax.jit
    def walk(variables, x):
        state, first = model.apply(variables, x[:, :1], method="begin")
        step = lambda state, x: model.apply(variables, state, x, method="step")  # noqa: E731
        return jnp.concatenate([first[None], jax.lax.scan(step, state, x[:, 1:].swapaxes(0, 1))[1]]).swapaxes(0, 1)

    whole = jax.jit(lambda variables, x: model.apply(variables, x, train=False))(variables, x)
    np.testing.assert_allclose(walk(variables, x), whole, rtol=1e-5, atol=1e-6)


def test_a_prompt_is_read_up_to_its_length():
    model, kind = build("tagger")
    x = draw(kind)
    variables = fill(model, x)
    whole = jax.jit(lambda variables, x: model.apply(variables, x, LENGTHS, train=False))(variables, x)
    begin = jax.jit(lambda variables, x: model.apply(variables, x, LENGTHS, method="begin"))
    state, logits = begin(variables, x)
    some = LENGTHS > 0
    np.testing.assert_allclose(logits[some], whole[some, LENGTHS[some] - 1], rtol=1e-5, atol=1e-6)
    again = begin(variables, draw(kind, 10**6))
    jax.tree.map(np.testing.assert_array_equal, (state, logits), again)
    assert all(len(leaf) == B for leaf in jax.tree.leaves(state))


def test_a_tied_head_is_the_table_of_the_inputs():
    """In value, and its gradient is that of both of its places in a model with a head of the same numbers."""
    tied, _ = build("tagger", *TIED)
    untied, _ = build("tagger", *TIED[1:])
    x, V, D = draw("ids"), VOCAB, 5
    params = fill(tied, x)["params"]
    E_VD, b_V = params["inputs"]["E"]["embedding"], params["bias"]
    apart = {**params, "head": {"kernel": E_VD.T, "bias": b_V}}
    del apart["bias"]
    assert sorted(params) == ["bias", "encoder", "inputs"] and jax.tree.leaves(params["inputs"])[0].shape == (V, D)
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(fill(model, x))) for model in (tied, untied)]
    assert sizes[1] - sizes[0] == V * D

    def run(model):
        loss = lambda params: jnp.sin(model.apply({"params": params}, x, LENGTHS, train=False)).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(loss))

    (value, d), (value_apart, d_apart) = run(tied)(params), run(untied)(apart)
    np.testing.assert_allclose(value, value_apart, rtol=1e-5)
    both = d_apart["inputs"]["E"]["embedding"] + d_apart["head"]["kernel"].T
    np.testing.assert_allclose(d["inputs"]["E"]["embedding"], both, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d["bias"], d_apart["head"]["bias"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["model/inputs=linear"], "LinearInputs has no table"),
        (["model.inputs.features=3"], "11 outputs and an encoder of width 5, but the table .* has 11 rows of width 3"),
        (["model.n_outputs=2"], "2 outputs and an encoder of width 5, but the table .* has 11 rows of width 5"),
        (["model/layer=bidirectional"], "an encoder of width 10, but the table"),
    ],
)
def test_what_cannot_be_tied_is_refused(overrides, told):
    with pytest.raises((UserError, InstantiationException), match=told):
        model, kind = build("tagger", *TIED, *overrides)
        fill(model, draw(kind))


@pytest.mark.parametrize("name", MODELS)
def test_dropout_before_the_head_acts_in_training_only(name):
    rate = 0.3
    model, kind = build(name, f"model.dropout={rate}")
    x = draw(kind)
    variables = fill(model, x)

    @jax.jit
    def run():
        keys = jax.random.split(jax.random.key(1), 499)
        many = jax.vmap(lambda key: model.apply(variables, x, train=True, rngs={"dropout": key}))(keys)
        return model.apply(variables, x, train=False), many

    # The head is linear, so that what dropout changes is right on average.
    expected, many = run()
    assert many.std(0).min() > 0.001
    np.testing.assert_allclose(many.mean(0), expected, atol=5 * float(many.std(0).max()) / 499**0.5)


@pytest.mark.parametrize("model", [Classifier, Tagger])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"n_outputs": 0}, "n_outputs 0;"),
        ({"n_outputs": None}, "n_outputs None;"),
        ({"dropout": -0.1}, "dropout is -0.1,"),
        ({"dropout": 1.0}, "dropout is 1.0,"),
    ],
)
def test_mistakes_are_told(model, wrong, told):
    parts = {"inputs": TokenInputs(11, 3), "encoder": None} | ({"pool": None} if model is Classifier else {})
    with pytest.raises(UserError, match=told):
        model(**parts, **({"n_outputs": 2} | wrong))
