# mypy: disable-error-code="arg-type,attr-defined,index"
"""Laws of every YAML in conf/task."""

import dataclasses
import functools
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from sparing import sparing

from seqlab.evaluation.baseline import measure_baseline
from seqlab.evaluation.evaluate import finalise
from seqlab.overrides import require_known_fields
from seqlab.tasks.adding import Adding
from seqlab.tasks.addition import Addition
from seqlab.tasks.checks import check_batch
from seqlab.tasks.copy_first import CopyFirst
from seqlab.tasks.copy_memory import CopyMemory
from seqlab.tasks.drawing import draw_evaluation_sets
from seqlab.tasks.parity import Parity
from seqlab.tasks.periods import Periods
from seqlab.tasks.reverse import Reverse
from seqlab.tasks.transduction import Transduction
from seqlab.training.state import DATA, derive_key
from seqlab.types import Batch, UserError

CONF = Path(__file__).parents[2] / "conf"
NAMES = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))
B = 7


@pytest.fixture
def task(request, build_task):
    return build_task(request.param)


@functools.cache
def sampler(task):
    return jax.jit(task.sample, static_argnums=1)


@functools.cache
def evaluation_sets(task):
    return task.evaluation_sets()


# Of those that share what they do with another.
SPARED = {
    "copy_sequence",
    "sort_sequence",
    "bidirectional_lm",
    "masked_lm",
    "tagging",
    "pixels",
    "video_tagging",
    "series",
    "addition",
    "reverse_sequence",
    "parity",
    "ner",
    "captioning",
}
every_task = pytest.mark.parametrize("task", sparing(NAMES, SPARED.__contains__), indirect=True)


def equal(left, right):
    return jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), left, right))


def only_inputs(batch):
    """The batch as a solver may see it: whatever stands in its targets and weights is wrong."""
    return batch.replace(targets=jnp.full_like(batch.targets, -1), weights=jnp.full_like(batch.weights, jnp.nan))


def best_constant(task, batch):
    """The best outputs that ignore the inputs: the classes' log frequencies, or the mean of the targets."""
    if jnp.issubdtype(batch.targets.dtype, jnp.integer):
        # Where a step has several targets, each has its share of the outputs.
        labels_nK = np.asarray(batch.targets[batch.weights > 0]).reshape(int((batch.weights > 0).sum()), -1)
        n_classes = task.n_outputs // labels_nK.shape[1]
        counted = np.concatenate([np.bincount(labels_n, minlength=n_classes) for labels_n in labels_nK.T])
        constant = np.log(np.maximum(counted, 1e-9) / len(labels_nK))
    else:
        constant = np.mean(batch.targets[batch.weights > 0], axis=0)
    return jnp.broadcast_to(jnp.float32(constant), (*batch.weights.shape, task.n_outputs))


@pytest.mark.parametrize("name", NAMES)
def test_yaml_composes_with_a_model_that_fits(compose, build_task, name):
    config = compose(f"task={name}")
    require_known_fields(config)
    task = instantiate(config.task)
    assert task == build_task(name)
    assert ("pool" in config.model) == (task.target_per == "row")
    assert ("decoder" in config.model) == (task.target_per == "sequence")
    assert ("vocab_size" in config.model.inputs) == (task.vocab_size is not None)


@pytest.mark.parametrize("name", NAMES)
def test_first_line_says_the_task_and_its_command(name):
    first_line = (CONF / f"task/{name}.yaml").read_text().splitlines()[0]
    assert first_line.startswith("# ")
    assert f"python -m seqlab.train task={name}" in first_line


@every_task
def test_a_sample_is_a_function_of_its_key(task):
    batch = sampler(task)(jax.random.key(0), B)
    assert equal(batch, sampler(task)(jax.random.key(0), B))
    assert not equal(batch.inputs, sampler(task)(jax.random.key(1), B).inputs)
    assert not equal(batch.targets, sampler(task)(jax.random.key(1), B).targets)


@every_task
def test_samples_and_evaluation_sets_keep_their_promises(task):
    check_batch(sampler(task)(jax.random.key(0), B), task)
    for batch in evaluation_sets(task).values():
        check_batch(batch, task)
        assert len(batch.inputs) == (task.n_eval or len(batch.inputs))
        if batch.lengths is not None:
            padded = np.arange(batch.inputs.shape[1]) >= np.asarray(batch.lengths)[:, None]
            assert padded.any()
            assert not np.asarray(batch.inputs)[padded].any()


