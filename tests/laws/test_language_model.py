# mypy: disable-error-code="arg-type,attr-defined,index"
"""Laws of language modelling: windows, the shift, what is measured, and the solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.build import build
from seqlab.data.text import split_by_position
from seqlab.evaluation.evaluate import finalise
from seqlab.tasks.drawing import LARGE
from seqlab.tasks.language_model import LanguageModel
from seqlab.types import UserError

DISTINCT = "".join(chr(0x4E00 + i) for i in range(1009))


@pytest.fixture
def model(tmp_path):
    """Build the task of a text."""

    def model(text, **fields):
        path = tmp_path / "text.txt"
        path.write_text(text, encoding="utf-8")
        return LanguageModel(str(path), **fields)

    return model


def measured(task, outputs, batch):
    return {name: float(value) for name, value in finalise(jax.jit(task.measure)(outputs, batch)).items()}


@pytest.mark.parametrize("kind", ("char", "byte", "word"))
@pytest.mark.parametrize("length", (1, 5, 11, 12))
def test_evaluation_predicts_each_token_but_the_first_once(model, kind, length):
    task = model("be or not, to be. " * 37, kind=kind, length=length)
    pieces = split_by_position("be or not, to be. " * 37)
    for batch, piece in zip(task.evaluation_sets().values(), pieces[1:], strict=True):
        ids = task.vocabulary.encode(piece)
        counted = np.asarray(batch.weights) > 0
        np.testing.assert_array_equal(np.asarray(batch.inputs)[counted], ids[:-1])
        np.testing.assert_array_equal(np.asarray(batch.targets)[counted], ids[1:])
        assert (batch.lengths is None) == ((len(ids) - 1) % length == 0)


def test_n_eval_keeps_the_first_windows(model):
    task, all_of = model(DISTINCT, length=7, n_eval=3), model(DISTINCT, length=7)
    some, whole = task.evaluation_sets()["test"], all_of.evaluation_sets()["test"]
    np.testing.assert_array_equal(some.inputs, whole.inputs[:3])
    assert some.lengths is None
    assert len(model(DISTINCT, length=7, n_eval=997).evaluation_sets()["test"].inputs) == len(whole.inputs)


def test_training_draws_every_window_and_only_whole_ones(model):
    task = model(DISTINCT, length=7)
    batch = jax.jit(task.sample, static_argnums=1)(jax.random.key(0), 20011)
    ids = task.vocabulary.encode(split_by_position(DISTINCT)[0])
    assert len(ids) == 807
    starts = np.asarray(batch.inputs)[:, 0] - ids[0]
    assert set(starts.tolist()) == set(range(807 - 7))
    np.testing.assert_array_equal(batch.inputs, ids[starts[:, None] + np.arange(7)])
    np.testing.assert_array_equal(batch.targets, ids[starts[:, None] + np.arange(1, 8)])
    assert (batch.lengths is None, batch.inputs.dtype) == (True, jnp.int32)


def test_the_vocabulary_is_that_of_the_training_piece(model):
    text = "ab" * 211 + "c" * 7 + "ab" * 29
    task = model(text, length=3)
    assert task.vocabulary.tokens == ("<unk>", "a", "b")
    ids = np.concatenate([np.asarray(batch.targets).ravel() for batch in task.evaluation_sets().values()])
    assert (ids == 0).sum() >= 7
    assert model(text, length=3, max_size=2).vocab_size == 2


def test_a_model_that_copies_its_input_cannot_win(model):
    task = model("abcdefg" * 101, length=11)
    batch = task.evaluation_sets()["test"]
    copied = measured(task, LARGE * jax.nn.one_hot(batch.inputs, task.n_outputs), batch)
    uniform = measured(task, jnp.zeros((*batch.inputs.shape, task.n_outputs)), batch)
    assert uniform["loss"] == pytest.approx(np.log(8))
    assert copied["loss"] > 10 * uniform["loss"]
    assert measured(task, task.solve(batch), batch)["loss"] < 0.1


def test_a_known_bigram_source_has_the_perplexity_of_its_entropy(model):
    V, n = 7, 500_009
    rng = np.random.default_rng(0)
    p_VV = rng.dirichlet(np.full(V, 0.5), V)
    cumulative, u_N, state, drawn = p_VV.cumsum(1), rng.random(n), 0, []
    for u in u_N:
        state = min(int(cumulative[state].searchsorted(u)), V - 1)
        drawn.append("abcdefg"[state])
    stationary_V = np.linalg.matrix_power(p_VV, 997)[0]
    entropy = -(stationary_V[:, None] * p_VV * np.log(np.maximum(p_VV, 1e-300))).sum()
    task = model("".join(drawn), length=61)
    perplexities = [measured(task, task.solve(b), b)["perplexity"] for b in task.evaluation_sets().values()]
    assert np.mean(perplexities) == pytest.approx(np.exp(entropy), rel=0.01)
    assert np.exp(entropy) < 0.8 * V


def test_the_solver_gives_probabilities_also_after_what_was_never_seen(model):
    task = model("ab" * 211, length=3)
    p_VV = np.exp(jax.jit(task.solve)(task.evaluation_sets()["test"].replace(inputs=jnp.arange(3)[None]))[0])
    np.testing.assert_allclose(p_VV.sum(-1), 1, rtol=1e-6)
    assert p_VV.min() > 0
    assert p_VV[1, 2] > 0.99


@pytest.mark.parametrize("kind", ("char", "byte", "word"))
def test_what_is_measured_counts_tokens_and_characters(model, kind):
    text = "aé日 " * 211
    task = model(text, kind=kind, length=2)
    batch = task.evaluation_sets()["test"]
    values = measured(task, jnp.zeros((*batch.inputs.shape, task.n_outputs)), batch)
    assert values["loss"] == pytest.approx(np.log(task.vocab_size), rel=1e-5)
    assert values["perplexity"] == pytest.approx(task.vocab_size, rel=1e-5)
    if kind == "word":
        assert "bits_per_character" not in values
    else:
        # The first token is not predicted, so one character is not counted, whatever is left of its bytes.
        piece = split_by_position(text)[2]
        n_tokens = len(piece if kind == "char" else piece.encode()) - 1
        bits = np.log2(task.vocab_size) * n_tokens / (len(piece) - 1)
        assert values["bits_per_character"] == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "chars"}, r"language_model has kind 'chars'; .*nearest: char"),
        ({"length": 0}, "language_model has length 0; expected an integer of at least 1"),
        ({"length": 101}, "language_model has length 101, but the validation piece of .* has 101 tokens; .* least 102"),
        ({"kind": "byte", "max_size": 5}, "256 ids; max_size is 5"),
    ],
)
def test_what_a_text_cannot_give_is_refused(model, fields, message):
    with pytest.raises(UserError, match=message):
        model(DISTINCT, **fields)


def test_a_path_that_is_none_is_refused():
    with pytest.raises(UserError, match="language_model has path 7; expected a file or a folder"):
        LanguageModel(7)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model/layer=bidirectional",), "must not see: a bidirectional layer reads from both ends"),
        (("model.encoder.layer.reverse=true",), "must not see: a layer with reverse=true reads from the end"),
        (
            ("model/encoder=transformer", "model.encoder.mixer.causal=false"),
            "must not see: attention with causal=false",
        ),
    ],
)
def test_a_model_that_sees_what_it_is_asked_for_is_refused(compose, overrides, message):
    with pytest.raises(UserError, match=message):
        build(compose("task=char_lm", "+debug=tiny", *overrides))
