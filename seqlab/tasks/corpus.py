"""A text as a task reads it: split by position, made ids, cut into windows; and what pairs of its tokens say."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.data.learned import load_learned
from seqlab.data.text import read_text, split_by_position
from seqlab.data.vocabulary import Vocabulary, require_kind
from seqlab.tasks.checks import require_size
from seqlab.types import Array, require


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A text (a file or a folder) and its windows, which a task of text is made of.

    The text is split by position: the first 80 % train, then 10 % validation, 10 % test. The vocabulary is that of the
    training piece, with at most `max_size` ids. A window is `length` + `overlap` tokens in a row, `length` of them the
    inputs. Training draws windows that start anywhere, each place as likely as any other. Validation and test are cut
    into windows that share `overlap` tokens, so that each input is one once; `n_eval` keeps the first windows of each.
    With `learned_from`, the directory of a run, the vocabulary is the one of that run.

    Raises   UserError for a text that cannot be read, an unknown kind, length < 1, max_size < 2, n_eval < 1, and a
             piece of the text without a whole window.
    """

    path: str
    kind: str = "char"
    length: int = 64
    max_size: int | None = None
    n_eval: int | None = None
    learned_from: str | None = None
    vocabulary: Vocabulary = dataclasses.field(init=False, repr=False, compare=False)
    ids: dict[str, np.ndarray] = dataclasses.field(init=False, repr=False, compare=False)
    owner: ClassVar[str] = "corpus"
    fitted_by: ClassVar[tuple[str, ...]] = ("kind", "max_size")
    overlap: ClassVar[int] = 0
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "step"
    length_fields: ClassVar[tuple[str, ...]] = ("length",)
    baseline: ClassVar[str] = "pairs of tokens"

    def __post_init__(self) -> None:
        require(isinstance(self.path, str), f"{self.owner} has path {self.path!r}; expected a file or a folder.")
        require_kind(self.owner, self.kind)
        require_size(self.owner, "length", self.length, 1)
        if self.max_size is not None:
            require_size(self.owner, "max_size", self.max_size, 2, ", <unk> and a token")
        if self.n_eval is not None:
            require_size(self.owner, "n_eval", self.n_eval, 1)
        train, validation, test = split_by_position(read_text(self.path))
        # A frozen dataclass is set past its door: the text is read once, where what is wrong with it is still refused.
        learned = None if self.learned_from is None else load_learned("vocabulary", Path(self.learned_from))
        require(
            learned is None or learned.kind == self.kind,
            f"{self.owner} has kind {self.kind!r}, but the vocabulary of {self.learned_from} is of another.",
        )
        object.__setattr__(self, "vocabulary", learned or Vocabulary.fit(self.kind, train, self.max_size))
        pieces = {"train": train, "validation": validation, "test": test}
        ids = {name: self._narrow(self.vocabulary.encode(piece)) for name, piece in pieces.items()}
        for name, ids_N in ids.items():
            require(
                len(ids_N) >= self.length + self.overlap,
                f"{self.owner} has length {self.length}, but the {name} piece of {self.path} has {len(ids_N)} "
                f"tokens; expected at least {self.length + self.overlap}, a window.",
            )
        object.__setattr__(self, "ids", ids)

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size

    @property
    def n_outputs(self) -> int:
        return self.vocabulary.size

    def draw_windows(self, key: Array, batch_size: int) -> Array:
        """Windows of the training piece, int32."""
        ids_N, size = self.ids["train"], self.length + self.overlap
        starts_B = jax.random.randint(key, (batch_size,), 0, len(ids_N) - size + 1)
        return jnp.asarray(ids_N)[starts_B[:, None] + jnp.arange(size)].astype(jnp.int32)

    def cut_windows(self, name: str) -> tuple[Array, Array | None]:
        """The windows of a piece in a row, and how many inputs each has: None where all are full."""
        ids_N, L = self.ids[name], self.length
        n_inputs = len(ids_N) - self.overlap
        n_windows = -(-n_inputs // L)
        kept = n_windows if self.n_eval is None else min(self.n_eval, n_windows)
        filled_N = np.pad(ids_N, (0, n_windows * L - n_inputs))
        starts_B = L * np.arange(kept)
        windows_BT = filled_N[starts_B[:, None] + np.arange(L + self.overlap)].astype(np.int32)
        lengths_B = np.minimum(n_inputs - starts_B, L).astype(np.int32)
        return jnp.asarray(windows_BT), None if (lengths_B == L).all() else jnp.asarray(lengths_B)

    def _narrow(self, ids_N: np.ndarray) -> np.ndarray:
        """The ids in the smallest type that holds them: they are a constant of the compiled step."""
        return ids_N.astype(np.min_scalar_type(self.vocab_size - 1))


def log_bigrams(given_N: np.ndarray, told_N: np.ndarray, vocab_size: int) -> np.ndarray:
    """What pairs of tokens say of the second: ln p(b | a) with p(b | a) = (n_ab + k_a q_b) / (n_a + k_a).

    n counts the pairs, k_a the different tokens seen with a, q_b is the share of b, from one more than its count: best
    among those that know one token alone.

    Shapes   a_N = given_N, b_N = told_N -> a table of V² numbers, row a.
    Source   Witten & Bell 1991, The zero-frequency problem, method C, interpolated.
    """
    V = vocab_size
    n_VV = np.bincount(given_N.astype(np.int64) * V + told_N, minlength=V * V).reshape(V, V)
    q_V = (np.bincount(told_N, minlength=V) + 1) / (len(told_N) + V)
    k_V1 = np.maximum((n_VV > 0).sum(1, keepdims=True), 1)
    return np.log((n_VV + k_V1 * q_V) / (n_VV.sum(1, keepdims=True) + k_V1)).astype(np.float32)
