"""Laws of decoding: cached steps say what the whole model says, and what is drawn is what was asked for."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing

from seqlab.decoding import generate as module
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling, choose, cut, penalise
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


@functools.cache  # one model, so that what is compiled for it is too
def build(name):
    model = Tagger(TokenInputs(V, D), ENCODERS[name](), V)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(partial(model.init, train=False), jax.random.key(0), np.zeros((1, 3), int))
    return model, jax.tree.map(lambda a: rng.normal(scale=0.7, size=a.shape).astype(np.float32), shapes)["params"]


@pytest.fixture(scope="module", params=sparing(ENCODERS, "rotary".__eq__))
def case(request):
    return build(request.param)


def draw(case, prompts, n_tokens, sampling=GREEDY, seed=0, **options):
    stretches = list(generate(*case, prompts, n_tokens, sampling, seed, **options))
    return [np.concatenate(pieces) for pieces in zip(*stretches, strict=True)]


@partial(jax.jit, static_argnums=0)
def _read(model, params, ids, lengths):
    return model.apply({"params": params}, ids, lengths, train=False)


def whole_logits(case, prompts, texts):
    """What a full forward pass over prompt and text says before each token of the text."""
    rows = [np.concatenate([p, text]) for p, text in zip(prompts, texts, strict=True)]
    lengths = np.array([len(row) for row in rows])
    ids = np.stack([np.pad(row, (0, lengths.max() - len(row))) for row in rows])
    logits = np.asarray(_read(*case, ids, lengths))
    return [logits[row, len(p) - 1 : lengths[row] - 1] for row, p in enumerate(prompts)]


PROMPTS = [np.array(ids) for ids in ([3], [1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8, 1], [0, 0])]


def test_greedy_text_is_what_the_whole_model_finds_most_probable(case):
    """Each token against a full forward pass over all before it; ragged prompts, more than one stretch."""
    n_tokens = module.STRETCH + 3
    texts = draw(case, PROMPTS, n_tokens)
    assert [len(text) for text in texts] == [n_tokens] * len(PROMPTS)
    for text, logits_TV in zip(texts, whole_logits(case, PROMPTS, texts), strict=True):
        np.testing.assert_array_equal(text, logits_TV.argmax(-1))


def test_a_row_does_not_depend_on_the_others(case):
    together = draw(case, PROMPTS, 11, Sampling(0.9), seed=5)
    np.testing.assert_array_equal(together[0], draw(case, PROMPTS[:1], 11, Sampling(0.9), seed=5)[0])
    others = [PROMPTS[0], *PROMPTS[:0:-1]]
    np.testing.assert_array_equal(together[0], draw(case, others, 11, Sampling(0.9), seed=5)[0])


def test_another_seed_is_another_text_and_the_same_seed_the_same():
    case = build("recurrent")
    one = draw(case, PROMPTS, 23, Sampling(1.0), seed=1)
    np.testing.assert_array_equal(one, draw(case, PROMPTS, 23, Sampling(1.0), seed=1))
    assert np.any(np.array(one) != draw(case, PROMPTS, 23, Sampling(1.0), seed=2))
    same = draw(case, [PROMPTS[0]] * 5, 23, Sampling(1.0))
    assert len({tuple(row) for row in same}) == 5, "rows of one prompt draw for themselves"


def test_prompts_up_to_a_power_of_two_share_a_program():
    case = build("recurrent")
    draw(case, [np.arange(5)], 3)
    n_compiled = module._begin._cache_size()
    for length in (6, 7, 8):
        draw(case, [np.arange(length)], 3)
    assert module._begin._cache_size() == n_compiled


def test_a_prompt_and_its_text_may_fill_the_room():
    """A power of two would not hold 17 tokens of 31."""
    text = draw(build("rotary"), [np.arange(17) % V], ROOM - 17)[0]
    assert len(text) == ROOM - 17


def test_a_row_ends_before_its_eos_and_drawing_once_all_have(case):
    """Else nothing changes: rows are those of no eos, cut."""
    n_tokens, sampling = module.STRETCH + 7, Sampling(0.9)
    whole = draw(case, PROMPTS, n_tokens, sampling)

    def find(eos):
        return [text.tolist().index(eos) if eos in text else n_tokens for text in whole]

    # One that ends the first row within a stretch and another row later.
    eos = next(i for i in range(V) if find(i)[0] < module.STRETCH < max(find(i)))
    ends = find(eos)
    for text, end, cut_text in zip(whole, ends, draw(case, PROMPTS, n_tokens, sampling, eos=eos), strict=True):
        np.testing.assert_array_equal(cut_text, text[:end])
    stretches = list(generate(*case, PROMPTS[:1], n_tokens, sampling, eos=eos))
    assert len(stretches) == 1


@pytest.mark.parametrize("prompts_are_seen", [True, False])
def test_tokens_that_were_seen_are_penalised(prompts_are_seen):
    """Each token against a full forward pass and the set of those before it; padding, 0 here, is not seen."""
    model, params = build("recurrent")
    θ, n_tokens = 3.0, module.STRETCH + 3
    asked = Sampling(temperature=0, repetition_penalty=θ)
    texts = draw((model, params), PROMPTS, n_tokens, asked, prompts_are_seen=prompts_are_seen)
    for prompt, text, logits_TV in zip(PROMPTS, texts, whole_logits((model, params), PROMPTS, texts), strict=True):
        seen = {*prompt.tolist()} if prompts_are_seen else set()
        for x_V, token in zip(logits_TV, text.tolist(), strict=True):
            penalised = [x / θ if x > 0 else x * θ for x in x_V]
            assert token == np.argmax([penalised[i] if i in seen else x_V[i] for i in range(V)])
            seen.add(token)
    assert np.any(np.array(texts) != draw((model, params), PROMPTS, n_tokens))


def test_the_penalty_equals_the_equation():
    x = jnp.array([[2.0, 2.0, -2.0, -2.0, 0.0]])
    seen = jnp.array([[True, False, True, False, True]])
    np.testing.assert_allclose(penalise(x, seen, 1.25), [[2 / 1.25, 2, -2 * 1.25, -2, 0]], rtol=1e-6)


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
        ({"n_tokens": 2.5}, "tokens to draw is 2.5"),
        ({"n_tokens": ROOM}, f"{ROOM} tokens are to follow 5, but the model has room for {ROOM - 5} there"),
        ({"prompts": [np.zeros(ROOM + 7, int)]}, f"{ROOM + 7} tokens to go on from leave the model no room"),
        ({"sampling": Sampling(top_k=0)}, "top_k is 0"),
        ({"sampling": Sampling(top_p=1.5)}, "top_p is 1.5"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature is -0.1"),
        ({"sampling": Sampling(temperature=float("nan"))}, "temperature is nan"),
        ({"sampling": Sampling(temperature="hot")}, "temperature is 'hot'"),  # type: ignore[arg-type]
        ({"sampling": Sampling(top_k=1.5)}, "top_k is 1.5"),  # type: ignore[arg-type]
        ({"sampling": Sampling(top_k=True)}, "top_k is True"),
        ({"sampling": Sampling(repetition_penalty=0.0)}, "repetition_penalty is 0.0"),
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
