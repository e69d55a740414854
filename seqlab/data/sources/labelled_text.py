"""Labelled text: a table with named columns."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from seqlab.data.records import Records
from seqlab.data.sources.files import Files
from seqlab.data.table import read_table


@dataclasses.dataclass(frozen=True)
class LabelledText(Files):
    """The rows of a CSV, TSV or JSONL file (by its suffix), whose columns are fields: text, label, ….

    `fields` says which column a field is, where it has another name: `{text: review, label: stars}`.

    Raises   UserError as `Files` and `read_table`.
    """

    fields: Mapping[str, str] | None = None
    owner: ClassVar[str] = "labelled_text"

    def read(self, path: str) -> Records:
        return read_table(Path(path), self.fields)
