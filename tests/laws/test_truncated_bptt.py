# mypy: disable-error-code="arg-type,attr-defined,index"
"""Laws of truncated back-propagation through time: what a stream reads, and the state carried between its windows."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.build import build
from seqlab.data.text import split_by_position
from seqlab.tasks.checks import check_batch
from seqlab.tasks.continuous_language_model import ContinuousLanguageModel
from seqlab.training.carry import initial_state
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import make_mesh
from seqlab.training.programs import Programs
from seqlab.training.step import make_gradient, make_measure
from seqlab.types import UserError

L, B = 3, 4
DOCUMENTS = ["ab" * 9, "", "cabbage " * 4, "bac", "a bad cab", "abc " * 13, "dab " * 7, "dad bad " * 5]
TINY = (
    "task=char_stream",
    f"task.length={L}",
    "task.n_eval=3",
    "model.inputs.features=3",
    "model.encoder.features=7",
    "optim=sgd",
    "optim.learning_rate=0.5",
    f"trainer.batch_size={B}",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents")
    for i, document in enumerate(DOCUMENTS):
        (path / f"{i}.txt").write_text(document)
    return str(path)


@pytest.fixture(scope="module")
def parts_of(compose, folder):
    @functools.cache
    def parts_of(*overrides):
        config = compose(*TINY, *overrides)
        config.task.path = folder
        return build(config)

    return parts_of


@pytest.fixture(scope="module")
def programs(parts_of):
    """One replica on one device."""
    return programs_of(parts_of("model/cell=rnn"), 1, [3])


@pytest.fixture(scope="module")
def spread_programs(parts_of):
    """Two replicas, each on two devices."""
    programs = programs_of(parts_of("model/cell=rnn"), 4, [2, 3])
    assert (programs.mesh.shape["replica"], programs.mesh.shape["data"]) == (2, 2)
    programs.compile()
    return programs


def programs_of(parts, n_devices, seeds):
    return Programs(
        parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:n_devices], seeds
    )


def stream(task, n_steps, batch_size=B):
    """The windows of the first updates, on the host."""
    batches = jax.jit(jax.vmap(lambda step: task.sample_at(step, batch_size)))(jnp.arange(n_steps))
    batches = jax.tree.map(np.asarray, batches)
    return [jax.tree.map(lambda leaf, step=step: leaf[step], batches) for step in range(n_steps)]


def documents_of(task, piece):
    """The ids of each document that has part in a piece, which is 0 for train, 1 for validation and 2 for test."""
    text, sizes = "\n".join(DOCUMENTS), [len(document) + 1 for document in DOCUMENTS]
    pieces = split_by_position(text)
    place = np.repeat(np.arange(len(DOCUMENTS)), sizes)[: len(text)]
    begin = sum(map(len, pieces[:piece]))
    place = place[begin : begin + len(pieces[piece])]
    ids = task.vocabulary.encode(pieces[piece])
    return [ids[place == document] for document in np.unique(place)]


def pairs(batch, row):
    told = batch.weights[row] > 0
    return list(zip(batch.inputs[row][told].tolist(), batch.targets[row][told].tolist(), strict=True))


def assert_close(ours, theirs, rtol=2e-5, atol=2e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), ours, theirs)


def assert_same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("batch_size", (1, 4, 7))
def test_every_token_but_the_first_of_a_document_is_a_target_once_an_epoch(folder, batch_size):
    task = ContinuousLanguageModel(folder, length=L)
    documents = documents_of(task, 0)
    n_windows = sum(-(-(len(ids) - 1) // L) for ids in documents)
    cuts = n_windows * np.arange(batch_size + 1) // batch_size
    batches = stream(task, cuts[1] + 3, batch_size)
    for batch in batches:
        check_batch(batch, task)
    read = [pair for row, n in enumerate(np.diff(cuts)) for batch in batches[:n] for pair in pairs(batch, row)]
    assert read == [pair for ids in documents for pair in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)]
    begins = [place == 0 for ids in documents for place in range(0, len(ids) - 1, L)]
    for row, n in enumerate(np.diff(cuts)):
        for step, batch in enumerate(batches):
            place = step % n
            assert batch.fresh[row] == (place == 0 or begins[cuts[row] + place])
            if not batch.fresh[row]:
                assert batch.inputs[row, 0] == pairs(batches[step - 1], row)[-1][1]
        assert_same(*(jax.tree.map(lambda leaf, row=row: leaf[row], batches[step]) for step in (0, n)))


def test_rows_take_turns_at_beginning_anew(folder):
    often, plain = ContinuousLanguageModel(folder, length=L, fresh_every=B), ContinuousLanguageModel(folder, length=L)
    for step, (batch, as_before) in enumerate(zip(stream(often, 9), stream(plain, 9), strict=True)):
        turn = np.arange(B) == -step % B
        assert_same(batch, as_before.replace(fresh=as_before.fresh | turn))


@pytest.mark.parametrize("n_eval", (1, 3, None))
def test_evaluation_predicts_each_token_once_from_its_document_alone(folder, n_eval):
    task = ContinuousLanguageModel(folder, length=L, n_eval=n_eval)
    for piece, batch in enumerate(task.evaluation_sets().values(), start=1):
        batch, documents = jax.tree.map(np.asarray, batch), documents_of(task, piece)
        check_batch(batch, task)
        assert batch.fresh is None
        told = [pair for row in range(len(batch.inputs)) for pair in pairs(batch, row)]
        assert told == [pair for ids in documents for pair in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)]
        longest = sum(len(ids) - 1 for ids in documents) if n_eval is None else batch.inputs.shape[1]
        assert len(batch.inputs) == sum(-(-(len(ids) - 1) // longest) for ids in documents)
        assert batch.inputs.shape[1] <= -(-sum(len(ids) - 1 for ids in documents) // (n_eval or 1))


def test_updates_are_those_of_a_loop_over_single_steps_with_a_constant_state(parts_of, programs):
    parts = parts_of("model/cell=rnn")
    task, model = parts.task, parts.model
    batches = stream(task, 5)
    assert any(0 < batch.fresh.sum() < B for batch in batches[1:])
    assert any((batch.weights == 0).any() for batch in batches)

    def loss(params, state, batch):
        total = 0.0
        for t in range(L):
            new, logits = model.apply({"params": params}, state, batch.inputs[:, t], method="step")
            told = batch.weights[:, t]
            total -= (told * jax.nn.log_softmax(logits)[jnp.arange(B), batch.targets[:, t]]).sum()
            state = jax.tree.map(lambda n, o, told=told: jnp.where(told[:, None] > 0, n, o), new, state)
        return total / batch.weights.sum(), state

    gradient = jax.jit(jax.grad(loss, has_aux=True))
    state = programs.init()
    params, carry = jax.device_get(jax.tree.map(lambda leaf: leaf[0], (state.params, state.carry)))
    for batch in batches:
        carry = jax.tree.map(lambda leaf, fresh=batch.fresh: np.where(fresh[:, None], 0, leaf), carry)
        grads, carry = jax.device_get(gradient(params, carry, batch))
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
        state = programs.advance(state, 1)
        assert_close(jax.tree.map(lambda leaf: leaf[0], (state.params, state.carry)), (params, carry))
    # The carry counts: without it the last gradient is another one.
    other, _ = gradient(params, jax.tree.map(np.zeros_like, carry), batch)
    assert max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (grads, other)), strict=True)) > 1e-3


@pytest.mark.slow
def test_replicas_and_devices_change_nothing_but_rounding(programs, spread_programs):
    single, stack = (p.advance(p.init(), 6) for p in (programs, spread_programs))
    one = jax.tree.map(lambda leaf: leaf[1:], stack)
    assert_close((one.params, one.sums, one.carry), (single.params, single.sums, single.carry))
    carry = jax.tree.leaves(stack.carry)[0]
    assert np.abs(carry[0] - carry[1]).max() > 1e-3
    assert {shard.data.shape for shard in carry.addressable_shards} == {(1, B // 2, 7)}
    moves = re.findall(r" (all-gather|all-to-all|collective-permute)\(", spread_programs._advance.as_text())
    assert moves == []


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one(spread_programs, tmp_path):
    programs = spread_programs
    at_once = programs.advance(programs.init(), 7)
    first = programs.advance(programs.init(), 3)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_latest(3, first, {})
    restored, _ = checkpoints.restore("latest", programs.state_like)
    checkpoints.close()
    assert np.abs(jax.tree.leaves(restored.carry)[0]).max() > 0
    assert_same(jax.device_get(programs.advance(restored, 4)), jax.device_get(at_once))


def test_what_is_not_finite_does_not_stay_in_the_carry(programs):
    state = programs.advance(programs.init(), 1)
    poisoned = jax.tree.map(lambda leaf: leaf.at[:, 2].set(jnp.nan), state.carry)
    # Step 1 of the stream: row 2 goes on from the poison, unless it is fresh.
    skipped = programs.advance(state.replace(carry=poisoned), 1)
    assert int(skipped.skipped[0]) == 1
    for leaf in jax.tree.leaves(skipped.carry):
        assert not np.asarray(leaf)[0, 2].any()
        assert np.asarray(leaf)[0, [0, 1, 3]].all()
    good = programs.advance(skipped, 1)
    assert (int(good.skipped[0]), int(good.skipped_run[0])) == (1, 0)
    # What stands still keeps its carry too.
    still = good.replace(skipped_run=jnp.full_like(good.skipped_run, 10))
    before = jax.device_get(still)
    assert_same(jax.device_get(programs.advance(still, 1)), before)


@pytest.fixture(scope="module")
def gradient_of(parts_of, programs):
    """The gradient of a window, on given devices, from a carry that is not zero."""
    parts = parts_of("model/cell=rnn")
    batch = stream(parts.task, 3)[2]
    measure = make_measure(parts.model, parts.task, jnp.float32)
    params, zero = jax.device_get(jax.tree.map(lambda leaf: leaf[0], (programs.init().params, programs.init().carry)))
    rng = np.random.default_rng(0)
    carry = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), zero)

    @functools.cache
    def compiled(accumulate, n_devices):
        return jax.jit(make_gradient(measure, accumulate, make_mesh(jax.devices()[:n_devices], 1, B // accumulate)))

    def gradient_of(fresh, carried=True, accumulate=1, n_devices=1):
        told = batch.replace(fresh=np.array(fresh))
        return compiled(accumulate, n_devices)(params, told, jax.random.key(7), 2, carry if carried else None)

    return gradient_of


def test_with_resets_everywhere_it_is_ordinary_training(gradient_of):
    gradient, sums, _ = gradient_of([True] * B)
    expected, expected_sums, none = gradient_of([True] * B, carried=False)
    assert none is None
    assert_close((gradient, sums), (expected, expected_sums))


def test_micro_batches_and_devices_carry_the_same_rows(gradient_of):
    fresh = [True, False, False, True]
    assert_close(gradient_of(fresh, accumulate=2, n_devices=2), gradient_of(fresh))


@pytest.mark.slow
def test_two_windows_are_one_of_twice_the_length(parts_of):
    model = parts_of("model/cell=lstm", "model.encoder.n_layers=2").model
    ids, lengths = np.random.default_rng(0).integers(0, 5, (B, 2 * L)), np.array([2 * L, L + 2, L, 2 * L - 1])

    @jax.jit
    def run(key):
        variables = model.init(key, ids, train=False)
        whole = model.apply(variables, ids, lengths, train=False)
        state = initial_state(model, variables, B)
        first, state = model.apply(variables, ids[:, :L], state=state, train=False)
        second, _ = model.apply(variables, ids[:, L:], lengths - L, state=state, train=False)
        return whole, jnp.concatenate([first, second], 1)

    whole, in_two = run(jax.random.key(0))
    assert_close(in_two, whole, atol=1e-5)
    assert np.abs(whole[0, L:]).max() > 1e-2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model/layer=bidirectional"], "from window to window: a bidirectional layer reads from both ends"),
        (
            [
                "model/encoder=transformer",
                "model.encoder.mixer.n_heads=1",
                "model/positions=none",
                "model.inputs.features=7",
            ],
            r"has room for \d+ steps \(max_length\)",
        ),
    ],
)
def test_a_model_that_cannot_go_on_is_refused(parts_of, overrides, message):
    with pytest.raises(UserError, match=f"ContinuousLanguageModel hands the model's state on .*{message}"):
        parts_of(*overrides)


def test_more_rows_than_windows_are_refused(parts_of):
    with pytest.raises(UserError, match=r"in 97 rows, but the training piece of .* has \d\d windows of length 3"):
        parts_of("model/cell=rnn", "trainer.batch_size=97")


def test_fresh_is_a_bool_for_each_row(parts_of):
    parts = parts_of("model/cell=rnn")
    (batch,) = stream(parts.task, 1)
    for fresh in (np.zeros(B), np.zeros(B + 1, bool)):
        with pytest.raises(UserError, match="expected a bool a row"):
            check_batch(dataclasses.replace(batch, fresh=fresh), parts.task)
