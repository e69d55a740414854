"""Laws of beam search: against every text there is, against its own equation written plainly, and against greedy."""

import functools
import itertools
from functools import partial

import jax
import numpy as np
import pytest
from sparing import sparing

from seqlab.decoding import beam as module
from seqlab.decoding.beam import search
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling
from seqlab.models.tagger import Tagger
from seqlab.nn.cells.gru import GRU
from seqlab.nn.inputs import TokenInputs
from seqlab.nn.positions import Rotary
from seqlab.nn.recurrent import Recurrent, Stack
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import UserError

V, D, ROOM = 3, 8, 23
EOS = 1
ENCODERS = {
    "recurrent": lambda: Stack(partial(Recurrent, GRU), D, 2),
    "attention": lambda: Transformer(
        partial(SelfAttention, n_heads=2, max_length=ROOM, positions=Rotary), D, 1, norm="rms"
    ),
}
PROMPTS = [np.array(ids) for ids in ([2], [0, 2, 2, 1, 0], [1, 0, 2])]


class Case:
    """A tiny model, and what it says after each beginning, by a full forward pass."""

    def __init__(self, name):
        self.model = Tagger(TokenInputs(V, D), ENCODERS[name](), V)
        rng = np.random.default_rng(3)
        shapes = jax.eval_shape(partial(self.model.init, train=False), jax.random.key(0), np.zeros((1, 3), int))
        self.params = jax.tree.map(lambda a: rng.normal(scale=0.9, size=a.shape).astype(np.float32), shapes)["params"]
        self.read = jax.jit(lambda ids: self.model.apply({"params": self.params}, ids, train=False))
        self.known = {}

    def log_p(self, prompt, text):
        """ln p of each token after prompt and text; the model is causal, so one pass knows all beginnings."""
        row = (*prompt.tolist(), *text)
        if row not in self.known:
            logits = self.read(np.pad(row, (0, ROOM - len(row)))[None])[0]
            log_p = np.asarray(jax.nn.log_softmax(logits), float)
            self.known.update({row[: t + 1]: log_p[t] for t in range(len(row))})
        return self.known[row]

    def search(self, prompts, *asked, **options):
        return search(self.model, self.params, prompts, *asked, **options)


build = functools.cache(Case)


@pytest.fixture(params=sparing(ENCODERS, "recurrent".__eq__))
def case(request):
    return build(request.param)


@pytest.fixture
def recurrent():
    return build("recurrent")


def lp(length, alpha):
    return ((5 + length) / 6) ** alpha


def found(hypotheses, row):
    """The hypotheses of a row as (text, score), those that it lacks left out."""
    ids, lengths, scores = (field[row] for field in hypotheses)
    assert all((ids[w, n:] == 0).all() for w, n in enumerate(lengths) if scores[w] > -np.inf)
    return [(tuple(i[:n].tolist()), s) for i, n, s in zip(ids, lengths, scores, strict=True) if s > -np.inf]


def every_text(case, prompt, n_tokens, alpha, eos):
    """All texts that end with eos or at n_tokens, the best first."""
    scored = []
    for text in itertools.product(range(V), repeat=n_tokens):
        whole = text[: text.index(eos) + 1] if eos in text else text
        log_p = sum(case.log_p(prompt, whole[:t])[i] for t, i in enumerate(whole))
        scored.append((tuple(i for i in whole if i != eos), log_p / lp(len(whole), alpha)))
    return sorted({*scored}, key=lambda pair: -pair[1])


def plain_search(case, prompt, n_tokens, width, alpha, eos):
    """Beam search as its docstring says it, to the end."""
    running, ended = [((), 0.0)], []
    for t in range(n_tokens):
        ways = [((*text, i), s + case.log_p(prompt, text)[i]) for text, s in running for i in range(V)]
        ways = sorted(ways, key=lambda way: -way[1])
        ended += [(text[:-1], s / lp(t + 1, alpha)) for text, s in ways[:width] if text[-1] == eos]
        running = [way for way in ways if way[0][-1] != eos][:width]
    ended += [(text, s / lp(n_tokens, alpha)) for text, s in running]
    return sorted(ended, key=lambda pair: -pair[1])[:width]


def assert_same(these, those):
    """The same texts with the same scores; the order of texts whose scores are equal is free."""
    np.testing.assert_allclose([s for _, s in these], [s for _, s in those], rtol=1e-4, atol=1e-4)
    assert [text for text, _ in these] == [text for text, _ in those]


