"""What a task has learned of its data (vocabularies, classes, scales), kept in the directory of a run."""

from pathlib import Path
from typing import Any

from seqlab.data.classes import Classes
from seqlab.data.scale import Scale
from seqlab.data.vocabulary import Vocabulary
from seqlab.types import Task, require

KINDS: dict[str, Any] = {"vocabulary": Vocabulary, "target_vocabulary": Vocabulary, "classes": Classes, "scale": Scale}
"""The attributes of a task that are kept, each as NAME.json."""


def keep_learned(task: Task, directory: Path) -> None:
    """Save what a task has learned where the directory does not hold it yet, then `require_learned`."""
    for name, learned in _learned(task).items():
        if not is_kept(name, directory):
            learned.save(_path(name, directory))
    require_learned(task, directory)


def is_kept(name: str, directory: Path) -> bool:
    """Whether the task of a run has learned such a thing."""
    return _path(name, directory).exists()


def require_learned(task: Task, directory: Path) -> None:
    """Raise UserError unless the directory of a run holds what the task has learned, undamaged and the same.

    Parameters fit any data with as many tokens and classes, but their ids would mean others.
    """
    for name, learned in _learned(task).items():
        path, told = _path(name, directory), name.replace("_", " ")
        require(
            load_learned(name, directory) == learned,
            f"The data of this task have another {told} than {path}, with which the run was trained: look at task.",
        )


def load_learned(name: str, directory: Path) -> Any:
    """What the task of a run has learned.

    Raises   UserError where the directory does not hold it, or holds it damaged.
    """
    return KINDS[name].load(_path(name, directory))


def _learned(task: Task) -> dict[str, Any]:
    learned = {name: getattr(task, name, None) for name in KINDS}
    return {name: value for name, value in learned.items() if value is not None}


def _path(name: str, directory: Path) -> Path:
    return directory / f"{name}.json"
