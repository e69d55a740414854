"""Laws of the compiled step: how a batch is split, spread, dispatched or averaged changes nothing but rounding."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing

from seqlab.build import build
from seqlab.tasks.adding import Adding
from seqlab.training.devices import make_mesh
from seqlab.training.programs import Programs
from seqlab.training.state import cast_floats
from seqlab.training.step import make_gradient, make_measure
from seqlab.types import model_arguments

CONF = Path(__file__).parents[2] / "conf" / "task"
TASKS = sorted(path.stem for path in CONF.glob("*.yaml"))
TINY = (
    "model/cell=rnn",
    "model.encoder.features=5",
    "model.inputs.features=3",
    "trainer.batch_size=12",
    "task.n_eval=12",
)


@pytest.fixture(scope="module")
def parts_of(compose):
    @functools.cache
    def parts_of(*overrides: str, tiny: tuple[str, ...] = TINY):
        return build(compose(*tiny, *overrides))

    return parts_of


def programs_of(parts, n_devices=1, seeds=(0,), **settings) -> Programs:
    return Programs(
        parts.task,
        parts.sets,
        parts.model,
        parts.optimiser,
        dataclasses.replace(parts.settings, **settings),
        jax.devices()[:n_devices],
        list(seeds),
    )


def assert_close(a, b, rtol=2e-5, atol=2e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol), a, b)


def assert_same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


SPARED = {"reverse", "copy_memory", "parity", "copy_first", "char_lm", "char_stream", "bidirectional_lm", "masked_lm"}
SPARED |= {"addition", "copy_sequence", "reverse_sequence", "sort_sequence", "adding", "periods", "series", "speech"}
SPARED |= {"ner", "pixels", "image_classification", "video_classification", "captioning", "video_tagging"}
SPARED |= {"translation", "tagging"}


@pytest.mark.parametrize("task", sparing(TASKS, SPARED.__contains__))
def test_accumulated_gradient_is_that_of_the_whole_batch(parts_of, task):
    whole_tree = "encoder: identity" not in (CONF / f"{task}.yaml").read_text(encoding="utf-8")
    parts = parts_of(f"task={task}") if whole_tree else parts_of("+debug=tiny", f"task={task}", tiny=TINY[-2:])
    measure, mesh = make_measure(parts.model, parts.task, jnp.float32), make_mesh(jax.devices()[:1], 1, 12)
    batch = parts.sets["validation"]
    init = jax.jit(parts.model.init, static_argnames="train")
    params = init(jax.random.key(5), *model_arguments(parts.model, batch), train=False)["params"]
    whole, in_three = (
        jax.jit(make_gradient(measure, accumulate, mesh))(params, batch, jax.random.key(7), 0) for accumulate in (1, 3)
    )
    assert_close(whole, in_three)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole[0])) > 1e-4


@pytest.mark.slow
def test_one_dispatch_equals_many(parts_of):
    programs = programs_of(parts_of())
    at_once = programs.advance(programs.init(), 5)
    in_parts = programs.advance(programs.advance(programs.init(), 2), 3)
    assert_same(at_once, in_parts)


def test_replicas_equal_single_runs(parts_of):
    parts = parts_of("model.encoder.dropout=0.3", "model.dropout=0.3")
    stack, single = programs_of(parts, seeds=(2, 3, 4)), programs_of(parts, seeds=(3,))
    states, state = stack.advance(stack.init(), 5), single.advance(single.init(), 5)
    assert_close(jax.tree.map(lambda leaf: leaf[1:2], states.params), state.params)
    first = np.asarray(jax.tree.leaves(states.params)[0])
    assert np.abs(first[0] - first[1]).max() > 1e-3


@pytest.mark.slow
def test_devices_change_nothing_but_rounding(parts_of):
    parts = parts_of("task=reverse", "model.dropout=0.3")
    one, many = programs_of(parts, 1, (0, 1)), programs_of(parts, 4, (0, 1))
    assert (many.mesh.shape["replica"], many.mesh.shape["data"]) == (2, 2)
    state_one, state_many = one.advance(one.init(), 3), many.advance(many.init(), 3)
    assert_close(state_one.params, state_many.params)
    assert_close(state_one.sums, state_many.sums)
    for programs in (one, many):
        programs.compile_evaluation()
    assert_close(one.evaluate(state_one.params), many.evaluate(state_many.params))


def test_moving_average(parts_of):
    programs = programs_of(parts_of(), ema=0.75)
    state = programs.init()
    expected = jax.device_get(state.params)
    for _ in range(3):
        state = programs.advance(state, 1)
        expected = jax.tree.map(lambda e, p: 0.75 * e + 0.25 * np.asarray(p), expected, state.params)
    assert_close(expected, state.ema)
    assert state.eval_params is state.ema
    assert float(jnp.abs(jax.tree.leaves(state.ema)[0] - jax.tree.leaves(state.params)[0]).max()) > 1e-4


@pytest.mark.slow
def test_bfloat16_keeps_float32_parameters_and_close_values(parts_of):
    parts = parts_of("task=adding")
    full, half = (programs_of(parts, dtype=dtype) for dtype in ("float32", "bfloat16"))
    state_full, state_half = full.advance(full.init(), 3), half.advance(half.init(), 3)
    for leaf in jax.tree.leaves((state_half.params, state_half.opt_state, state_half.sums)):
        assert leaf.dtype in (jnp.float32, jnp.int32)
    loss_full, loss_half = (float(s.sums["loss"][0][0] / s.sums["loss"][1][0]) for s in (state_full, state_half))
    assert loss_half == pytest.approx(loss_full, rel=0.03)
    assert loss_half != loss_full


@dataclasses.dataclass(frozen=True)
class Poisoned(Adding):
    """The adding task, with batches of NaN where the key says so."""

    share: float = 0.5

    def is_bad(self, key):
        return jax.random.bernoulli(jax.random.fold_in(key, 99), self.share)

    def sample(self, key, batch_size):
        batch = super().sample(key, batch_size)
        return dataclasses.replace(batch, inputs=jnp.where(self.is_bad(key), jnp.nan, batch.inputs))


def test_updates_that_are_not_finite_are_skipped_and_counted(parts_of):
    parts = dataclasses.replace(parts_of("task=adding"), task=Poisoned(length=5, n_eval=7))
    programs = programs_of(parts, max_nonfinite=100)
    state, skipped = programs.init(), 0
    for _ in range(12):
        before = jax.device_get(state)
        state = programs.advance(state, 1)
        was_skipped = int(state.skipped[0]) - skipped
        skipped += was_skipped
        if was_skipped:
            assert_same((before.params, before.opt_state, before.sums), (state.params, state.opt_state, state.sums))
        else:
            assert np.isfinite(float(state.sums["loss"][0][0]))
            assert int(state.skipped_run[0]) == 0
    assert 0 < skipped < 12
    assert int(state.step[0]) == 12


def test_a_replica_that_diverged_stands_still(parts_of):
    parts = dataclasses.replace(parts_of("task=adding"), task=Poisoned(length=5, n_eval=7, share=1.0))
    programs = programs_of(parts, max_nonfinite=3)
    state = programs.advance(programs.init(), 7)
    assert (int(state.step[0]), int(state.skipped[0]), int(state.skipped_run[0])) == (3, 3, 3)


def test_casting_leaves_integers_alone():
    tree = cast_floats({"ids": jnp.arange(3), "x": jnp.ones(2)}, jnp.bfloat16)
    assert (tree["ids"].dtype, tree["x"].dtype) == (jnp.int32, jnp.bfloat16)
