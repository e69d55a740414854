"""CoNLL-U: the ten columns of Universal Dependencies."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from seqlab.data.records import Listed, Record, Records, from_line, name_fields
from seqlab.data.sources.files import Files
from seqlab.data.text import read_lines
from seqlab.types import UserError, require

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_WORD = re.compile(r"\d+-\d+|\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Conllu(Files):
    """Sentences whose fields are lists with an entry for each word, named as `fields` says or as their columns are.

        id form lemma upos xpos feats head deprel deps misc

    Words are the numbers 1, 2, …: comments, ranges of several words (3-4) and empty nodes (3.1) are skipped.

    Raises   UserError as `Files`; for a name that is no column, a line without ten columns, and an id out of turn.
    Source   https://universaldependencies.org/format.html
    """

    fields: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"tokens": "form", "tags": "upos"})
    owner: ClassVar[str] = "conllu"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_fields(self.owner, COLUMNS, self.fields)

    def read(self, path: str) -> Records:
        places = {field: COLUMNS.index(name) for field, name in name_fields("", COLUMNS, self.fields).items()}
        records: list[Record] = []
        lines: list[int] = []  # where sentences begin
        words: list[list[str]] = []
        for line, content in enumerate([*read_lines(Path(path)), ""], 1):
            if not content.strip():
                if words:
                    records.append({field: [cells[place] for cells in words] for field, place in places.items()})
                words = []
            elif not content.startswith("#"):
                cells = content.split("\t")
                # Not require(): a million sentences are dear to write.
                if len(cells) != 10:
                    raise UserError(f"{path}, line {line}, has {len(cells)} columns; CoNLL-U has 10, by tabs.")
                if _NO_WORD.fullmatch(cells[0]):
                    continue
                due = str(len(words) + 1)
                if cells[0] != due:
                    raise UserError(
                        f"{path}, line {line}, has the id {cells[0]!r}; expected {due}: an empty line ends a sentence."
                    )
                if not words:
                    lines.append(line)
                words.append(cells)
        require(bool(records), f"The file {path} holds no sentence.")
        return Listed(records, functools.partial(from_line, path, lines))
