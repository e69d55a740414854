"""Laws of measuring a fixed set, over every task in conf/task."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing

from seqlab.evaluation.evaluate import evaluate_set, finalise
from seqlab.types import Batch

GROUP = Path(__file__).parents[2] / "conf/task"
N_ROWS = 13


SPARED = {"reverse", "parity", "copy_first", "char_lm", "char_stream", "masked_lm"}
SPARED |= {"addition", "copy_sequence", "reverse_sequence", "tagging", "pixels", "video_classification", "speech"}
SPARED |= {"captioning", "series", "copy_memory", "sort_sequence", "bidirectional_lm", "video_tagging", "periods"}


@pytest.fixture(scope="module", params=sparing(sorted(path.stem for path in GROUP.glob("*.yaml")), SPARED.__contains__))
def case(request, build_task):
    """A task, a small set, and a model that is right up to a noise that depends on the row alone."""
    task = build_task(request.param)
    batch = jax.jit(task.sample, static_argnums=1)(jax.random.key(0), N_ROWS)

    def apply(scale, batch: Batch):
        answers = task.solve(batch)
        phase_B = batch.inputs.reshape(len(answers), -1).astype(jnp.float32).sum(1)
        noise = jnp.sin(phase_B.reshape(-1, *[1] * (answers.ndim - 1)) + jnp.arange(answers.shape[-1]))
        return answers / 100 + scale * noise

    def measure(scale, batch, batch_size):
        return evaluate_set(lambda scale, part: task.measure(apply(scale, part), part), scale, batch, batch_size)

    whole = jax.jit(lambda scale, batch: task.measure(apply(scale, batch), batch))(jnp.float32(1.0), batch)
    return task, apply, jax.jit(measure, static_argnums=2), batch, whole


def assert_equal(left, right):
    assert left.keys() == right.keys()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), left, right)


def test_sums_do_not_depend_on_the_batch_size(case):
    _, _, measure, batch, whole = case
    assert whole["loss"][0] > 0
    for batch_size in (5, N_ROWS + 4):
        assert_equal(measure(jnp.float32(1.0), batch, batch_size), whole)


def test_rows_that_fill_the_last_batch_count_for_nothing_even_if_nan(case):
    task, apply, _, batch, whole = case

    def nan_where_filling(_, part):
        real_B = part.weights.reshape(len(part.weights), -1).any(1)
        outputs = apply(jnp.float32(1.0), part)
        return task.measure(jnp.where(real_B.reshape(-1, *[1] * (outputs.ndim - 1)), outputs, jnp.nan), part)

    filled = jax.jit(lambda batch: evaluate_set(nan_where_filling, None, batch, 5))(batch)
    assert_equal(filled, whole)


def test_replicas_are_measured_side_by_side(case):
    _, _, measure, batch, _ = case
    scales_R = jnp.array([0.0, 1.0, 3.0])
    stacked = jax.jit(jax.vmap(lambda scale: measure(scale, batch, 5)))(scales_R)
    single = [measure(scale, batch, 5) for scale in scales_R]
    assert_equal(stacked, jax.tree.map(lambda *leaves: jnp.stack(leaves), *single))
    assert len(set(np.asarray(finalise(stacked)["loss"]).tolist())) == 3


def test_finalise_divides_once_and_calls_an_unmet_metric_nan():
    values = finalise({"loss": (jnp.array([6.0, 0.0]), jnp.array([4.0, 0.0]))})
    np.testing.assert_array_equal(values["loss"], [1.5, np.nan])


def test_finalise_takes_a_perplexity_for_the_exponential_of_its_mean():
    sums = {name: (jnp.array([6.0, 0.0]), jnp.array([4.0, 0.0])) for name in ("loss", "perplexity")}
    values = finalise(sums)
    np.testing.assert_allclose(values["perplexity"], np.exp([1.5, np.nan]))
    np.testing.assert_array_equal(values["loss"], [1.5, np.nan])
