"""Laws of checkpoints: what is saved comes back to the bit, a kill at any moment loses nothing, a misfit is named."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from seqlab.training import checkpoint
from seqlab.training.checkpoint import Checkpoints
from seqlab.types import UserError

R, D = 2, 3
# The validation losses of a run of seven steps; the best are at steps 1, 3, 4 and 6.
LOSSES = [None, 5.0, 7.0, 3.0, 2.0, 2.5, 1.0, 1.5]


@functools.cache
def _first_state():
    params = {
        "cell": {"kernel": jnp.ones((R, D, 5)), "bias": jnp.full((R, 5), -0.0)},
        "half": jnp.ones((R, 7), "bfloat16"),
    }
    transform = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    return {"params": params, "opt_state": jax.vmap(transform.init)(params), "step": jnp.zeros(R, jnp.int32)}


@jax.jit
def _advance(state):
    return jax.tree.map(lambda leaf: leaf * 3 // 2 + 1 if leaf.dtype == jnp.int32 else leaf * 1.25 + 0.3, state)


def _state_at(step):
    return functools.reduce(lambda state, _: _advance(state), range(step), _first_state())


def _assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _live(directory, pause=lambda step: None):
    """Run to step seven from wherever the directory is, as the loop does: best first, a latest every other step."""
    checkpoints = Checkpoints(directory)
    host = {"best_value": float("inf"), "best_step": None}
    state, began = _first_state(), checkpoints.latest_step() or 0
    if began:
        state, host = checkpoints.restore("latest", state)
    for step in range(began + 1, 8):
        state = _advance(state)
        if LOSSES[step] < host["best_value"]:
            host = {"best_value": LOSSES[step], "best_step": step}
            checkpoints.save_best(step, state, host)
        if step % 2 == 0 or step == 7:
            checkpoints.save_latest(step, state, host)
        pause(step)
    checkpoints.close()


def _tree(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.glob("*/*") if path.name.isdigit())


def _assert_sound(directory):
    """What a kill leaves: the latest state to the bit, and on disk the best that it knows of."""
    checkpoints = Checkpoints(directory)
    step = checkpoints.latest_step()
    if step is not None:
        state, host = checkpoints.restore("latest", _first_state())
        _assert_same(state, _state_at(step))
        assert (directory / "best" / str(host["best_step"])).is_dir()
        best, best_host = checkpoints.restore("best", _first_state())
        _assert_same(best, _state_at(best_host["best_step"]))
    return step


def test_state_and_host_come_back_to_the_bit(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    host = {"best_value": 0.1, "best_step": None, "without_gain": 3, "seconds": float("inf")}
    state = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan) if leaf.dtype != jnp.int32 else leaf, _state_at(5))
    checkpoints.save_latest(5, state, host)
    restored, restored_host = checkpoints.restore("latest", jax.eval_shape(lambda: state))
    _assert_same(restored, state)
    assert restored_host == host
    checkpoints.close()


def test_shardings_are_those_of_like(tmp_path):
    devices = np.array(jax.devices()[:R])
    spread = NamedSharding(Mesh(devices, ("replica",)), PartitionSpec("replica"))
    state = jax.device_put(_state_at(2), spread)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_latest(2, state, {})
    restored, _ = checkpoints.restore("latest", state)
    assert all(leaf.sharding == spread for leaf in jax.tree.leaves(restored))
    _assert_same(restored, state)
    elsewhere, _ = checkpoints.restore("latest", _first_state())
    assert all(leaf.devices() == {jax.devices()[0]} for leaf in jax.tree.leaves(elsewhere))
    _assert_same(elsewhere, state)
    checkpoints.close()


def test_what_is_saved_is_the_state_at_that_time(tmp_path):
    """The step donates its state, so the copy must be taken before `save_latest` returns."""
    overwrite = jax.jit(lambda leaf: leaf + 1, donate_argnums=0)
    checkpoints = Checkpoints(tmp_path)
    leaf = jnp.zeros((R, 1_000_003))
    checkpoints.save_latest(1, {"leaf": leaf}, {})
    for _ in range(3):
        leaf = overwrite(leaf)
    restored, _ = checkpoints.restore("latest", {"leaf": leaf})
    assert not restored["leaf"].any()
    checkpoints.close()


def test_one_latest_and_one_best_remain(tmp_path):
    _live(tmp_path)
    assert _tree(tmp_path) == ["best/6", "latest/7"]
    assert _assert_sound(tmp_path) == 7


def test_a_step_is_never_left_out(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_latest(4, _state_at(4), {})
    checkpoints.save_latest(4, _state_at(4), {})
    with pytest.raises(ValueError, match="step 4, which is after step 3"):
        checkpoints.save_latest(3, _state_at(3), {})
    checkpoints.save_latest(5, _state_at(5), {})
    checkpoints.close()
    assert _tree(tmp_path) == ["latest/5"]


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing(tmp_path, monkeypatch):
    """Copies of the directory at each change stand for what a kill would leave; each is checked and gone on from."""
    run, moments = tmp_path / "run", []

    def keep(*_):
        if run.exists():
            moments.append(tmp_path / f"kill-{len(moments)}")
            with contextlib.suppress(shutil.Error):  # what is being written comes and goes under the copying
                shutil.copytree(run, moments[-1])

    def around(change):
        def changed(*arguments, **options):
            keep()
            result = change(*arguments, **options)
            keep()
            return result

        return changed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", around(shutil.rmtree))
        _live(run, pause=keep)
    trees = {tuple(_tree(copy)): copy for copy in moments}
    assert len(trees) > 10
    for copy in trees.values():
        _assert_sound(copy)
        _live(copy)
        assert _tree(copy) == ["best/6", "latest/7"]
        assert _assert_sound(copy) == 7


@pytest.mark.slow
def test_kill_9_while_saving(tmp_path):
    """A process is killed as soon as it has begun to save step 5; what is on disk is sound and can be gone on from."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import conftest, test_checkpoint as t; from pathlib import Path\n"
        "t._live(Path(sys.argv[2]), pause=lambda step: print(step, flush=True))"
    )
    tests = Path(__file__).parent
    command = [sys.executable, "-c", program, str(tests), str(tmp_path)]
    with subprocess.Popen(command, cwd=tests.parent, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == "4":
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert _assert_sound(tmp_path) >= 2
    _live(tmp_path)
    assert _tree(tmp_path) == ["best/6", "latest/7"]
    assert _assert_sound(tmp_path) == 7


def test_reading_leaves_a_live_run_alone(tmp_path):
    _live(tmp_path)
    half_written = tmp_path / "latest" / "9.orbax-checkpoint-tmp"
    half_written.mkdir()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore("best", _first_state())
    checkpoints.close()
    assert half_written.is_dir()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished")
    _live(directory)
    return directory


def _without(state, key):
    return {name: leaf for name, leaf in state.items() if name != key}


MISFITS = {
    "shape": (
        lambda state: state | {"params": state["params"] | {"half": jnp.ones((R, 11), "bfloat16")}},
        "params/half is bfloat16[2, 7] in the checkpoint and bfloat16[2, 11] in the config's state; look at model and",
    ),
    "dtype": (
        lambda state: state | {"params": state["params"] | {"half": jnp.ones((R, 7))}},
        "params/half is bfloat16[2, 7] in the checkpoint and float32[2, 7]",
    ),
    "missing": (lambda state: _without(state, "step"), "step is int32[2] in the checkpoint and absent"),
    "unexpected": (
        lambda state: state | {"ema": jnp.ones((R, D))},
        "ema is absent in the checkpoint and float32[2, 3] in the config's state; look at trainer.ema",
    ),
    "optimiser": (
        lambda state: state | {"opt_state": jax.vmap(optax.sgd(0.1, momentum=0.9).init)(state["params"])},
        "look at optim and schedule",
    ),
    "replicas": (
        lambda state: jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), state),
        "its first axis counts the replicas, so look at seeds",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), MISFITS.values(), ids=MISFITS)
