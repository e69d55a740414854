"""Records: what a source gives, each a mapping of fields to values, read when it is asked for."""

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from seqlab.types import UserError, require

Record = Mapping[str, Any]
Records = Sequence[Record]
Where = Callable[[int], str | None]
"""Says of a record's number where it was read, as the beginning of a sentence; None where that is not known."""


def place(records: Records, i: int, split: str) -> str:
    """Where the record at i was read: a file and its line, if the source knows; the beginning of a sentence."""
    where = getattr(records, "where", None)
    return (where and where(i)) or f"Record {i} of {split}"


def read_texts(records: Records, field: str, split: str) -> Iterator[str]:
    """The texts that stand in a field.

    Raises   UserError for what is no text, as a number in a file of JSON.
    """
    for i, record in enumerate(records):
        text = record[field]
        if not isinstance(text, str):
            raise UserError(f"{place(records, i, split)} has the {field} {text!r}; expected a text in quotes.")
        yield text


def at_line(file: Any, lines: Sequence[int], i: int) -> str:
    """Where a record was read that begins in a line of a file."""
    return f"{file}, line {lines[i]},"


def from_line(file: Any, lines: Sequence[int], i: int) -> str:
    """Where a record was read that has several lines of a file, this one and those after it."""
    return f"{file}, from line {lines[i]} on,"


class Listed(list[Record]):
    """Records that have been read, and where; so is a slice of them."""

    def __init__(self, records: Iterable[Record], where: Where) -> None:
        super().__init__(records)
        self.where = where

    def __getitem__(self, i: Any) -> Any:
        if not isinstance(i, slice):
            return super().__getitem__(i)
        return Listed(super().__getitem__(i), functools.partial(_where_of, self, range(len(self))[i]))


def _where_of(records: Records, numbers: Sequence[int], i: int) -> str | None:
    where = getattr(records, "where", None)
    return where and where(int(numbers[i]))


class View(Sequence[Record]):
    """Records that are read one at a time; a slice is a list of them, read."""

    def read(self, i: int) -> Record:
        """The record at i, 0 ≤ i < len."""
        raise NotImplementedError

    def where(self, i: int) -> str | None:
        """Where the record at i was read."""
        return None

    @overload
    def __getitem__(self, i: int) -> Record: ...
    @overload
    def __getitem__(self, i: slice) -> list[Record]: ...
    def __getitem__(self, i: int | slice) -> Record | list[Record]:
        places = range(len(self))[i]
        if isinstance(places, int):
            return self.read(places)
        return Listed(map(self.read, places), functools.partial(_where_of, self, places))


class Chosen(View):
    """Some of the records, by their numbers."""

    def __init__(self, records: Records, numbers_N: np.ndarray) -> None:
        self.records, self.numbers_N = records, numbers_N

    def __len__(self) -> int:
        return len(self.numbers_N)

    def read(self, i: int) -> Record:
        return self.records[int(self.numbers_N[i])]

    def where(self, i: int) -> str | None:
        return _where_of(self.records, self.numbers_N, i)  # type: ignore[arg-type]


class Columns(View):
    """Records whose fields are columns of equal length; `told` says where a row was read."""

    def __init__(self, columns: Mapping[str, Sequence[Any] | np.ndarray], told: Where | None = None) -> None:
        self.columns, self.told = dict(columns), told

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def read(self, i: int) -> Record:
        return {field: column[i] for field, column in self.columns.items()}

    def where(self, i: int) -> str | None:
        return self.told and self.told(i)


def name_fields(where: str, columns: Sequence[str], fields: Mapping[str, str] | None) -> dict[str, str]:
    """Which column each field is: as `fields` says, if it says something, and every other column by its own name.

    Raises   UserError, which begins with `where`, for a column that is not there.
    """
    fields = {} if fields is None else fields
    mapping = isinstance(fields, Mapping)
    require(mapping, f"{where} is told the fields {fields!r}; expected a column for each, as {{text: review}}.")
    for field, column in fields.items():
        require(
            column in columns,
            f"{where} has no column {column!r} for the field {field}; it has {', '.join(columns)}"
            f"{_nearest(column, columns)}.",
        )
    others = {column: column for column in columns if column not in (*fields.values(), *fields)}
    return {**dict(fields), **others}


def require_fields(owner: str, records: Mapping[str, Records], fields: Iterable[str]) -> None:
    """Raise UserError unless the records of every split have the fields that a task reads; the first is looked at."""
    fields = list(fields)
    for split, of_split in records.items():
        require(len(of_split) > 0, f"{owner} reads {split}, but the source gives no record for it.")
        given, where = list(of_split[0]), _where_of(of_split, (0,), 0)
        at = f" in {where.rstrip(',')}" if where else ""
        for field in fields:
            require(
                field in given,
                f"{owner} reads the fields {', '.join(fields)}; the source gives {', '.join(given)}{at}"
                f"{_nearest(field, given)}: say which one is {field} in task.source.fields.",
            )


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, [str(other) for other in names], n=1)
    return f" (nearest to {name}: {near[0]})" if near else ""