@pytest.mark.parametrize(("eos", "n_texts"), [(EOS, 31), (None, 81)])
def test_a_beam_of_all_beginnings_finds_the_best_of_all_texts(case, eos, n_texts):
    """And no more than there are, where it is wider yet."""
    n_tokens, width = 4, 83
    for alpha in (0.0, 0.7, 2.0):
        hypotheses = case.search(PROMPTS, n_tokens, width, alpha, eos)
        for row, prompt in enumerate(PROMPTS):
            texts = every_text(case, prompt, n_tokens, alpha, eos)
            assert len(texts) == n_texts
            assert_same(found(hypotheses, row), texts)


@pytest.mark.slow
def test_a_narrow_beam_equals_its_equation(case):
    """Which goes on to the end, so that stopping earlier loses nothing, though the last penalty lifts long texts."""
    n_tokens, widths = 11, (1, 2, 5)
    different = set()
    for width, alpha in itertools.product(widths, (0.0, 0.7, 4.0)):
        hypotheses = case.search(PROMPTS, n_tokens, width, alpha, EOS)
        for row, prompt in enumerate(PROMPTS):
            these = found(hypotheses, row)
            assert_same(these, plain_search(case, prompt, n_tokens, width, alpha, EOS))
            different.add((width, row, tuple(text for text, _ in these)))
    assert len(different) > len(widths) * len(PROMPTS), "the length penalty changes what is found"


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "eos"), [(0.0, EOS), (0.7, None)])
def test_width_one_is_greedy(case, alpha, eos):
    n_tokens = 11
    hypotheses = case.search(PROMPTS, n_tokens, 1, alpha, eos)
    stretches = generate(case.model, case.params, PROMPTS, n_tokens, Sampling(temperature=0), eos=eos)
    for row, (text,) in enumerate(zip(*stretches, strict=True)):
        assert [tuple(text.tolist())] == [text for text, _ in found(hypotheses, row)]


def test_rows_do_not_depend_on_each_other(case):
    """Nor does one that has ended on how long the others are searched."""
    together = case.search(PROMPTS, 11, 5, 0.7, EOS)
    for row, prompt in enumerate(PROMPTS):
        among_others = case.search([prompt, PROMPTS[1], PROMPTS[1]], 11, 5, 0.7, EOS)
        assert_same(found(among_others, 0), found(together, row))
    alone = case.search(PROMPTS[:1], 11, 5, 0.7, EOS)
    assert_same(found(alone, 0), found(together, 0))


def test_a_search_stops_once_nothing_can_change(recurrent):
    """eos is next to certain, so that the best two have ended long before n_tokens; without eos none ends."""
    head = {**recurrent.params["head"], "bias": np.array([0, 30, 0], np.float32)}
    params = {**recurrent.params, "head": head}
    ids, lengths = np.array([[2]], np.int32), np.array([1], np.int32)
    steps = [int(module._search(recurrent.model, 2, 16, params, ids, lengths, 13, 0.7, eos).t) for eos in (EOS, -1)]
    assert steps[0] <= 3 and steps[1] == 13


def test_searches_up_to_a_power_of_two_share_a_program(recurrent):
    recurrent.search([np.array([0, 1, 2, 0, 1])], 9, 2)
    n_compiled = module._search._cache_size()
    for n_prompt, n_tokens, alpha, eos in ((6, 11, 0.3, EOS), (7, 13, 1.0, None), (8, 16, 0.0, 2)):
        recurrent.search([np.arange(n_prompt) % V], n_tokens, 2, alpha, eos)
    assert module._search._cache_size() == n_compiled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width of the beam is 0"),
        ({"width": 2.0}, "width of the beam is 2.0"),
        ({"length_penalty": -0.1}, "length_penalty is -0.1, but it must be a number from 0"),
        ({"length_penalty": 6}, "length_penalty is 6"),
        ({"n_tokens": 0}, "tokens to draw is 0"),
        ({"n_tokens": ROOM}, f"{ROOM} tokens are to follow 1, but the model has room for {ROOM - 1} there"),
        ({"prompts": []}, "a prompt is empty"),
    ],
)
def test_what_cannot_be_searched_is_refused(change, message):
    case = build("attention")
    with pytest.raises(UserError, match=message):
        case.search(**({"prompts": PROMPTS[:1], "n_tokens": 3, "width": 2} | change))