@every_task
def test_the_solver_is_best_and_sees_the_inputs_alone(task):
    batch = evaluation_sets(task)["validation"]
    solved = finalise(jax.jit(lambda b: task.measure(task.solve(only_inputs(b)), b))(batch))
    constant = finalise(jax.jit(task.measure)(best_constant(task, batch), batch))
    if hasattr(task, "baseline") and not hasattr(task, "guess"):
        # What is learned of the training split is worth as much as what is known of this one alone.
        assert 0 < solved["loss"] < constant["loss"] + 0.05
        return
    assert solved["loss"] < 1e-6 < 0.1 < constant["loss"]
    for metric in solved:
        if "accuracy" in metric or metric.startswith("within"):
            assert solved[metric] == 1 > 0.9 > constant[metric]


@every_task
def test_evaluation_sets_are_fixed_and_differ(task):
    sets = evaluation_sets(task)
    assert set(sets) == {"validation", "test"}
    with jax.default_prng_impl("rbg"):
        assert equal(sets, dataclasses.replace(task).evaluation_sets())
    assert not equal(sets["validation"].inputs, sets["test"].inputs)


def test_evaluation_keys_are_apart_from_training_keys():
    keys = draw_evaluation_sets(lambda key, n: jax.random.key_data(key), 1)
    evaluation = {tuple(key.tolist()) for key in keys.values()}
    assert len(evaluation) == 2
    seeds, steps = jnp.arange(101), jnp.arange(1009)
    training = jax.jit(jax.vmap(jax.vmap(derive_key, (None, None, 0)), (0, None, None)))(seeds, DATA, steps)
    training = jax.random.key_data(training).reshape(-1, 2)
    assert len(np.unique(training, axis=0)) == 101 * 1009
    assert not evaluation & set(map(tuple, training.tolist()))


# What the inputs ask for, row by row in plain Python: (targets, which of them count).


def answer_copy_first(task, row):
    return row[0], True


def answer_copy_memory(task, row):
    n, delimiter = task.n_symbols, list(row).index(task.vocab_size - 1)
    assert delimiter == n + task.delay - 1
    assert max(row[:n]) < task.vocab_size - 2
    assert set(row[n:delimiter]) | set(row[delimiter + 1 :]) == {task.vocab_size - 2}
    return [task.vocab_size - 2] * (delimiter + 1) + list(row[:n]), [True] * len(row)


def answer_adding(task, row):
    first, second = np.flatnonzero(row[:, 1])
    assert first < task.length // 2 <= second
    assert row[[first, second], 1].tolist() == [1, 1]
    assert 0 <= row[:, 0].min() < row[:, 0].max() < 1
    return row[first, 0] + row[second, 0], True


def answer_parity(task, row):
    return list(row).count(1) % 2, True


def answer_reverse(task, row):
    read = list(row[: list(row).index(task.vocab_size - 1)])
    blanks = [task.vocab_size - 2] * len(read)
    assert list(row[len(read) + 1 :]) == blanks
    return [0] * (len(read) + 1) + read[::-1], [False] * (len(read) + 1) + [True] * len(read)


def answer_transduction(task, row):
    rules = {"copy": list, "reverse": lambda row: list(row)[::-1], "sort": sorted}
    return [*rules[task.rule](row), task.eos], [True] * (len(row) + 1)


def answer_addition(task, row):
    text = "".join("0123456789+"[i] for i in row)
    assert all(number == str(int(number)) and len(number) <= task.n_digits for number in text.split("+"))
    assert row.tolist() == task.encode_source(text).tolist()
    digits = [int(c) for c in str(sum(map(int, text.split("+"))))]
    assert task.decode_target(digits) == str(sum(map(int, text.split("+"))))
    return [*digits, task.eos], [True] * (len(digits) + 1)


def answer_periods(task, row):
    x, p, q = [*row[:, 0]], task.first_period, task.second_period
    told = [t + 1 >= p + q for t in range(len(x))]
    x.append(x[-p] + x[-q] - x[-p - q])
    return x[1:], told


