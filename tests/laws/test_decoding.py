"""Laws of decoding: cached steps say what the whole model says, and what is drawn is what was asked for."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.decoding import generate as module
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling, choose, cut
from seqlab.models.classifier import Classifier
from seqlab.models.tagger import Tagger
from seqlab.nn.cells.gru import GRU
from seqlab.nn.inputs import TokenInputs
from seqlab.nn.pooling import LastPool
from seqlab.nn.positions import Learned, Rotary
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import UserError

V, D, ROOM = 13, 8, 31
GREEDY = Sampling(temperature=0)
ENCODERS = {
    "recurrent": lambda: Stack(partial(Recurrent, GRU), D, 2),
    "rotary": lambda: Transformer(partial(SelfAttention, n_heads=2, max_length=ROOM, positions=Rotary), D, 2),
    "learned": lambda: Transformer(
        partial(SelfAttention, n_heads=2, max_length=ROOM), D, 2, positions=partial(Learned, max_length=ROOM)
    ),
}


def build(name):
    model = Tagger(TokenInputs(V, D), ENCODERS[name](), V)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(partial(model.init, train=False), jax.random.key(0), np.zeros((1, 3), int))
    return model, jax.tree.map(lambda a: rng.normal(scale=0.7, size=a.shape).astype(np.float32), shapes)["params"]


@pytest.fixture(scope="module", params=ENCODERS)
def case(request):
    return build(request.param)


def draw(case, prompts, n_tokens, sampling=GREEDY, seed=0):
    return np.concatenate(list(generate(*case, prompts, n_tokens, sampling, seed)), 1)


PROMPTS = [np.array(ids) for ids in ([3], [1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8, 1], [0, 0])]


def test_greedy_text_is_what_the_whole_model_finds_most_probable(case):
    """Each token against a full forward pass over all before it; ragged prompts, more than one stretch."""
    model, params = case
    n_tokens = module.STRETCH + 3
    texts = draw(case, PROMPTS, n_tokens)
    assert texts.shape == (len(PROMPTS), n_tokens)
    rows = [np.concatenate([p, text]) for p, text in zip(PROMPTS, texts, strict=True)]
    lengths = np.array([len(row) for row in rows])
    ids = np.stack([np.pad(row, (0, lengths.max() - len(row))) for row in rows])
    logits = jax.jit(lambda ids, n: model.apply({"params": params}, ids, n, train=False))(ids, lengths)
    for row, prompt in enumerate(PROMPTS):
        most_probable = np.asarray(logits[row, len(prompt) - 1 : lengths[row] - 1]).argmax(-1)
        np.testing.assert_array_equal(texts[row], most_probable)


def test_a_row_does_not_depend_on_the_others(case):
    together = draw(case, PROMPTS, 11, Sampling(0.9), seed=5)
    np.testing.assert_array_equal(together[:1], draw(case, PROMPTS[:1], 11, Sampling(0.9), seed=5))
    others = [PROMPTS[0], *PROMPTS[:0:-1]]
    np.testing.assert_array_equal(together[0], draw(case, others, 11, Sampling(0.9), seed=5)[0])


def test_another_seed_is_another_text_and_the_same_seed_the_same():
    case = build("recurrent")
    one = draw(case, PROMPTS, 23, Sampling(1.0), seed=1)
    np.testing.assert_array_equal(one, draw(case, PROMPTS, 23, Sampling(1.0), seed=1))
    assert np.any(one != draw(case, PROMPTS, 23, Sampling(1.0), seed=2))
    same = draw(case, [PROMPTS[0]] * 5, 23, Sampling(1.0))
    assert len({tuple(row) for row in same}) == 5, "rows of one prompt draw for themselves"


def test_prompts_up_to_a_power_of_two_share_a_program():
    case = build("recurrent")
    draw(case, [np.arange(5)], 3)
    n_compiled = module._read._cache_size()
    for length in (6, 7, 8):
        draw(case, [np.arange(length)], 3)
    assert module._read._cache_size() == n_compiled


LOGITS = np.log(np.array([[0.4, 0.3, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.3, 0.4]], np.float32))


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), 5),
        (Sampling(top_k=2), 2),
        (Sampling(top_k=99), 5),
        (Sampling(top_p=0.39), 1),
        (Sampling(top_p=0.41), 2),
        (Sampling(top_p=0.71), 3),
        (Sampling(top_p=1.0), 5),
        (Sampling(top_k=3, top_p=0.6), 2),  # of three that remain the first has 0.47
        (Sampling(temperature=1e-2, top_p=0.9), 1),
    ],
)
def test_the_most_probable_tokens_are_kept(sampling, kept):
    left = np.isfinite(cut(jnp.asarray(LOGITS), sampling))
    np.testing.assert_array_equal(left[0], np.arange(5) < kept)
    np.testing.assert_array_equal(left[1], np.arange(5) >= 5 - kept)


def test_tokens_are_drawn_with_their_probabilities():
    n, sampling = 20011, Sampling(temperature=2.0, top_k=3)
    keys = jax.random.split(jax.random.key(0), n)
    ids = jax.jit(lambda keys: choose(keys, jnp.broadcast_to(LOGITS[0], (n, 5)), sampling))(keys)
    p = np.sqrt([0.4, 0.3, 0.15])
    np.testing.assert_allclose(np.bincount(ids, minlength=5) / n, [*(p / p.sum()), 0, 0], atol=0.015)
    assert np.all(choose(keys[:2], jnp.asarray(LOGITS), GREEDY) == np.array([0, 4]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": [np.array([], int)]}, "a prompt is empty"),
        ({"n_tokens": 0}, "tokens to draw is 0"),
        ({"n_tokens": ROOM}, f"are {ROOM + 5} tokens together, but the model has room for {ROOM}"),
        ({"sampling": Sampling(top_k=0)}, "top_k is 0"),
        ({"sampling": Sampling(top_p=1.5)}, "top_p is 1.5"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature is -0.1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(change, message):
    asked = {"prompts": PROMPTS[1:2], "n_tokens": 3, "sampling": GREEDY} | change
    with pytest.raises(UserError, match=message):
        next(generate(*build("rotary"), **asked))


def test_models_that_do_not_step_are_refused():
    bidirectional = Tagger(TokenInputs(V, D), Stack(partial(Bidirectional, GRU), D), V)
    classifier = Classifier(TokenInputs(V, D), Stack(partial(Recurrent, GRU), D), LastPool(), V)
    for model, message in ((bidirectional, "reads from both ends"), (classifier, "does not take one step")):
        params = jax.jit(partial(model.init, train=False))(jax.random.key(0), np.zeros((1, 3), int))["params"]
        with pytest.raises(UserError, match=message):
            next(generate(model, params, PROMPTS[:1], 3, GREEDY))
