"""Classes: the names of the labels, and their numbers."""

import dataclasses
import difflib
import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.files import write_whole
from seqlab.types import UserError, require


@dataclasses.dataclass(frozen=True)
class Classes:
    """The labels of the training split, each the string of its value without blanks around it; its number is its place.

    The order is that of the names, or of the values where all of them are numbers, so that it does not hang on the
    order of the records.
    """

    names: tuple[str, ...]

    @classmethod
    def fit(cls, train_labels: Iterable[Any]) -> "Classes":
        """The classes of training labels, which are names or whole numbers."""
        names = sorted({_name(label) for label in train_labels})
        values = [_number(name) for name in names]
        if not any(math.isnan(value) for value in values):
            names = [name for _, name in sorted(zip(values, names, strict=True))]
        return cls(tuple(names))

    @property
    def size(self) -> int:
        return len(self.names)

    def encode(self, labels: Sequence[Any], where: Callable[[int], str]) -> np.ndarray:
        """The numbers of labels, int32; `where` begins a sentence about the i-th of them.

        Raises   UserError for a label that no training record has.
        """
        for i, label in enumerate(labels):
            if _name(label) not in self._numbers:
                require_label(label, where(i))
                near = difflib.get_close_matches(_name(label), self.names, n=1)
                hint = f" (nearest: {near[0]})" if near else ""
                raise UserError(f"{where(i)} has the label {_name(label)!r}, which no training record has{hint}.")
        return np.array([self._numbers[_name(label)] for label in labels], np.int32)

    def encode_steps(self, labels: Sequence[Any], where: str) -> np.ndarray:
        """The numbers of the labels of one record, that was read at `where`."""
        return self.encode(labels, lambda _: where)

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The names of numbers."""
        return [self.names[int(i)] for i in numbers]

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def save(self, path: Path) -> None:
        """Write the classes as JSON, whole or not at all."""
        write_whole(path, json.dumps(dataclasses.asdict(self), ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Classes":
        """Read classes that were saved.

        Raises   UserError for a file that is missing or damaged.
        """
        require(path.is_file(), f"The classes {path} do not exist.")
        try:
            return cls(tuple(json.loads(path.read_text(encoding="utf-8"))["names"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"The classes {path} cannot be read: they are damaged.") from error


def require_label(label: Any, where: str) -> None:
    """Refuse a label that is neither a name nor a whole number; `where` begins the sentence."""
    whole = isinstance(label, int | np.integer | bool | np.bool_)
    named = isinstance(label, str) and bool(label.strip())
    told = label.item() if isinstance(label, np.generic) else label
    require(whole or named, f"{where} has the label {told!r}; expected a name or a whole number.")


def _name(label: Any) -> str:
    return str(label).strip()


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return math.nan
