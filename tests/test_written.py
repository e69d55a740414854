"""Texts that a run writes: what they are, whatever they are read together with, and what sacrebleu says of them."""

import contextlib
import dataclasses
import io
import json

import jax
import numpy as np
import pytest
import sacrebleu
from rich.console import Console
from sacrebleu.metrics import BLEU
from small_data import Given

from seqlab.build import build
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling
from seqlab.evaluation.written import keep_written, measure_written, write_texts
from seqlab.generate import ask
from seqlab.tasks.text_scores import score_texts
from seqlab.tasks.translation import Translation
from seqlab.training.summary import tabulate_written
from seqlab.types import Batch, UserError

TINY = ("task=translation", "model/cell=gru", "model.encoder.features=11", "model.decoder.features=11", "seeds=2")
SIZES = (
    "model.inputs.features=5",
    "task.n_eval=13",
    "task.max_target_length=19",
    "task.kind=char",
    "task.max_size=null",
)


def pairs(*sides: tuple[str, str]) -> list[dict[str, str]]:
    return [{"source": source, "target": target} for source, target in sides]


TRAIN = pairs(("a b", "A, b!"), ("b", "b! Ä"), ("", "A"))


@pytest.fixture(scope="module")
def run(compose):
    """A task, a small model, and bold parameters for two replicas."""
    parts = build(compose(*TINY, *SIZES))

    def init(key):
        batch = parts.task.sample(key, 2)
        given = batch.inputs, batch.lengths, batch.targets, batch.weights
        return parts.model.init({"params": key}, *given, train=False)["params"]

    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(init, jax.random.key(0))
    params_R = jax.tree.map(lambda a: rng.normal(size=(2, *a.shape)).astype(a.dtype), shapes)
    return parts.task, parts.sets, parts.model, params_R


def first_of(params_R):
    return jax.tree.map(lambda leaf: leaf[0], params_R)


def test_a_text_does_not_depend_on_those_beside_it(run):
    task, sets, model, params_R = run
    whole = write_texts(task, model, first_of(params_R), sets["test"], 256)
    assert len(set(whole)) > 1
    assert write_texts(task, model, first_of(params_R), sets["test"], 5) == whole
    for record, text in list(zip(task.records["test"], whole, strict=True))[:1]:
        (request,) = ask(task, None, record["source"])
        stretches = generate(model, first_of(params_R), [request.prompt], 19, Sampling(temperature=0), eos=request.eos)
        assert task.decode_target(np.concatenate([ids for (ids,) in stretches])) == text