def test_a_misfit_is_refused_by_its_leaf(finished, change, sentence):
    with pytest.raises(UserError) as refusal:
        Checkpoints(finished).restore("latest", change(_first_state()))
    assert sentence in str(refusal.value)
    assert str(finished / "latest" / "7") in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["state/_METADATA", "state/manifest.ocdbt", "state/d", "host/metadata", "host"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damage_is_one_sentence(finished, tmp_path, name, damage):
    shutil.copytree(finished, tmp_path / "copy")
    victim = tmp_path / "copy" / "latest" / "7" / name
    if damage == "gone":
        shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    for path in [] if damage == "gone" else victim.rglob("*") if victim.is_dir() else [victim]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match="is damaged: ") as refusal:
        Checkpoints(tmp_path / "copy").restore("latest", _first_state())
    assert "\n" not in str(refusal.value)


def test_no_checkpoint_is_one_sentence(tmp_path):
    assert Checkpoints(tmp_path).latest_step() is None
    with pytest.raises(UserError, match="best holds no checkpoint"):
        Checkpoints(tmp_path).restore("best", _first_state())


def test_a_save_that_fails_is_told(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "latest").write_text("in the way")
    with pytest.raises(UserError, match="could not be written: "):
        checkpoints.save_latest(1, _state_at(1), {})
