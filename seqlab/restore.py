"""A trained run brought back: its parts, its programs and the state of a checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from seqlab.build import Parts, build
from seqlab.data.learned import require_learned
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import start
from seqlab.training.programs import Programs
from seqlab.training.run_directory import read_config
from seqlab.training.settings import require_choice
from seqlab.training.state import State
from seqlab.types import require

CHECKPOINTS = ("best", "latest", "init")


class Restored(NamedTuple):
    parts: Parts
    programs: Programs
    state: State


def open_run(directory: str | Path, checkpoint: str = "best") -> Restored:
    """A run for a notebook or a script of one's own, on the devices that it was trained on.

    Raises   UserError as `restore`.
    """
    config = OmegaConf.create({**read_config(Path(directory)), "run": str(directory), "checkpoint": checkpoint})
    return restore(config, start(config.trainer.cpu_devices))


def restore(config: DictConfig, devices: list[jax.Device]) -> Restored:
    """Build what the config of a command with `run` and `checkpoint` says, and read the checkpoint.

    The checkpoint `init` is the state before the first update: no file, but made again from the run's seeds.

    Raises   UserError for a directory that holds no run or no checkpoint, for parameters or a vocabulary that do not
             fit, and for a task told to fit otherwise what the run has learned already.
    """
    require_choice("checkpoint", config.checkpoint, CHECKPOINTS)
    directory = Path(config.run)
    of_run = read_config(directory)["task"]
    if "learned_from" in config.task:
        _require_as_fitted(config.task, of_run, directory)
        config.task.learned_from = str(directory)
    parts = build(config)
    require_learned(parts.task, directory)
    programs = Programs(parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, devices, parts.seeds)
    if config.checkpoint == "init":
        state = programs.init()
    else:
        checkpoints = Checkpoints(directory / "checkpoints")
        state, _ = checkpoints.restore(config.checkpoint, programs.state_like)
        checkpoints.close()
    return Restored(parts, programs, state)


def _require_as_fitted(task: DictConfig, of_run: dict[str, Any], directory: Path) -> None:
    given: Any = OmegaConf.to_container(task, resolve=False)
    for name in getattr(get_class(given["_target_"]), "fitted_by", ()):
        value, learned = given.get(name), of_run.get(name)
        require(
            name not in of_run or value == learned,
            f"task.{name}={value} would change nothing: the vocabulary is that of {directory}, which was learned with "
            f"{learned}; leave it out",
        )
