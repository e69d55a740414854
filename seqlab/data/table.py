"""Tables of text: CSV, TSV and JSONL with named columns, with what is wrong in them named by file and line."""

import csv
import functools
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqlab.data.records import Listed, Records, at_line, name_fields
from seqlab.data.text import read_file, read_lines, require_file
from seqlab.types import UserError, require

Row = tuple[int, list[str]]
SUFFIXES = (".csv", ".tsv", ".jsonl")


def read_table(file: Path, fields: Mapping[str, str] | None) -> Records:
    """Read a table by its suffix: the records of its rows, whose fields are its columns, renamed by `fields`.

        .csv     cells between commas; one in quotes may hold commas, line ends and, twice, quotes
        .tsv     cells between tabs; nothing is a quote, and no cell can hold a tab or a line end
        .jsonl   an object a line, with the keys of the first

    A table begins with the names of its columns. Empty lines are skipped.

    Raises   UserError, with file and line, for a name that is there twice, a column that is missing, a row with another
             number of cells than the first line, a quote that is not closed, and a line that is no JSON object.
    """
    require_file(file)
    suffix = file.suffix.lower()
    expected = " or ".join(SUFFIXES)
    require(suffix in SUFFIXES, f"The table {file} has the suffix {suffix!r}; expected {expected}.")
    if suffix == ".jsonl":
        return _read_objects(file, fields)
    rows = _split_commas(file) if suffix == ".csv" else _split_tabs(file)
    start, names = next(rows, (1, []))
    names = [name.strip() for name in names]
    require(bool(names), f"The table {file} is empty; expected the names of its columns in line 1.")
    other = next((mark for mark in (";", "\t", ",") if len(names) == 1 and mark in names[0]), None)
    between = "a comma" if suffix == ".csv" else "a tab"
    require(other is None, f"{file}, line {start}, is one column, {names[0]!r}; expected {between} between columns.")
    _require_once(f"{file}, line {start}:", names)
    columns = name_fields(f"{file}, line {start},", names, fields)
    places = {field: names.index(column) for field, column in columns.items()}
    records, lines = [], []
    for line, cells in rows:
        # Not require(): a million sentences are dear to write.
        if len(cells) != len(names):
            tab = ": is there a tab in a text?" if suffix == ".tsv" and len(cells) > len(names) else "."
            named = f"but line {start} names {len(names)} columns"
            raise UserError(f"{file}, line {line}, has {len(cells)} cells, {named}{tab}")
        records.append({field: cells[place] for field, place in places.items()})
        lines.append(line)
    require(bool(records), f"The table {file} has no rows.")
    return Listed(records, functools.partial(at_line, file, lines))


def _split_commas(file: Path) -> Iterator[Row]:
    # The module's own limit on a cell is 131,072 characters, and a document may be longer.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(io.StringIO(read_file(file), newline=""), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{file}, line {start}, is no CSV: {error}.") from error
        if cells is None:
            return
        if cells:
            yield start, cells


def _split_tabs(file: Path) -> Iterator[Row]:
    for i, line in enumerate(read_lines(file)):
        if line:
            yield i + 1, line.split("\t")


def _read_objects(file: Path, fields: Mapping[str, str] | None) -> Records:
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    start = 0
    columns: dict[str, str] = {}
    for line, content in enumerate(read_lines(file), 1):
        if not content.strip():
            continue
        where = f"{file}, line {line}"
        node = _parse(where, content)
        if not columns:
            start, columns = line, name_fields(f"{where},", list(node), fields)
        missing = [column for column in columns.values() if node.get(column) is None]
        first = "" if line == start else f", which line {start} has"
        require(not missing, f"{where}, has nothing for {', '.join(missing)}{first}.")
        records.append({field: node[column] for field, column in columns.items()})
        lines.append(line)
    require(bool(records), f"The table {file} is empty.")
    return Listed(records, functools.partial(at_line, file, lines))


def _parse(where: str, content: str) -> dict[str, Any]:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require_once(f"{where}:", [key for key, _ in pairs])
        return dict(pairs)

    try:
        node = json.loads(content, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}, is no JSON: {error.msg} at column {error.colno}.") from error
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand brackets
        raise UserError(f"{where}, is JSON that cannot be read: {str(error).partition(';')[0]}.") from error
    require(isinstance(node, dict), f"{where}, is no JSON object but {content.strip()[:40]}.")
    return node


def _require_once(where: str, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        require(name not in names[:i], f"{where} the column {name!r} is there twice.")
