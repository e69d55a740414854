"""Parallel text: what stands in one line of a language stands in the same line of the other."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from seqlab.data.records import Columns, Records, at_line
from seqlab.data.sources.files import Files
from seqlab.data.text import read_lines
from seqlab.types import UserError, require


@dataclasses.dataclass(frozen=True)
class Parallel(Files):
    """Pairs of `source` and `target`: the lines of a file with a tab between them, or of a pair of files.

    A path is `pairs.tsv`, or `[lines.en, lines.de]`. There is no line of names.

    Raises   UserError as `Files`; for a line without exactly one tab, an empty side, and files with different numbers
             of lines.
    """

    owner: ClassVar[str] = "parallel"
    expected: ClassVar[str] = "the path of a file of pairs, or two paths of files of lines"

    def is_path(self, value: Any) -> bool:
        if isinstance(value, str):
            return bool(value)
        return isinstance(value, Sequence) and len(value) == 2 and all(isinstance(file, str) for file in value)

    def read(self, path: str | Sequence[str]) -> Records:
        if isinstance(path, str):
            pairs = [line.split("\t") for line in read_lines(Path(path))]
            for line, pair in enumerate(pairs, 1):
                # Not require(): a million sentences are dear to write.
                if len(pair) != 2:
                    raise UserError(
                        f"{path}, line {line}, has {len(pair) - 1} tabs; expected one, between source and target."
                    )
            sides = [[pair[i] for pair in pairs] for i in range(2)]
            files = [path, path]
        else:
            files = list(path)
            sides = [read_lines(Path(file)) for file in files]
            n_source, n_target = map(len, sides)
            require(
                n_source == n_target,
                f"{files[0]} has {n_source} lines, but {files[1]} has {n_target}; expected one for each.",
            )
        for name, file, lines in zip(("source", "target"), files, sides, strict=True):
            for line, text in enumerate(lines, 1):
                if not text.strip():
                    raise UserError(f"{file}, line {line}, has an empty {name}.")
        told = functools.partial(at_line, files[0], range(1, len(sides[0]) + 1))
        return Columns(dict(zip(("source", "target"), sides, strict=True)), told)