ANSWERS = {
    Periods(length=11): answer_periods,
    Periods(length=17, first_period=3, second_period=4): answer_periods,
    Transduction("copy", n_symbols=5, vocab_size=7): answer_transduction,
    Transduction("reverse", n_symbols=5, min_symbols=2, vocab_size=3): answer_transduction,
    Transduction("sort", n_symbols=7, vocab_size=11): answer_transduction,
    Addition(n_digits=3): answer_addition,
    Addition(n_digits=8): answer_addition,
    CopyFirst(length=5, vocab_size=7): answer_copy_first,
    CopyFirst(length=1, vocab_size=2): answer_copy_first,
    CopyMemory(n_symbols=3, delay=5, vocab_size=7): answer_copy_memory,
    CopyMemory(n_symbols=1, delay=1, vocab_size=3): answer_copy_memory,
    Adding(length=7): answer_adding,
    Adding(length=2): answer_adding,
    Parity(length=5): answer_parity,
    Parity(length=7, min_length=2): answer_parity,
    Reverse(n_symbols=3, vocab_size=7): answer_reverse,
    Reverse(n_symbols=5, min_symbols=1, vocab_size=7): answer_reverse,
}


@pytest.mark.parametrize("task", ANSWERS, ids=str)
def test_targets_follow_from_the_inputs(task):
    batch = jax.tree.map(np.asarray, sampler(task)(jax.random.key(0), 53))
    T = batch.inputs.shape[1]
    lengths = np.full(53, T) if batch.lengths is None else batch.lengths
    shortest = getattr(task, "min_length", None) or getattr(task, "min_symbols", None)
    assert (batch.lengths is None) == (shortest is None and task.target_per != "sequence")
    for row, length, targets, weights in zip(batch.inputs, lengths, batch.targets, batch.weights, strict=True):
        answer, counts = ANSWERS[task](task, row[:length])
        if task.target_per != "row":
            answer, counts = (np.pad(values, (0, len(targets) - len(values))) for values in (answer, counts))
        np.testing.assert_allclose(targets, answer, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(weights, counts)


def test_every_value_is_drawn():
    batch = jax.tree.map(np.asarray, sampler(Reverse(n_symbols=3, min_symbols=1, vocab_size=5))(jax.random.key(0), 211))
    assert set(batch.lengths) == {3, 5, 7}
    assert set(batch.targets[batch.weights > 0]) == {0, 1, 2}
    assert set(np.asarray(sampler(CopyFirst(vocab_size=5))(jax.random.key(0), 211).targets)) == {1, 2, 3, 4}
    marks_T = np.asarray(sampler(Adding(length=5))(jax.random.key(0), 211).inputs)[:, :, 1].sum(0)
    assert (marks_T > 211 / 5).all()


@pytest.mark.parametrize(
    ("task", "loss", "tolerance"),
    [
        (CopyMemory(delay=50, n_eval=17), 10 * np.log(8) / 70, 1e-6),
        (CopyMemory(n_symbols=3, delay=5, vocab_size=7, n_eval=17), 3 * np.log(5) / 11, 1e-6),
        (Adding(length=5, n_eval=9973), 1 / 6, 0.05),
        (Periods(length=17, first_period=3, second_period=4, n_eval=997), 1.0, 0.05),
    ],
    ids=str,
)
def test_the_baseline_of_what_can_be_solved_has_the_documented_loss(task, loss, tolerance):
    baseline = measure_baseline(task, task.evaluation_sets(), 499)
    np.testing.assert_allclose(baseline["measured"]["test"]["loss"], loss, rtol=tolerance)


@every_task
def test_sizes_out_of_range_are_refused_in_a_sentence(task):
    sizes = [field.name for field in dataclasses.fields(task) if int in (field.type, *get_args(field.type))]
    assert "n_eval" in sizes
    for size in sizes:
        for value in (0, -3, 2.5, "many"):
            with pytest.raises(UserError) as refusal:
                dataclasses.replace(task, **{size: value})
            assert repr(value) in str(refusal.value)
            assert size in str(refusal.value)
            assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CopyFirst(vocab_size=1), "copy_first has vocab_size 1; expected an integer of at least 2, the zero"),
        (lambda: CopyMemory(vocab_size=2), "copy_memory has vocab_size 2; expected an integer of at least 3"),
        (lambda: Reverse(vocab_size=2), "reverse has vocab_size 2; expected an integer of at least 3"),
        (lambda: Adding(length=1), "adding has length 1; expected an integer of at least 2"),
        (lambda: Parity(length=5, min_length=6), "parity has min_length 6; expected at most the length, 5."),
        (lambda: Reverse(n_symbols=5, min_symbols=6), "reverse has min_symbols 6; expected at most n_symbols, 5."),
    ],
)
def test_sizes_that_a_task_cannot_have_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


