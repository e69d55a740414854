"""Texts: read from files, with what is wrong in them named by its place, and split by position."""

from collections.abc import Sequence
from pathlib import Path

from seqlab.data.fetch import hint
from seqlab.data.splits import FRACTIONS, cut, require_fractions
from seqlab.types import UserError, require

SUFFIXES = (".md", ".txt")


def read_text(path: str | Path) -> str:
    """Read a text: its documents in a row.

    Raises   UserError as `read_documents`.
    """
    return "".join(read_documents(path))


def read_documents(path: str | Path) -> list[str]:
    """Read a file, or the *.txt and *.md files of a folder in the order of their names, each a document.

    A newline ends every document but the last.

    Raises   UserError as `read_file`, and for a folder without texts and a text that is empty.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
        require(bool(files), f"The folder {path} holds no text; expected files {' or '.join(SUFFIXES)} in it.")
    *others, last = (read_file(file) for file in files)
    documents = [*(f"{document}\n" for document in others), last]
    require(any(document.strip() for document in documents), f"The text {path} is empty.")
    return documents


def read_file(file: Path) -> str:
    """Read a file of text: UTF-8; a byte order mark is dropped, and CRLF becomes LF.

    Raises   UserError for a file that does not exist, and a byte that is no UTF-8, with its offset and line.
    """
    require_file(file)
    try:
        return file.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        byte, line = error.object[error.start], error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{file} is not UTF-8: byte 0x{byte:02x} at offset {error.start}, line {line}.") from error


def read_lines(file: Path) -> list[str]:
    """Read the lines of a file of text; what ends a line is LF or CRLF, and nothing else.

    Raises   UserError as `read_file`, and for a file without a line.
    """
    lines = read_file(file).split("\n")
    if not lines[-1]:
        lines.pop()
    require(bool(lines), f"The file {file} is empty.")
    return lines


def require_file(file: Path) -> None:
    """Raise UserError unless the file exists; where fetching gives it, the sentence says so."""
    require(file.exists(), f"The file {file} does not exist{hint(file)}.")
    require(not file.is_dir(), f"{file} is a folder; expected a file.")


def split_by_position(text: str, fractions: Sequence[float] = FRACTIONS) -> tuple[str, str, str]:
    """Cut a text into train, validation and test: its beginning, what follows, and its end.

    The cuts are at the characters ⌊n f₁⌋ and ⌊n (f₁ + f₂)⌋ of n, wherever in a word they fall. Neighbouring pieces of
    a text are alike, which a split at random would let leak; the price is that its end may be unlike its beginning.

    Raises   UserError unless the fractions are three positive numbers whose sum is 1, and for an empty piece.
    """
    require_fractions(fractions)
    first, second, _ = cut(len(text), fractions)
    pieces = (text[:first], text[first:second], text[second:])
    require(all(pieces), f"A text of {len(text)} characters is too short to be split by {fractions}.")
    return pieces
