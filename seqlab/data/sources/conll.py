"""Columns of CoNLL: one token a line, an empty line after a sentence."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from seqlab.data.records import Listed, Record, Records, from_line
from seqlab.data.sources.files import Files
from seqlab.data.text import read_lines
from seqlab.types import UserError, require

DOCUMENT = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class Conll(Files):
    """Sentences whose fields are lists with an entry for each token: tokens, tags, ….

    `fields` says which column a field is, from 0 on, or from the last one backwards as −1, −2, …. Columns are separated
    by tabs, or by spaces in a line without a tab. Lines that begin with -DOCSTART- are no tokens.

    Raises   UserError as `Files`; for a column that there is not, and a line with another number of columns than the
             first.
    """

    fields: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"tokens": 0, "tags": -1})
    owner: ClassVar[str] = "conll"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, column in self.fields.items():
            number = isinstance(column, int) and not isinstance(column, bool)
            require(number, f"{self.owner} has the column {column!r} for the field {field}; expected its number.")

    def read(self, path: str) -> Records:
        records: list[Record] = []
        lines: list[int] = []  # where sentences begin
        cells_TC: list[list[str]] = []
        start, n_columns = 0, 0
        for line, content in enumerate([*read_lines(Path(path)), ""], 1):
            if not content.strip():
                if cells_TC:
                    columns = list(zip(*cells_TC, strict=True))
                    records.append({field: list(columns[column]) for field, column in self.fields.items()})
                    cells_TC = []
            elif not content.startswith(DOCUMENT):
                # Not split(): a token may be a wide space, which is white space of Unicode too.
                cells = content.split("\t") if "\t" in content else re.split(" +", content.strip(" "))
                if not start:
                    start, n_columns = line, len(cells)
                    self._require_columns(f"{path}, line {line},", n_columns)
                # Not require(): a million sentences are dear to write.
                if len(cells) != n_columns:
                    raise UserError(f"{path}, line {line}, has {len(cells)} columns, but line {start} has {n_columns}.")
                if not cells_TC:
                    lines.append(line)
                cells_TC.append(cells)
        require(bool(records), f"The file {path} holds no sentence.")
        return Listed(records, functools.partial(from_line, path, lines))

    def _require_columns(self, where: str, n_columns: int) -> None:
        for field, column in self.fields.items():
            require(
                -n_columns <= column < n_columns,
                f"{where} has no column {column} for the field {field}; it has {n_columns}, from 0 to {n_columns - 1}.",
            )
        told = " and ".join(self.fields)
        apart = len({column % n_columns for column in self.fields.values()}) == len(self.fields)
        require(apart, f"{where} has {n_columns} columns, so that {told} are the same one: look at task.source.fields.")
