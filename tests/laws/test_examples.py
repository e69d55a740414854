"""Laws of the tasks over examples, over every YAML in conf/task that is one."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from omegaconf.errors import InterpolationResolutionError
from small_data import Given
from sparing import sparing

from seqlab.build import build
from seqlab.data.learned import KINDS, keep_learned
from seqlab.data.records import Columns, Records
from seqlab.tasks import over_examples
from seqlab.tasks.over_examples import Source
from seqlab.tasks.text_classification import TextClassification
from seqlab.training.batches import has_examples, hold_examples
from seqlab.training.programs import Programs
from seqlab.types import Batch, UserError

GROUP = Path(__file__).parents[2] / "conf/task"
TASKS = sorted(path.stem for path in GROUP.glob("*.yaml") if "\n  - source: " in path.read_text(encoding="utf-8"))


@pytest.fixture(params=TASKS)
def task(request, build_task):
    task = build_task(request.param)
    assert has_examples(task)
    return task


@dataclasses.dataclass(frozen=True)
class Rearranged:
    """A source whose validation and test records are some of its own, in another order."""

    source: Source

    def records(self) -> dict[str, Records]:
        train, validation, test = self.source.records().values()
        return {"train": train, "validation": test[1::-1], "test": validation[3:4]}


def rows_of(batches) -> list[bytes]:
    """What each real row says, without its padding, sorted."""
    rows = []
    for batch in batches:
        for b in range(len(batch.inputs)):
            if not np.any(batch.weights[b]):
                continue
            T = None if batch.lengths is None else int(batch.lengths[b])
            told = np.asarray(batch.weights[b]).reshape(-1).nonzero()[0]
            last = told[-1] + 1 if np.ndim(batch.weights[b]) else None
            target = batch.targets[b] if last is None else batch.targets[b][:last]
            inputs = batch.inputs[b] if T is None or batch.inputs.ndim == 4 else batch.inputs[b][:T]
            rows.append(np.asarray(inputs).tobytes() + np.asarray(target).tobytes())
    return sorted(rows)


def test_rows_in_buckets_are_the_rows(task):
    buckets, bounds = hold_examples(task)
    assert len(buckets) <= task.n_buckets
    assert rows_of(buckets) == rows_of([task.examples()])
    if bounds:
        assert [part.inputs.shape[1] for part in buckets] == list(bounds)


def test_bucketing_changes_no_metric(task):
    measure = jax.jit(lambda batch: task.measure(task.solve(batch), batch))
    whole = measure(task.examples())
    parts = [measure(part) for part in hold_examples(task)[0]]
    for name, sums in whole.items():
        np.testing.assert_allclose(sums, np.sum([part[name] for part in parts], axis=0), rtol=1e-5, err_msg=name)


def test_the_baseline_knows_all_of_training_where_it_is_streamed(task, monkeypatch):
    monkeypatch.setattr(over_examples, "N_SHOWN", 2)
    streamed = dataclasses.replace(task, in_memory=False)
    assert len(streamed.examples().inputs) == 2 < task.n_examples
    batch = task.evaluation_sets()["test"]
    np.testing.assert_allclose(streamed.solve(batch), task.solve(batch), rtol=1e-6)


def test_what_is_learned_is_learned_of_train_alone(task):
    other = dataclasses.replace(task, source=Rearranged(task.source))
    learned = [name for name in KINDS if hasattr(task, name)]
    for name in learned:
        assert getattr(other, name) == getattr(task, name)
    np.testing.assert_array_equal(other.examples().inputs, task.examples().inputs)
    assert len(other.evaluation_sets()["validation"].inputs) == 2


def test_what_a_run_has_learned_is_taken_instead(task, tmp_path):
    keep_learned(task, tmp_path)
    train, validation, _ = task.source.records().values()
    some = Given((validation[:2], train[:3], validation[:1]))
    there = dataclasses.replace(task, source=some, learned_from=str(tmp_path))
    first = dataclasses.replace(task, source=Given((train, train[:3], validation)))
    assert rows_of([there.evaluation_sets()["validation"]]) == rows_of([first.evaluation_sets()["validation"]])
    assert there.n_outputs == task.n_outputs


def test_streamed_rows_come_once_an_epoch_and_resume_anywhere(task):
    records = task.source.records()
    few = Given((records["train"][:17], records["validation"], records["test"]))
    task = dataclasses.replace(task, source=few, in_memory=False)
    stream = functools.partial(task.stream, 3, batch_size=5)
    batches = list(itertools.islice(stream(step=0), 8))
    first, second = batches[:4], batches[4:]
    shapes = {str(jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), batch)) for batch in batches}
    assert len(shapes) == 1
    whole = dataclasses.replace(task, in_memory=True)
    assert rows_of(first) == rows_of(second) == rows_of([whole.examples()])
    assert rows_of(first[:1]) != rows_of(second[:1])
    for batch, again in zip(batches[3:], stream(step=3), strict=False):
        jax.tree.map(np.testing.assert_array_equal, batch, again)


@pytest.mark.slow
def test_workers_change_nothing():
    texts = [{"text": f"w{i} " * (i % 5 + 1), "label": i % 2} for i in range(23)]
    task = TextClassification(Given((texts, texts[:2], texts[:2])), in_memory=False, max_length=3)
    there = [
        list(itertools.islice(dataclasses.replace(task, n_workers=n).stream(0, step=2, batch_size=5), 7))
        for n in (None, 2)
    ]
    jax.tree.map(np.testing.assert_array_equal, *there)
    # Of the memory shared with the workers nothing is handed on that could outlive them.
    assert {type(leaf) for leaf in jax.tree.leaves(there)} == {np.ndarray}


SHORT = ("task.max_length=5", "task.n_buckets=2")
TINY = ("task=sentiment", "model/cell=rnn", "model.encoder.features=5", "model.inputs.features=3", "task.n_eval=7")


@pytest.fixture(scope="module", params=sparing([True, False], bool), ids=["in memory", "streamed"])
def programs(request, compose):
    """Ten epochs and a half of seventeen steps, for two seeds."""
    parts = build(compose(*TINY, "trainer.batch_size=10", f"task.in_memory={request.param}", *SHORT))
    programs = Programs(parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:2], [0, 1])
    programs.compile()
    return programs


def test_steps_in_parts_are_those_at_once_in_every_epoch(programs):
    n_steps = 41
    at_once = jax.device_get(programs.advance(programs.init(), n_steps))
    for first in (3, 17, 23):
        state = programs.advance(programs.advance(programs.init(), first), n_steps - first)
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), at_once)
    assert at_once.step.tolist() == [n_steps] * 2


def test_an_epoch_is_the_number_of_updates_that_it_takes(compose):
    config = compose(*TINY, "trainer.batch_size=10", "trainer.steps=${epochs:3}", "task.n_buckets=1")
    assert build(config).settings.steps == 3 * -(-168 // 10)
    with pytest.raises(InterpolationResolutionError, match="CopyFirst draws its rows anew at each step"):
        build(compose("task=copy_first", "trainer.steps=${epochs:3}"))


@pytest.mark.parametrize("count", ["x", "", "0", "-1", "1,2", "true"])
def test_epochs_that_are_no_number_are_refused(compose, count):
    with pytest.raises(InterpolationResolutionError, match="expected a positive number of epochs"):
        build(compose(*TINY, f"trainer.steps=${{epochs:{count}}}"))


def texts(*rows: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"text": text, "label": label} for text, label in rows]


TRAIN = texts(("a b b", 0), ("b c", 1), ("", 0), ("a", 1))


@pytest.mark.parametrize("label", [np.zeros(2), np.nan, 0.5, "", None, [1]])
def test_a_label_that_is_no_name_is_refused(label):
    with pytest.raises(UserError, match=r"^Record 1 of train has the label .*; expected a name or a whole number"):
        TextClassification(Given((texts(("a", 0), ("b", label)), TRAIN, TRAIN)))


def test_one_class_and_no_word_are_refused():
    with pytest.raises(UserError, match="text_classification has one class alone, '3'; expected two or more"):
        TextClassification(Given((texts(("a", 3), ("b", 3)),) * 3))
    with pytest.raises(UserError, match=r"no token of train is seen 7 times \(min_count\)"):
        TextClassification(Given((TRAIN, TRAIN, TRAIN)), min_count=7)


def test_blanks_around_a_label_say_nothing():
    rows = texts(("a", "good "), ("b", "bad"), ("c", " good"))
    task = TextClassification(Given((rows, rows, rows)))
    assert task.classes.names == ("bad", "good")
    assert np.asarray(task.examples().targets).tolist() == [1, 0, 1]


def test_what_is_no_run_has_learned_nothing(task, tmp_path):
    with pytest.raises(UserError, match=f"has learned_from '{tmp_path}', which is no directory of a run on data: it "):
        dataclasses.replace(task, learned_from=str(tmp_path))


def test_words_of_a_run_and_classes_of_the_data_go_together(tmp_path):
    task = TextClassification(Given((TRAIN, TRAIN, TRAIN)))
    task.vocabulary.save(tmp_path / "vocabulary.json")
    rows = texts(("c new", "x"), ("a", "y"))
    there = TextClassification(Given((rows, rows, rows)), learned_from=str(tmp_path))
    assert there.vocabulary == task.vocabulary and there.classes.names == ("x", "y")
    with pytest.raises(UserError, match=f"has kind 'char', but that of {tmp_path} is 'word'"):
        TextClassification(Given((rows, rows, rows)), kind="char", learned_from=str(tmp_path))


def test_unknown_words_and_empty_texts_are_read():
    task = TextClassification(Given((TRAIN, texts(("new b", 1), ("", 0)), texts(("c c c c", 1)))), max_length=3)
    validation, test = task.evaluation_sets().values()
    assert np.asarray(validation.inputs).tolist() == [[0, task.vocabulary.encode("b")[0]], [0, 0]]
    assert np.asarray(validation.lengths).tolist() == [2, 0]
    assert test.inputs.shape == (1, 3) and task.describe()["test"]["cut"] == 1
    assert np.isfinite(np.asarray(task.solve(validation))).all()


def test_workers_are_refused_where_nothing_is_streamed():
    with pytest.raises(UserError, match="n_workers 2, who read what is streamed: give in_memory=false too"):
        TextClassification(Given((TRAIN, TRAIN, TRAIN)), n_workers=2)


def test_a_label_that_training_has_not_is_refused():
    told = "Record 1 of validation has the label '7', which no training record has"
    with pytest.raises(UserError, match=told):
        TextClassification(Given((TRAIN, texts(("a", 1), ("b", 7)), texts(("a", 1)))))


def test_fields_that_are_not_there_are_asked_for():
    rows = Columns({"review": ["a", "b"], "label": [0, 1]})
    with pytest.raises(UserError, match="reads the fields text, label; the source gives review, label"):
        TextClassification(Given((rows, rows, rows)))


def test_naive_bayes_by_hand():
    task = TextClassification(Given((TRAIN, TRAIN, TRAIN)))
    batch = Batch(jnp.asarray(task.vocabulary.encode("b")[None]), jnp.array([1]), jnp.array([0]), jnp.ones(1))
    # With <unk> four words; class 0 has a b b, class 1 b c a, each count one more; both classes have two texts.
    np.testing.assert_allclose(jax.nn.softmax(task.solve(batch))[0], [3 / 5, 2 / 5], rtol=1e-6)
