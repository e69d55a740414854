"""Checkpoints on disk: the latest state, to go on from, and the best one, to evaluate."""

import contextlib
import functools
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from flax.traverse_util import unflatten_dict

from seqlab.training.hosts import first_says, is_first
from seqlab.types import Array, Params, UserError, require

Which = Literal["latest", "best"]


class Checkpoints:
    """The latest and the best state of a run, each a directory named by its step.

        directory/latest/STEP   what a resumed run goes on from
        directory/best/STEP     the best at the time of that latest one

    A state is a pytree of arrays; `host` is a small dict of plain JSON values that travels with it.
    Saving is asynchronous: the state is copied to the host, then written beside the training, one save at a time.

    Law      After kill -9 at any moment, `latest` is a whole checkpoint and the best that it knows of is on disk:
             a step directory appears by renaming, a best is on disk before the next latest is begun, and
             an older best goes only once a newer latest knows of its successor.
    Raises   UserError where a checkpoint is missing, unreadable, or does not fit the state it is restored into.
    """

    def __init__(self, directory: Path):
        # Orbax takes 0.4 s to import, which nobody should wait for who only looks at a command line's help.
        import orbax.checkpoint as ocp

        self._ocp = ocp
        # Orbax tells every save in twenty lines, and a failure with its traceback before it raises it.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        _ignore_stragglers()
        self._checkpointer = ocp.AsyncCheckpointer(
            ocp.CompositeCheckpointHandler(state=ocp.StandardCheckpointHandler(), host=ocp.JsonCheckpointHandler()),
            # Made aside, a directory that cannot be made is found out after minutes.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        self._directories: dict[Which, Path] = {
            "latest": directory.absolute() / "latest",
            "best": directory.absolute() / "best",
        }
        self._written = False

    def latest_step(self) -> int | None:
        """The step of the latest checkpoint, None if there is none."""
        return first_says(lambda: max(self._steps("latest"), default=None))

    def save_latest(self, step: int, state: Any, host: Mapping[str, Any]) -> None:
        self._save("latest", step, state, host)

    def save_best(self, step: int, state: Any, host: Mapping[str, Any]) -> None:
        self._save("best", step, state, host)

    def restore(self, which: Which, like: Any) -> tuple[Any, dict[str, Any]]:
        """Read a checkpoint into the structure, dtypes and shardings of `like`: arrays or `jax.ShapeDtypeStruct`s."""
        path = self._newest(which)
        names, treedef = _name_leaves(like)
        wanted = {name: _abstract(leaf) for name, leaf in names.items()}
        with _tell_damage(path):
            _require_fit(path, self._stored(path), wanted)
            restored = self._read(path, wanted)
        return treedef.unflatten([restored.state[name] for name in names]), restored.host

    def restore_params(self, which: Which) -> Params:
        """Read the parameters of a checkpoint alone, whatever its state holds besides: those to measure.

        The leaves are NumPy's, with the replica axis.
        """
        path = self._newest(which)
        with _tell_damage(path):
            stored = self._stored(path)
            like = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in stored.items()}
            state = self._read(path, {name: _abstract(leaf) for name, leaf in like.items()}).state
        kept = "ema/" if any(name.startswith("ema/") for name in state) else "params/"
        leaves = {name.removeprefix(kept): np.asarray(leaf) for name, leaf in state.items() if name.startswith(kept)}
        return unflatten_dict(leaves, sep="/")

    def _newest(self, which: Which) -> Path:
        self.wait()
        step = first_says(lambda: max(self._steps(which), default=None))
        require(step is not None, f"{self._directories[which]} holds no checkpoint")
        return self._directories[which] / str(step)

    def _stored(self, path: Path) -> dict[str, Any]:
        return dict(self._checkpointer.metadata(path).item_metadata["state"])

    def _read(self, path: Path, wanted: dict[str, jax.ShapeDtypeStruct]) -> Any:
        args = self._ocp.args
        return self._checkpointer.restore(
            path, args=args.Composite(state=args.StandardRestore(wanted), host=args.JsonRestore())
        )

    def wait(self) -> None:
        """Return once everything saved is on disk."""
        with _tell_failure():
            self._checkpointer.wait_until_finished()

    def close(self) -> None:
        if self._written:
            self.wait()
            if is_first():
                self._prune()
        self._checkpointer.close()

    def _save(self, which: Which, step: int, state: Any, host: Mapping[str, Any]) -> None:
        self.wait()
        steps = first_says(lambda: self._tidy(which))
        self._written = True
        if step in steps:  # Randomness is derived from the step, so it is the same state.
            return
        if steps and step < max(steps):
            raise ValueError(f"the {which} checkpoint is of step {max(steps)}, which is after step {step}")
        names, _ = _name_leaves(state)
        with _tell_failure():
            self._checkpointer.save(
                self._directories[which] / str(step),
                args=self._ocp.args.Composite(
                    state=self._ocp.args.StandardSave(names), host=self._ocp.args.JsonSave(dict(host))
                ),
            )

    def _tidy(self, which: Which) -> list[int]:
        """Remove what has had its day; the steps that there are then."""
        if not self._written:
            self._forget_what_was_cut_short()
        self._prune()
        return self._steps(which)

    def _steps(self, which: Which) -> list[int]:
        directory = self._directories[which]
        return sorted(int(path.name) for path in directory.glob("*") if path.name.isdigit())

    def _forget_what_was_cut_short(self) -> None:
        """Remove half-written directories, and a best from beyond the latest: it will be made again."""
        latest = max(self._steps("latest"), default=None)
        for directory in self._directories.values():
            for path in directory.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(path)
        self._remove("best", [step for step in self._steps("best") if latest is None or step > latest])

    def _prune(self) -> None:
        latest = self._steps("latest")
        self._remove("latest", latest[:-1])
        if latest:
            self._remove("best", [step for step in self._steps("best") if step <= latest[-1]][:-1])

    def _remove(self, which: Which, steps: list[int]) -> None:
        for step in steps:
            # Renamed first: a step directory is whole or not there, also when a removal is cut short.
            doomed = self._directories[which] / f"{step}.orbax-checkpoint-tmp-removed"
            (self._directories[which] / str(step)).rename(doomed)
            shutil.rmtree(doomed)


