"""Laws of the F1 of spans: what seqeval says, whatever the tags are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from seqlab.evaluation.evaluate import finalise
from seqlab.tasks.spans import find_spans, measure_spans, tag_kinds
from seqlab.types import UserError

NAMES = ("O", "B-x", "I-x", "B-y", "I-y", "B-x-z", "I-x-z")
KINDS = tag_kinds("these", NAMES)
T = 11


@functools.cache
def measured():
    return jax.jit(functools.partial(measure_spans, kinds=KINDS))


def measure(said: list[list[str]], true: list[list[str]]) -> dict[str, float]:
    """With rows of garbage past each length, and filled up with rows that are no row."""
    rng = np.random.default_rng(0)
    tags, weights = rng.integers(0, len(NAMES), (2, 31, T)), np.zeros((31, T), np.float32)
    for b, rows in enumerate(zip(said, true, strict=True)):
        for side, row in zip(tags, rows, strict=True):
            side[b, : len(row)] = [NAMES.index(name) for name in row]
        weights[b, : len(rows[0])] = 1
    return {name: float(value) for name, value in finalise(measured()(*tags, weights)).items()}


def draw(rng: np.random.Generator, lengths: np.ndarray, share_outside: float) -> list[list[str]]:
    p = np.array([share_outside, *[(1 - share_outside) / (len(NAMES) - 1)] * (len(NAMES) - 1)])
    return [rng.choice(NAMES, length, p=p).tolist() for length in lengths]


@pytest.mark.parametrize("seed", range(23))
def test_metrics_are_those_of_seqeval(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, T + 1, 29)
    true = draw(rng, lengths, rng.choice([0.1, 0.5, 0.9]))
    said = draw(rng, lengths, 0.5)
    # Mostly right, so that spans are found.
    said = [
        [t if rng.random() < 0.8 else s for s, t in zip(*rows, strict=True)] for rows in zip(said, true, strict=True)
    ]
    values = measure(said, true)
    assert 0 < values["span_f1"] < 1
    np.testing.assert_allclose(values["span_precision"], precision_score(true, said), rtol=1e-6)
    np.testing.assert_allclose(values["span_recall"], recall_score(true, said), rtol=1e-6)
    np.testing.assert_allclose(values["span_f1"], f1_score(true, said), rtol=1e-6)


@pytest.mark.parametrize(
    ("said", "true", "found", "n_said", "n_true"),
    [
        ("O O O", "O O O", 0, 0, 0),
        ("O O", "B-x I-x", 0, 0, 1),
        ("B-x I-x", "O O", 0, 1, 0),
        ("", "", 0, 0, 0),
        ("I-x I-x O", "B-x I-x O", 1, 1, 1),  # an I behind nothing begins
        ("B-x I-y", "B-x B-y", 2, 2, 2),  # and behind another type
        ("B-x B-x", "B-x I-x", 0, 2, 1),
        ("B-x I-x I-x", "B-x I-x O", 0, 1, 1),
        ("I-x-z I-x", "B-x-z B-x", 2, 2, 2),  # a type may have a dash
        ("O B-y", "O B-x", 0, 1, 1),
    ],
)
def test_awkward_tags_by_hand(said, true, found, n_said, n_true):
    rows = [said.split()], [true.split()]
    assert [len(get_entities(row)) for (row,) in rows] == [n_said, n_true]
    values = measure(*rows)
    expected = {
        "span_precision": (found, n_said),
        "span_recall": (found, n_true),
        "span_f1": (2 * found, n_said + n_true),
    }
    assert values == pytest.approx({name: n / d if d else np.nan for name, (n, d) in expected.items()}, nan_ok=True)


def test_spans_are_those_of_seqeval():
    rng = np.random.default_rng(0)
    for row in draw(rng, np.full(53, T), 0.4):
        tags_BT = jnp.array([[NAMES.index(name) for name in row]])
        spans = jax.tree.map(np.asarray, find_spans(tags_BT, jnp.ones((1, T), bool), KINDS))
        firsts = np.flatnonzero(spans.begins_BT[0])
        types = [NAMES[tags_BT[0, first]].partition("-")[2] for first in firsts]
        assert list(zip(types, firsts, spans.last_BT[0, firsts], strict=True)) == get_entities(row)


def test_tags_without_a_type_are_of_one():
    kinds = tag_kinds("these", ("B", "I", "O"))
    assert kinds.type_V[0] == kinds.type_V[1] and kinds.inside_V.tolist() == [True, True, False]


@pytest.mark.parametrize(("name", "kind"), [("NOUN", "NOUN"), ("b-x", "x"), ("S-x", "x"), ("", "TYPE")])
def test_tags_that_tell_no_spans_are_refused(name, kind):
    with pytest.raises(UserError, match=f"ner has the tag '{name}'; expected O, B-{kind} or I-{kind}."):
        tag_kinds("ner", ["O", name])
