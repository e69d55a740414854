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
    """Save what a task has learned, or require that the directory holds the same.

    Parameters fit any data with as many tokens and classes, but their ids would mean others.

    Raises   UserError where it differs.
    """
    for name in KINDS:
        learned, path = getattr(task, name, None), directory / f"{name}.json"
        if learned is None:
            continue
        if not path.exists():
            learned.save(path)
        require(
            load_learned(name, directory) == learned,
            f"The data of this task have another {name.replace('_', ' ')} than {path}, with which the run was trained: "
            "look at task.",
        )


def is_kept(name: str, directory: Path) -> bool:
    """Whether the task of a run has learned such a thing."""
    return (directory / f"{name}.json").exists()


def require_learned(task: Task, directory: Path) -> None:
    """Raise UserError unless the directory of a run holds all that its task has learned, undamaged."""
    for name in KINDS:
        if getattr(task, name, None) is not None:
            load_learned(name, directory)


def load_learned(name: str, directory: Path) -> Any:
    """What the task of a run has learned.

    Raises   UserError where the directory does not hold it, or holds it damaged.
    """
    return KINDS[name].load(directory / f"{name}.json")
