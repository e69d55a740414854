"""What the sources share whose records are in files: one for each split, or one that is split."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seqlab.data.records import Records
from seqlab.data.splits import FRACTIONS, SPLITS, require_fractions, split_records
from seqlab.types import require


@dataclasses.dataclass(frozen=True)
class Files:
    """Records in files: `path` is all of them, or those of train; `validation` and `test` are files too, or null.

    A split without a file is cut at random out of `path`, its share by `fractions`, and is the same in every run.

    Raises   UserError for a path that is none, and fractions that are not three positive numbers whose sum is 1.
    """

    path: Any
    validation: Any = None
    test: Any = None
    fractions: Sequence[float] = FRACTIONS
    owner: ClassVar[str] = "source"

    def __post_init__(self) -> None:
        for name in ("path", "validation", "test"):
            value = getattr(self, name)
            known = self.is_path(value) or (value is None and name != "path")
            require(known, f"{self.owner} has {name} {value!r}; expected {self.expected}.")
        require_fractions(self.fractions)

    expected: ClassVar[str] = "the path of a file"

    def is_path(self, value: Any) -> bool:
        """Whether a value can name where a split is."""
        return isinstance(value, str) and bool(value)

    def read(self, path: Any) -> Records:
        """The records of a path."""
        raise NotImplementedError

    def records(self) -> dict[str, Records]:
        """The records of train, validation and test."""
        paths: Mapping[str, Any] = dict(zip(SPLITS, (self.path, self.validation, self.test), strict=True))
        given = {name: self.read(path) for name, path in paths.items() if path is not None}
        return split_records(f"{self.owner} {self.path}", given, self.fractions)
