"""Laws of masked language modelling: what is chosen, what is shown of it, what counts, and the solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.data.text import split_by_position
from seqlab.evaluation.evaluate import finalise
from seqlab.tasks.drawing import LARGE
from seqlab.tasks.masked_language_model import MaskedLanguageModel
from seqlab.types import UserError

TEXT = "".join(np.random.default_rng(0).choice(list("abcdefg"), 1009))


@pytest.fixture
def masked(tmp_path):
    """Build the task of a text."""

    def masked(text=TEXT, **fields):
        path = tmp_path / "text.txt"
        path.write_text(text, encoding="utf-8")
        return MaskedLanguageModel(str(path), **fields)

    return masked


def draw(task, n=997):
    return jax.tree.map(np.asarray, jax.jit(task.sample, static_argnums=1)(jax.random.key(0), n))


def measured(task, outputs, batch):
    return {name: float(value) for name, value in finalise(jax.jit(task.measure)(outputs, batch)).items()}


@pytest.mark.parametrize("rates", ({}, {"rate": 0.31, "masked": 0.5, "random": 0.37}))
def test_shares_are_those_asked_for(masked, rates):
    task = masked(length=53, **rates)
    batch = draw(task)
    chosen = batch.weights == 1
    inputs, targets = batch.inputs[chosen], batch.targets[chosen]
    hidden, V = inputs == task.mask, task.n_outputs
    assert set(batch.weights.flat) == {0, 1} and task.vocab_size == V + 1 == 9

    def assert_share(events, p):
        assert abs(events.mean() - p) < 4 * np.sqrt(p * (1 - p) / events.size)

    assert_share(chosen, task.rate)
    assert_share(chosen[:, 0], task.rate)
    assert_share(chosen[:, -1], task.rate)
    assert_share(hidden, task.masked)
    # Any of the V tokens, the right one too.
    assert_share(~hidden & (inputs != targets), task.random * (1 - 1 / V))
    for token in range(V):
        others = targets != token
        assert_share(inputs[others] == token, task.random / V)


def test_what_is_not_chosen_is_shown_as_it_is(masked):
    task = masked(length=53)
    batch = draw(task)
    ids = task.vocabulary.encode(split_by_position(TEXT)[0])
    windows = {tuple(row) for row in np.lib.stride_tricks.sliding_window_view(ids, 53)}
    assert {tuple(row) for row in batch.targets} <= windows
    kept = batch.weights == 0
    np.testing.assert_array_equal(batch.inputs[kept], batch.targets[kept])


def test_each_token_of_the_evaluation_text_stands_in_one_window(masked):
    task = masked(length=11)
    for batch, piece in zip(task.evaluation_sets().values(), split_by_position(TEXT)[1:], strict=True):
        ids = task.vocabulary.encode(piece)
        assert len(ids) % 11 and int(batch.lengths.sum()) == len(ids)
        real = np.arange(11) < np.asarray(batch.lengths)[:, None]
        np.testing.assert_array_equal(np.asarray(batch.targets)[real], ids)
        assert not np.asarray(batch.weights)[~real].any()


def test_the_loss_ignores_what_was_not_chosen(masked):
    task = masked(length=11)
    batch = task.evaluation_sets()["test"]
    outputs = jax.random.normal(jax.random.key(1), (*batch.inputs.shape, task.n_outputs))
    chosen_BT1 = batch.weights[..., None] > 0

    @jax.jit
    def run(outputs):
        return jax.value_and_grad(lambda outputs: task.measure(outputs, batch)["loss"][0])(outputs)

    (loss, gradient), told = run(outputs), measured(task, outputs, batch)
    garbage = jnp.where(chosen_BT1, outputs, jnp.nan)
    jax.tree.map(np.testing.assert_array_equal, run(garbage), (loss, gradient))
    assert measured(task, garbage, batch) == told
    assert (np.any(gradient, -1) == np.asarray(chosen_BT1)[..., 0]).all()
    assert told["loss"] == pytest.approx(float(loss / batch.weights.sum()), rel=1e-5)
    assert told["perplexity"] == pytest.approx(np.exp(told["loss"]), rel=1e-5)


def test_a_model_that_copies_its_input_gains_nothing_at_masked_places(masked):
    task = masked(length=53)
    batch = draw(task)
    copied = LARGE * jax.nn.one_hot(batch.inputs, task.n_outputs)  # the mask is none of them
    at_masks = batch.replace(weights=batch.weights * (batch.inputs == task.mask))
    assert measured(task, copied, at_masks)["loss"] == pytest.approx(np.log(task.n_outputs), rel=1e-5)
    everywhere = measured(task, copied, batch)
    assert everywhere["loss"] > np.log(task.n_outputs)
    assert everywhere["accuracy"] < 0.4


def test_the_solver_is_the_posterior_of_a_chain(masked):
    """Where each token tells the next, one neighbour is enough, and a token that fits none is known to be replaced."""
    task = masked("abcdefg" * 301, length=53)
    batch = task.evaluation_sets()["test"]
    solved = measured(task, jax.jit(task.solve)(batch), batch)
    assert solved["accuracy"] > 0.95 and solved["loss"] < 0.2
    # Where nothing is known of a token but that it is hidden, its frequency is all there is to say.
    blind = batch.replace(inputs=jnp.full_like(batch.inputs, task.mask), lengths=None)
    p_V = jax.nn.softmax(jax.jit(task.solve)(blind)[0, 0])
    ids = task.ids["train"]
    np.testing.assert_allclose(p_V, (np.bincount(ids, minlength=8) + 1) / (len(ids) + 8), rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": 0}, "masked_language_model has rate 0; expected more than 0 and at most 1"),
        ({"rate": 1.5}, "has rate 1.5;"),
        ({"masked": 0.8, "random": 0.3}, "has masked 0.8 and random 0.3; expected shares"),
        ({"random": -0.1}, "has masked 0.8 and random -0.1;"),
        ({"length": 102}, "length 102, but the validation piece of .* has 101 tokens; expected at least 102"),
    ],
)
def test_rates_that_are_none_are_refused(masked, fields, message):
    with pytest.raises(UserError, match=message):
        masked(**fields)