def test_each_replica_is_scored_by_what_it_writes(run, tmp_path):
    task, sets, model, params_R = run
    scores, rows = measure_written(task, sets, model, params_R, 5)
    keep_written(rows, tmp_path / "written.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "written.jsonl").read_text(encoding="utf-8").splitlines()]
    assert kept == [{**row, "written": list(row["written"])} for row in rows]
    assert [row["source"].upper() for row in kept] == [row["reference"] for row in kept]
    for r in range(2):
        said = score_texts([row["written"][r] for row in kept], [row["reference"] for row in kept])
        assert {name: value["values"][r] for name, value in scores["measured"]["test"].items()} == said
    copied = score_texts([row["source"] for row in kept], [row["reference"] for row in kept])
    assert scores["baseline"] == {"name": "copied source", "measured": {"test": copied}}
    assert scores["measured"]["test"]["chrf"]["values"][0] != scores["measured"]["test"]["chrf"]["values"][1]


def test_an_empty_source_is_answered(run):
    task, _, model, params_R = run
    batch = Batch(np.zeros((1, 1), np.int32), np.zeros(1, np.int32), np.zeros((1, 1), np.int32), np.ones((1, 1)))
    assert isinstance(write_texts(task, model, first_of(params_R), batch, 5)[0], str)


AWKWARD = [
    (["the cat sat on the mat today"], ["the cat sat on the mat today"]),
    ([""], ["the cat"]),
    (["", "the cat sat on the mat"], ["the dog", "the cat sat on a mat"]),
    (["Hello , world !"], ["Hello, world!"]),
    (["the the the the"], ["the cat"]),
    (["%s: kann »x« nicht öffnen."], ["%s: kann »y« nicht öffnen!"]),
    (["日本語です"], ["日本語です"]),
]


@pytest.mark.parametrize(("hypotheses", "references"), AWKWARD)
def test_scores_are_those_of_sacrebleu(hypotheses, references):
    scores = score_texts(hypotheses, references)
    assert scores["bleu"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    # chrF does not see spaces.
    bare = [["".join(text.split()) for text in texts] for texts in (hypotheses, references)]
    assert (scores["chrf"] == pytest.approx(100)) == (bare[0] == bare[1])
    if not any(hypotheses):
        assert scores == {"bleu": 0, "chrf": 0}


@pytest.mark.parametrize("tokenize", ["13a", "zh", "intl", "char", "none"])
def test_bleu_compares_the_tokens_that_the_task_says(run, tokenize):
    task, sets, model, params_R = run
    other = dataclasses.replace(task, tokenize=tokenize)
    for hypotheses, references in AWKWARD:
        told = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize).score
        assert other.score_written(hypotheses, references)["bleu"] == told
    scores, _ = measure_written(other, sets, model, params_R, 256)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(tabulate_written(scores, "best"))
    assert scores["tokenize"] == tokenize and f"test/bleu ({tokenize})" in console.export_text()


def test_where_words_have_no_spaces_between_their_own_tokeniser_sees_them():
    texts = ["我今天去学校上课了"], ["我今天去学校读书了"]
    assert score_texts(*texts)["bleu"] == 0 < score_texts(*texts, "zh")["bleu"]


@pytest.mark.parametrize("tokenize", ["Zh", "flores200", None, "ja-mecab", "ko-mecab"])
def test_a_tokeniser_that_is_not_there_is_refused_at_the_door(tokenize):
    with contextlib.suppress(RuntimeError):
        if str(tokenize).endswith("mecab") and BLEU(tokenize=tokenize):
            pytest.skip("it is installed")
    extra = str(tokenize)[:2]
    told = f"needs a dictionary: pip install 'sacrebleu.{extra}.'" if extra in ("ja", "ko") else "expected one of 13a"
    with pytest.raises(UserError, match=f"^translation has tokenize {tokenize!r}.*{told}"):
        Translation(Given((TRAIN, TRAIN, TRAIN)), kind="word", tokenize=tokenize)


def test_bleu_by_hand():
    # Of 7, 6, 5 and 4 n-grams so many are right (one `the` counts), and the reference has two tokens more.
    scores = score_texts(["the cat sat on the mat now"], ["the cat sat on a mat now , then"])
    precisions = 6 / 7, 4 / 6, 2 / 5, 1 / 4
    assert scores["bleu"] == pytest.approx(100 * np.exp(1 - 9 / 7) * np.prod(precisions) ** 0.25)


@pytest.mark.parametrize("kind", ["char", "byte", "word", "subword"])
def test_targets_are_written_as_they_were_read(kind):
    max_size = 300 if kind == "subword" else None
    task = Translation(Given((TRAIN, TRAIN, TRAIN)), kind=kind, max_size=max_size)
    batch = task.evaluation_sets()["test"]
    for row, told, record in zip(batch.targets, batch.weights, TRAIN, strict=True):
        ids = np.asarray(row)[np.asarray(told) > 0]
        assert ids[-1] == task.eos and task.decode_target(ids[:-1]) == record["target"]
    assert np.asarray(batch.lengths)[2] == 0


def test_a_target_that_is_cut_has_no_end_and_counts_once():
    task = Translation(Given((TRAIN, TRAIN, TRAIN)), kind="char", max_size=None, max_length=2, max_target_length=3)
    batch = task.evaluation_sets()["test"]
    assert task.describe()["test"]["cut"] == 2
    assert task.decode_target(batch.targets[0]) == "A,"
    assert task.eos not in np.asarray(batch.targets[:2]) and np.asarray(batch.targets)[2, 1] == task.eos
    assert task.texts("test")["reference"][0] == "A, b!"


def test_a_word_that_training_has_not_is_unknown():
    task = Translation(Given((TRAIN, pairs(("c b", "C!")), TRAIN)), kind="word")
    batch = task.evaluation_sets()["validation"]
    assert np.asarray(batch.inputs)[0].tolist() == [0, task.vocabulary.encode("b")[0]]
    assert np.asarray(batch.targets)[0, 0] == 0 and np.isfinite(np.asarray(task.solve(batch))).all()