REVERSE = Reverse(n_symbols=2, min_symbols=1, vocab_size=5)
TOKENS = Batch(
    inputs=np.array([[2, 4, 3, 0, 0], [0, 1, 4, 3, 3]]),
    lengths=np.array([3, 5]),
    targets=np.array([[0, 0, 2, 0, 0], [0, 0, 0, 1, 0]]),
    weights=np.array([[0, 0, 1.0, 0, 0], [0, 0, 0, 1, 1]]),
)
ADDING = Adding(length=3)
VECTORS = Batch(np.ones((2, 3, 2)), None, np.ones(2), np.ones(2))


def put(batch, field, index, value):
    changed = np.array(getattr(batch, field))
    changed[index] = value
    return batch.replace(**{field: changed})


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (put(TOKENS, "inputs", (1, 3), 5), "id 5 at row 1, position 3; expected ids 0..4, as vocab_size is 5."),
        (put(TOKENS, "inputs", (0, 4), -1), "id -1 at row 0, position 4; expected ids 0..4"),
        (TOKENS.replace(inputs=TOKENS.inputs * 1.0), r"float64 inputs of shape \(2, 5\); expected integer ids"),
        (TOKENS.replace(inputs=TOKENS.inputs[0]), r"inputs of shape \(5,\); expected integer ids"),
        (put(TOKENS, "targets", (1, 4), 3), "label 3 at row 1, position 4; expected labels 0..2, as n_outputs is 3."),
        (put(TOKENS, "targets", (0, 2), -1), "label -1 at row 0, position 2; expected labels 0..2"),
        (put(TOKENS, "lengths", 0, -1), "length -1 at row 0; expected 0..5"),
        (put(TOKENS, "lengths", 1, 6), "length 6 at row 1; expected 0..5"),
        (TOKENS.replace(lengths=TOKENS.lengths[:1]), r"lengths of shape \(1,\); expected integers \(2,\)"),
        (put(TOKENS, "weights", (0, 3), 1.0), "weight 1.0 at row 0, position 3; expected 0, as the step lies past"),
        (put(TOKENS, "weights", (1, 3), -1.0), "weight -1.0 at row 1, position 3; expected a finite number from 0"),
        (put(TOKENS, "weights", (1, 3), np.nan), "weight nan at row 1, position 3; expected a finite number"),
        (TOKENS.replace(weights=np.ones(2)), r"weights of shape \(2,\); expected \(2, 5\), one a step"),
        (TOKENS.replace(targets=np.ones(2)), r"targets of shape \(2,\); expected \(2, 5\)"),
        (put(VECTORS, "inputs", (1, 2, 0), np.inf), "input inf at row 1, position 2, component 0; expected a finite"),
        (VECTORS.replace(inputs=np.ones((2, 3, 5))), r"inputs of shape \(2, 3, 5\); expected floats \(B, T, 2\)"),
        (put(VECTORS, "targets", 1, np.nan), "target nan at row 1; expected a finite number"),
        (VECTORS.replace(weights=np.ones((2, 3))), r"weights of shape \(2, 3\); expected \(2,\), one a row"),
    ],
)
def test_a_batch_that_breaks_its_promises_is_refused_in_a_sentence(batch, message):
    task = REVERSE if batch.inputs.ndim < 3 else ADDING
    with pytest.raises(UserError, match=message) as refusal:
        check_batch(batch, task)
    assert str(refusal.value).count(".\n") == 0


def test_batches_that_keep_their_promises_pass():
    check_batch(TOKENS, REVERSE)
    check_batch(VECTORS, ADDING)
    check_batch(put(TOKENS, "targets", (0, 0), 99), REVERSE)  # an ignored label may be anything
    check_batch(put(TOKENS, "lengths", 0, 0).replace(weights=TOKENS.weights * [[0], [1]]), REVERSE)
