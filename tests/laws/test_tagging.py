"""Laws of tagging that are not those of every task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_data import Given

from seqlab.evaluation.evaluate import finalise
from seqlab.tasks.tagging import SpanTagging, Tagging
from seqlab.types import UserError


def sentences(*rows: str) -> list[dict[str, list[str]]]:
    """Sentences of token/tag."""
    pairs = [[pair.split("/") for pair in row.split()] for row in rows]
    return [{"tokens": [token for token, _ in row], "tags": [tag for _, tag in row]} for row in pairs]


TRAIN = sentences("The/D run/N", "they/N run/V", "run/V", "the/D dog/N")
SOME = sentences("The/D cat/N", "RUN/V the/D dog/N run/V")


def test_baseline_by_hand():
    task = Tagging(Given((TRAIN, SOME, SOME)))
    # D twice, N three times and V twice, each count one more.
    p_C = np.array([3, 4, 3]) / 10
    run, unknown = task.vocabulary.encode(["run", "cat"])
    assert unknown == 0
    batch = jax.tree.map(jnp.asarray, task.evaluation_sets()["test"])
    p_BTC = np.exp(task.solve(batch))
    np.testing.assert_allclose(p_BTC.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(p_BTC[0, 1], p_C, rtol=1e-5)
    np.testing.assert_allclose(p_BTC[1, 0], (np.array([0, 1, 2]) + p_C) / 4, rtol=1e-5)
    assert batch.inputs[1, 0] == run
    # Of six tokens all but the one that is unknown, whose tag is the most frequent one by luck, are known too.
    assert finalise(task.measure(task.solve(batch), batch))["accuracy"] == 1


def test_a_sentence_that_is_cut_is_counted_and_has_the_spans_that_are_left():
    train = sentences("a/O b/B-x c/I-x", "b/B-x")
    task = SpanTagging(Given((train, sentences("a/O b/B-x c/I-x d/B-x"), train)), max_length=3)
    batch = jax.tree.map(jnp.asarray, task.evaluation_sets()["validation"])
    assert task.describe()["validation"] == {"rows": 1, "shortest": 3, "mean_length": 3, "longest": 3, "cut": 1}
    assert np.array(finalise(task.measure(task.solve(batch), batch))["span_f1"]) == 1
    assert task.measure(task.solve(batch), batch)["span_recall"][1] == 1


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (sentences("a/N", "a/N a/X"), "Record 1 of validation has the label 'X', which no training record has"),
        ([{"tokens": ["a", "b"], "tags": ["N"]}], "Record 0 of validation has 2 tokens, but 1 tags"),
    ],
)
def test_tags_that_do_not_fit_are_refused(rows, told):
    with pytest.raises(UserError, match=told):
        Tagging(Given((TRAIN, rows, TRAIN)))


def test_tags_that_tell_no_spans_are_refused():
    with pytest.raises(UserError, match=r"^Record 0 of train has the tag 'D'; expected O, B-D or I-D"):
        SpanTagging(Given((TRAIN, SOME, SOME)))
