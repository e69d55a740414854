"""Arrays of an .npz file."""

import dataclasses
import functools
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from seqlab.data.records import Columns, Records, name_fields
from seqlab.data.splits import FRACTIONS, SPLITS, require_fractions, split_records
from seqlab.data.text import require_file
from seqlab.types import UserError, require


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Records along the first axis of arrays: `image` and `label`, or `image_train`, `label_train`, `image_test`, ….

    Arrays without a split in their names, and train where a split has none, are cut at random by `fractions`, in the
    same order in every run. `fields` says which name a field has in the file: `{image: x, label: y}`.

    Raises   UserError for a file that is no .npz or is damaged, an array of Python objects, names with a split beside
             names without, a field that one split has and another has not, and arrays of unequal lengths.
    """

    path: str
    fields: Mapping[str, str] | None = None
    fractions: Sequence[float] = FRACTIONS
    owner: ClassVar[str] = "arrays"

    def __post_init__(self) -> None:
        require(isinstance(self.path, str), f"{self.owner} has path {self.path!r}; expected an .npz file.")
        require_fractions(self.fractions)

    def records(self) -> dict[str, Records]:
        """The records of train, validation and test."""
        splits: dict[str | None, dict[str, np.ndarray]] = {}
        for name, array in self._load().items():
            stem, _, split = name.rpartition("_")
            known = bool(stem) and split in SPLITS
            splits.setdefault(split if known else None, {})[stem if known else name] = array
        require(
            len(splits) == 1 or None not in splits,
            f"{self.path} has arrays with a split in their names and without one ({', '.join(splits.get(None, {}))}).",
        )
        named = None not in splits
        if not named:
            splits["train"] = splits.pop(None)
        require("train" in splits, f"{self.path} has no arrays for train, but for {', '.join(map(str, splits))}.")
        given = {str(split): self._name(str(split), arrays, splits["train"], named) for split, arrays in splits.items()}
        return split_records(f"{self.owner} {self.path}", given, self.fractions)

    def _load(self) -> dict[str, np.ndarray]:
        file = Path(self.path)
        require_file(file)
        try:
            loaded = np.load(file, allow_pickle=False)
            require(isinstance(loaded, np.lib.npyio.NpzFile), f"{file} is a single array; expected an .npz file.")
            found = {}
            with loaded as arrays:
                for name in arrays.files:
                    found[name] = arrays[name]
        except UserError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            objects = "Object arrays" in str(error)
            reason = f"{name} holds Python objects" if objects else "it is no .npz file, or is damaged or cut off"
            raise UserError(f"{file} cannot be read: {reason}.") from error
        require(bool(found), f"{file} holds no array.")
        return found

    def _name(
        self, split: str, arrays: Mapping[str, np.ndarray], of_train: Mapping[str, np.ndarray], named: bool
    ) -> Records:
        for name in {**arrays, **of_train}:
            lacking = split if name not in arrays else "train" if name not in of_train else None
            require(lacking is None, f"{self.path} has the array {name}, but none of it for {lacking}.")
        columns = name_fields(self.path, list(arrays), self.fields)
        lengths = {name: len(arrays[name]) if arrays[name].ndim else None for name in columns.values()}
        first = next(iter(lengths))
        for name, length in lengths.items():
            require(length is not None, f"{self.path} has {name} as a single number; expected an array of them.")
            require(
                length == lengths[first],
                f"{self.path} has {length} of {name} for {split}, but {lengths[first]} of {first}.",
            )
        told = functools.partial(_at_row, self.path, f" of {split}" if named else "")
        return Columns({field: arrays[name] for field, name in columns.items()}, told)


def _at_row(path: str, of_split: str, i: int) -> str:
    return f"{path}, row {i}{of_split} (from 0),"
