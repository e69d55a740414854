"""The vocabulary that makes ids of texts: of characters, bytes, words, subwords, or tokens that are given."""

import dataclasses
import difflib
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from seqlab.files import write_whole
from seqlab.types import UserError, require

KINDS = ("char", "byte", "word", "subword")
TOKENS = "token"
UNKNOWN = "<unk>"
N_BYTES = 256
_WORD = re.compile(r" ?\w+| ?[^\w\s]|\s")
_BARE_WORD = re.compile(r"\w+|[^\w\s]")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The ids of the tokens of texts: their characters, bytes, words or subwords.

        char      a Unicode code point                                                 id 0 is `<unk>`
        byte      a byte of UTF-8, whose value is its id: 256 of them, none unknown    no `<unk>`
        word      letters, digits and _ in a row, or one other character, each with
                  the space before it if there is one; other white space by itself     id 0 is `<unk>`
        subword   bytes of UTF-8 that stand together often, by byte-pair encoding      no `<unk>`
        token     what is given as a token, of a text that is a list of them           id 0 is `<unk>`

    A text is its tokens in a row, so that decoding what was encoded gives it back, apart from what is unknown. Two
    fields give that up: `lower` reads everything in lower case, and without `spaces` a word is the same whether a space
    is before it or not. `specials` (`<eos>`, …) have the last ids; no text holds them, and decoding leaves them out.

    Raises   UserError for a kind that there is not, and for `spaces` off for another kind than words.
    Source   subwords: Sennrich et al. 2016, arXiv:1508.07909, on bytes (Radford et al. 2019), by `tokenizers`.
    """

    kind: str
    tokens: tuple[str, ...] = ()
    lower: bool = False
    spaces: bool = True
    specials: tuple[str, ...] = ()
    subwords: str = ""

    def __post_init__(self) -> None:
        if self.kind != TOKENS:
            require_kind("Vocabulary", self.kind)
        whole = self.spaces or self.kind == "word"
        require(whole, f"A vocabulary of kind {self.kind!r} keeps spaces; spaces=false is for words.")

    @classmethod
    def fit(
        cls,
        kind: str,
        train_texts: str | Iterable[str | Sequence[str]],
        max_size: int | None = None,
        *,
        min_count: int = 1,
        lower: bool = False,
        spaces: bool = True,
        specials: Sequence[str] = (),
    ) -> "Vocabulary":
        """The tokens of training texts, the most frequent first, of equal ones the least.

        `max_size` counts `<unk>` and the specials. Tokens seen less than `min_count` times are unknown; of subwords,
        such pairs are not joined.

        Raises   UserError for a max_size too small, of bytes, or missing for subwords; and for min_count < 1.
        """
        empty = cls(kind, (), lower, spaces, tuple(specials))
        least = {"byte": N_BYTES, "subword": N_BYTES}.get(kind, 2) + len(specials)
        if kind == "byte":
            require(
                max_size is None, f"A vocabulary of bytes has {N_BYTES} ids; max_size is {max_size}, expected none."
            )
        elif kind == "subword":
            require(max_size is not None, f"A vocabulary of subwords needs max_size, at least {least}.")
        if max_size is not None:
            wanted = "the bytes" if kind == "subword" else "<unk> and a token"
            extra = " and the specials" if specials else ""
            require(
                max_size >= least,
                f"A vocabulary has max_size {max_size}; expected at least {least}, {wanted}{extra}.",
            )
        require(min_count >= 1, f"A vocabulary has min_count {min_count}; expected at least 1.")
        texts = [train_texts] if isinstance(train_texts, str) else train_texts
        room = None if max_size is None else max_size - len(specials)
        if kind == "byte":
            return empty
        if kind == "subword":
            assert room is not None
            return dataclasses.replace(empty, subwords=_join_pairs(map(empty._folded, texts), room, min_count))
        counts = Counter(token for text in texts for token in empty.tokenise(text))
        kept = [token for token in counts if counts[token] >= min_count and token not in (UNKNOWN, *specials)]
        ranked = sorted(kept, key=lambda token: (-counts[token], token))
        return dataclasses.replace(empty, tokens=(UNKNOWN, *ranked)[:room])

    @property
    def size(self) -> int:
        return self._n_tokens + len(self.specials)

    def special(self, name: str) -> int:
        """The id of a special.

        Raises   UserError for one that this vocabulary does not have.
        """
        require(name in self.specials, f"This vocabulary has no special {name!r}; it has {list(self.specials)}.")
        return self._n_tokens + self.specials.index(name)

    def tokenise(self, text: str | Sequence[str]) -> Sequence[str]:
        """The tokens of a text, known or not; of bytes and subwords, as far as they are characters."""
        text = self._folded(text)
        if self.kind in ("char", TOKENS):
            return text
        assert isinstance(text, str)
        if self.kind == "word":
            return (_WORD if self.spaces else _BARE_WORD).findall(text)
        return [self.decode([i]) for i in self.encode(text)]

    def encode(self, text: str | Sequence[str]) -> np.ndarray:
        """The ids of a text, int32."""
        if self.kind in ("byte", "subword"):
            text = self._folded(text)
            assert isinstance(text, str)
            if self.kind == "subword":
                return np.array(self._tokenizer.encode(text).ids, np.int32)
            return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)
        return np.fromiter((self._ids.get(token, 0) for token in self.tokenise(text)), np.int32)

    def unknown(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text that have no id of their own, each once."""
        if self.kind in ("byte", "subword"):
            return []
        return [token for token in dict.fromkeys(self.tokenise(text)) if token not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD, and bare words and tokens have a space between."""
        known = [int(i) for i in ids if int(i) < self._n_tokens]
        if self.kind == "byte":
            return bytes(known).decode("utf-8", errors="replace")
        if self.kind == "subword":
            return self._tokenizer.decode(known)
        between = " " if self.kind == TOKENS or not self.spaces else ""
        return between.join(self.tokens[i] for i in known)

    def starts_character(self) -> np.ndarray | None:
        """Which ids begin a character of the text, so that counting them counts characters; None for longer tokens.

        A byte does unless it is 10xxxxxx. Words are left out: what an unknown one was made of is never predicted.
        """
        if self.kind not in ("char", "byte"):
            return None
        starts_V = (np.arange(self._n_tokens) & 0xC0) != 0x80 if self.kind == "byte" else np.ones(self._n_tokens, bool)
        return np.concatenate([starts_V, np.zeros(len(self.specials), bool)])

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON, whole or not at all."""
        write_whole(path, json.dumps(dataclasses.asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary that was saved.

        Raises   UserError for a file that is missing or damaged.
        """
        require(path.is_file(), f"The vocabulary {path} does not exist.")
        try:
            node = json.loads(path.read_text(encoding="utf-8"))
            lists = {"tokens": tuple(node["tokens"]), "specials": tuple(node.get("specials", ()))}
            return cls(**{**node, **lists})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"The vocabulary {path} cannot be read: it is damaged.") from error

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_str(self.subwords)

    @functools.cached_property
    def _n_tokens(self) -> int:
        if self.kind == "byte":
            return N_BYTES
        return self._tokenizer.get_vocab_size() if self.kind == "subword" else len(self.tokens)

    def _folded(self, text: str | Sequence[str]) -> str | Sequence[str]:
        if not self.lower:
            return text
        return text.lower() if isinstance(text, str) else [token.lower() for token in text]


def require_kind(owner: str, kind: str) -> None:
    """Raise UserError unless `kind` is that of a vocabulary of texts."""
    nearest = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.0)[0]
    require(kind in KINDS, f"{owner} has kind {kind!r}; expected one of {', '.join(KINDS)} (nearest: {nearest}).")


def _join_pairs(texts: Iterable[str | Sequence[str]], size: int, min_count: int) -> str:
    """Byte-pair encoding of texts, as the library writes it down."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()