@contextlib.contextmanager
def _tell_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Orbax and TensorStore raise whatever the damaged file led them to.
        raise UserError(f"The checkpoint {path} is damaged: {_first_line(error)}") from error


@contextlib.contextmanager
def _tell_failure() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # A full disk, a directory taken away: Orbax lets through what the system says.
        raise UserError(f"A checkpoint could not be written: {_first_line(error)}") from error


@functools.cache
def _ignore_stragglers() -> None:
    """When one read has failed, those still under way complain in their own threads that nobody waits for them."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda told: None if str(told.exc_value) == "Event loop is closed" else before(told)


def _name_leaves(tree: Any) -> tuple[dict[str, Any], Any]:
    """The leaves by their paths: on disk a state is flat, whatever classes its optimiser nests."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}, treedef


def _abstract(leaf: Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _require_fit(path: Path, stored: dict[str, Any], wanted: dict[str, jax.ShapeDtypeStruct]) -> None:
    """Refuse a checkpoint of another state by the first leaf that differs."""
    # The parameters first: whatever else differs differs because of them.
    for name in sorted(stored.keys() | wanted.keys(), key=lambda name: (not name.startswith("params"), name)):
        here, there = (_describe(leaves.get(name)) for leaves in (stored, wanted))
        require(
            here == there,
            f"The checkpoint {path} does not fit this config: {name} is {here} in the checkpoint and {there} in the "
            f"config's state; {_cause(name, stored.get(name), wanted.get(name))}",
        )


def _describe(leaf: Any) -> str:
    return "absent" if leaf is None else f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"


def _cause(name: str, stored: Any, wanted: Any) -> str:
    both = stored is not None and wanted is not None
    if both and stored.dtype == wanted.dtype and stored.shape[1:] == wanted.shape[1:]:
        return "its first axis counts the replicas, so look at seeds"
    keys = {"params": "model and task", "opt_state": "optim and schedule", "ema": "trainer.ema", "sums": "task"}
    return f"look at {keys.get(name.split('/')[0], 'what changed in the config')}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160].rstrip(".: ")
