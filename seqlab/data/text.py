"""Text: where it comes from, how it is split, and the vocabulary that makes ids of it."""

import dataclasses
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from seqlab.data.fetch import SHAKESPEARE
from seqlab.types import Task, UserError, require

KINDS = ("char", "byte", "word")
UNKNOWN = "<unk>"
N_BYTES = 256
SUFFIXES = (".md", ".txt")
_WORD = re.compile(r" ?\w+| ?[^\w\s]|\s")


def read_text(path: str | Path) -> str:
    """Read a text: its documents in a row.

    Raises   UserError as `read_documents`.
    """
    return "".join(read_documents(path))


def read_documents(path: str | Path) -> list[str]:
    """Read a file, or the *.txt and *.md files of a folder in the order of their names, each a document.

    A newline ends every document but the last. UTF-8; a byte order mark is dropped, and CRLF becomes LF.

    Raises   UserError for a path that does not exist, a text that is empty, and a byte that is no UTF-8, with the
             file and the offset.
    """
    path = Path(path)
    hint = ": run make data, or python -m seqlab.data.fetch shakespeare" if path == SHAKESPEARE else ""
    require(path.exists(), f"The text {path} does not exist{hint}.")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
        require(bool(files), f"The folder {path} holds no text; expected files {' or '.join(SUFFIXES)} in it.")
    *others, last = (_decode(file) for file in files)
    documents = [*(f"{document}\n" for document in others), last]
    require(any(document.strip() for document in documents), f"The text {path} is empty.")
    return documents


def _decode(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UserError(f"{file} is not UTF-8: byte 0x{byte:02x} at offset {error.start}.") from error


def split_by_position(text: str, fractions: Sequence[float] = (0.8, 0.1, 0.1)) -> tuple[str, str, str]:
    """Cut a text into train, validation and test: its beginning, what follows, and its end.

    The cuts are at the characters ⌊n f₁⌋ and ⌊n (f₁ + f₂)⌋ of n, wherever in a word they fall. Neighbouring pieces of
    a text are alike, which a split at random would let leak; the price is that its end may be unlike its beginning.

    Raises   UserError unless the fractions are three positive numbers whose sum is 1, and for an empty piece.
    """
    valid = len(fractions) == 3 and min(fractions) > 0 and abs(sum(fractions) - 1) < 1e-9
    require(valid, f"fractions is {fractions}; expected three positive numbers whose sum is 1.")
    # Rounded first: 10 · (0.7 + 0.2) is 8.999….
    first, second = (int(round(len(text) * share, 6)) for share in (fractions[0], fractions[0] + fractions[1]))
    pieces = (text[:first], text[first:second], text[second:])
    require(all(pieces), f"A text of {len(text)} characters is too short to be split by {fractions}.")
    return pieces


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The ids of the tokens of a text: its characters, its bytes or its words.

        char   a Unicode code point                                                 id 0 is `<unk>`
        byte   a byte of UTF-8, whose value is its id: 256 of them, none unknown    no `<unk>`
        word   letters, digits and _ in a row, or one other character, each with
               the space before it if there is one; other white space by itself     id 0 is `<unk>`

    A text is its tokens in a row, so that decoding what was encoded gives it back, apart from what is unknown.

    Raises   UserError for a kind that there is not.
    """

    kind: str
    tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_kind("Vocabulary", self.kind)

    @classmethod
    def fit(cls, kind: str, train_text: str, max_size: int | None = None) -> "Vocabulary":
        """The tokens of a training text, the most frequent first, of equal ones the least; `max_size` counts `<unk>`.

        Raises   UserError for a max_size below 2, or of bytes.
        """
        require_kind("Vocabulary", kind)
        if max_size is not None:
            require(kind != "byte", f"A vocabulary of bytes has {N_BYTES} ids; max_size is {max_size}, expected none.")
            require(max_size >= 2, f"A vocabulary has max_size {max_size}; expected at least 2, <unk> and a token.")
        if kind == "byte":
            return cls(kind)
        counts = Counter(_tokenise(kind, train_text))
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        return cls(kind, (UNKNOWN, *ranked)[:max_size])

    @property
    def size(self) -> int:
        return N_BYTES if self.kind == "byte" else len(self.tokens)

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text, int32."""
        if self.kind == "byte":
            return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)
        ids = {token: i for i, token in enumerate(self.tokens)}
        return np.fromiter((ids.get(token, 0) for token in _tokenise(self.kind, text)), np.int32)

    def unknown(self, text: str) -> list[str]:
        """The tokens of a text that have no id of their own, each once."""
        if self.kind == "byte":
            return []
        return [token for token in dict.fromkeys(_tokenise(self.kind, text)) if token not in self.tokens]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        if self.kind == "byte":
            return bytes(int(i) for i in ids).decode("utf-8", errors="replace")
        return "".join(self.tokens[int(i)] for i in ids)

    def starts_character(self) -> np.ndarray | None:
        """Which ids begin a character of the text, so that counting them counts characters; None for words.

        A byte does unless it is 10xxxxxx. Words are left out: what an unknown one was made of is never predicted.
        """
        if self.kind == "word":
            return None
        return (np.arange(self.size) & 0xC0) != 0x80 if self.kind == "byte" else np.ones(self.size, bool)

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON, whole or not at all."""
        beside = path.with_name(f".{path.name}")
        beside.write_text(json.dumps(dataclasses.asdict(self)) + "\n", encoding="utf-8")
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary that was saved.

        Raises   UserError for a file that is missing or damaged.
        """
        require(path.is_file(), f"The vocabulary {path} does not exist.")
        try:
            node = json.loads(path.read_text(encoding="utf-8"))
            return cls(node["kind"], tuple(node["tokens"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"The vocabulary {path} cannot be read: it is damaged.") from error


def keep_vocabulary(task: Task, directory: Path) -> None:
    """Save the vocabulary of a task that has one, or require that the one in the directory is the same.

    Parameters fit any text whose vocabulary has the right size, but their ids would mean other tokens.

    Raises   UserError where it differs.
    """
    vocabulary, path = getattr(task, "vocabulary", None), directory / "vocabulary.json"
    if vocabulary is None:
        return
    if not path.exists():
        vocabulary.save(path)
    require(
        Vocabulary.load(path) == vocabulary,
        f"The text of this task has another vocabulary than {path}, with which the run was trained: look at task.",
    )


def require_kind(owner: str, kind: str) -> None:
    """Raise UserError unless `kind` is that of a vocabulary."""
    nearest = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.0)[0]
    require(kind in KINDS, f"{owner} has kind {kind!r}; expected one of {', '.join(KINDS)} (nearest: {nearest}).")


def _tokenise(kind: str, text: str) -> Iterable[str]:
    return text if kind == "char" else _WORD.findall(text)
