# mypy: disable-error-code="arg-type,operator"
"""Laws of the bidirectional language model: what each direction sees, and what it is to say."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing

from seqlab.data.text import split_by_position
from seqlab.evaluation.evaluate import finalise
from seqlab.models.bilm import BiLM, reverse_rows
from seqlab.models.tagger import Tagger
from seqlab.nn.cells.rnn import RNN
from seqlab.nn.inputs import TokenInputs
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.nn.scalar_mix import ScalarMix
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.tasks.bidirectional_language_model import BidirectionalLanguageModel
from seqlab.types import UserError

V, D, B, T = 7, 5, 3, 11
LENGTHS = np.array([T, 5, 2])
STACK = partial(Stack, partial(Recurrent, RNN), features=D, n_layers=2)
BOTH_WAYS = partial(Stack, partial(Bidirectional, RNN), features=D)
TRANSFORMER = partial(Transformer, partial(SelfAttention, n_heads=1), features=D, n_layers=1)
SEES_ALL = partial(Transformer, partial(SelfAttention, n_heads=1, causal=False), features=D, n_layers=1)
IDS = np.random.default_rng(0).integers(0, V, (B, T))


def build(encoder):
    model = BiLM(TokenInputs(V, D), encoder, n_outputs=2 * V)
    return model, jax.jit(partial(model.init, train=False))(jax.random.key(0), IDS, LENGTHS)


@pytest.mark.parametrize(
    "encoder", sparing((STACK, TRANSFORMER), lambda encoder: encoder is TRANSFORMER), ids=("stack", "transformer")
)
def test_forward_sees_nothing_ahead_and_backward_nothing_behind(encoder):
    model, variables = build(encoder)
    run = jax.jit(lambda ids: model.apply(variables, ids, LENGTHS, train=False))
    before = np.asarray(run(IDS))
    for t in (0, 1, 4, T - 1):
        changed = IDS.copy()
        changed[:, t] = (changed[:, t] + 1) % V
        differs_B2T = np.abs(np.asarray(run(changed)) - before).reshape(B, T, 2, V).max(-1).swapaxes(1, 2) > 1e-7
        for row, length in zip(differs_B2T, LENGTHS, strict=True):
            if t < length:
                assert row[0].tolist() == [t <= s < length for s in range(T)]
                assert row[1].tolist() == [s <= t for s in range(T)]
            else:
                assert not row.any()


def test_it_equals_two_language_models():
    model, variables = build(STACK)
    params = variables["params"]
    assert sorted(params) == ["backward", "forward", "head", "inputs"]
    alone = Tagger(TokenInputs(V, D), STACK(), n_outputs=V)

    @jax.jit
    def run(params):
        def say(direction, ids):
            parts = {"inputs": params["inputs"], "encoder": params[direction], "head": params["head"]}
            return alone.apply({"params": parts}, ids, LENGTHS, train=False)

        ids = jnp.asarray(IDS)
        turned = reverse_rows(ids[..., None], LENGTHS)[..., 0]
        two = jnp.concatenate([say("forward", ids), reverse_rows(say("backward", turned), LENGTHS)], -1)
        return model.apply({"params": params}, ids, LENGTHS, train=False), two

    one, two = run(params)
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_rows_are_turned_within_their_length():
    x_BTD = jnp.arange(B * T).reshape(B, T, 1)
    turned = np.asarray(reverse_rows(x_BTD, jnp.asarray(LENGTHS)))[..., 0]
    for row, given, length in zip(turned, np.asarray(x_BTD)[..., 0], LENGTHS, strict=True):
        assert row.tolist() == [*given[:length][::-1], *given[length:]]
    np.testing.assert_array_equal(reverse_rows(x_BTD, None), x_BTD[:, ::-1])


@pytest.mark.parametrize("length", (5, 11))
def test_each_token_has_both_neighbours_as_targets(tmp_path, length):
    text = "".join(chr(0x4E00 + i) for i in range(1009))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    task = BidirectionalLanguageModel(str(tmp_path / "text.txt"), length=length)
    for batch, piece in zip(task.evaluation_sets().values(), split_by_position(text)[1:], strict=True):
        ids, counted = task.vocabulary.encode(piece), np.asarray(batch.weights) > 0
        assert (batch.lengths is None) == ((len(ids) - 2) % length == 0)
        np.testing.assert_array_equal(np.asarray(batch.inputs)[counted], ids[1:-1])
        np.testing.assert_array_equal(np.asarray(batch.targets)[counted], np.stack([ids[2:], ids[:-2]], -1))
    batch = jax.jit(task.sample, static_argnums=1)(jax.random.key(0), 17)
    ids = np.asarray(batch.inputs)  # of a text without repetition, whose ids are its order
    np.testing.assert_array_equal(batch.targets, np.stack([ids + 1, ids - 1], -1))


def test_the_loss_is_the_mean_of_both_directions(build_task):
    task = build_task("bidirectional_lm")
    batch = task.evaluation_sets()["test"]
    V = task.n_outputs // 2
    ahead_BTV, back_BTV = jax.random.normal(jax.random.key(0), (2, *batch.inputs.shape, V))

    def nats(logits_BTV, targets_BT):
        log_p_BT = jnp.take_along_axis(jax.nn.log_softmax(logits_BTV), targets_BT[..., None], -1)[..., 0]
        return -float((log_p_BT * batch.weights).sum() / batch.weights.sum())

    ahead, back = nats(ahead_BTV, batch.targets[..., 0]), nats(back_BTV, batch.targets[..., 1])
    told = finalise(jax.jit(task.measure)(jnp.concatenate([ahead_BTV, back_BTV], -1), batch))
    assert abs(ahead - back) > 1e-3
    wanted = {"loss": (ahead + back) / 2, "perplexity_forward": np.exp(ahead), "perplexity_backward": np.exp(back)}
    assert {name: float(value) for name, value in told.items()} == pytest.approx(wanted, rel=1e-4)


def test_the_scalar_mix_equals_its_equation():
    layers = np.random.default_rng(0).normal(size=(3, B, T, D)).astype(np.float32)
    mix = ScalarMix()
    variables = mix.init(jax.random.key(0), layers)
    np.testing.assert_allclose(mix.apply(variables, layers), layers.mean(0), rtol=1e-5, atol=1e-6)
    w, gamma = np.float32([0.3, -0.7, 1.1]), np.float32(1.3)
    expected = gamma * np.einsum("l,lbtf->btf", np.exp(w) / np.exp(w).sum(), layers)
    np.testing.assert_allclose(mix.apply({"params": {"w": w, "gamma": gamma}}, layers), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="expected one shape"):
        mix.init(jax.random.key(0), [layers[0], layers[1, :, 1:]])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: BiLM(TokenInputs(V, D), STACK, n_outputs=7), "n_outputs 7; expected an even integer"),
        (lambda: BiLM(TokenInputs(V, D), STACK, n_outputs=0), "n_outputs 0; expected an even"),
        (lambda: BiLM(TokenInputs(V, D), STACK, 2, dropout=1.0), "dropout is 1.0,"),
        (lambda: build(BOTH_WAYS), "cannot take one step at a time"),
        (lambda: build(SEES_ALL), "cannot take one step at a time"),
    ],
)
def test_mistakes_are_told(make, told):
    with pytest.raises(UserError, match=told):
        make()
