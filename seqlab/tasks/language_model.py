"""Language modelling: the next token of a text."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.data.text import Vocabulary, read_text, require_kind, split_by_position
from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Say after each token of a text which one comes next.

        window    x_0 … x_L,  L + 1 tokens in a row of the text, L = `length`
        inputs    x_0 … x_{L−1}
        targets   x_1 … x_L
        loss      −(1/L) Σ_t ln p(x_t | x_0 … x_{t−1})

    The text (a file or a folder) is split by position: the first 80 % train, then 10 % validation, 10 % test. The
    vocabulary is that of the training piece, with at most `max_size` ids. A batch of training is windows that start
    anywhere, each place as likely as any other. Validation and test are cut into windows that share their ends, so that
    each token but the first of the piece is predicted once, from the tokens of its window alone; `n_eval` keeps the
    first windows of each.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT; logits_BTV.
    Metrics  loss (cross-entropy, nats a token), perplexity e^loss; for char and byte bits_per_character.
    Raises   UserError for a text that cannot be read, an unknown kind, length < 1, max_size < 2, n_eval < 1, and a
             piece of the text without a whole window.
    Source   Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, §2.
    """

    path: str
    kind: str = "char"
    length: int = 64
    max_size: int | None = None
    n_eval: int | None = None
    vocabulary: Vocabulary = dataclasses.field(init=False, repr=False, compare=False)
    _ids: dict[str, np.ndarray] = dataclasses.field(init=False, repr=False, compare=False)
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "step"
    solved_exactly: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(isinstance(self.path, str), f"language_model has path {self.path!r}; expected a file or a folder.")
        require_kind("language_model", self.kind)
        require_size("language_model", "length", self.length, 1)
        if self.max_size is not None:
            require_size("language_model", "max_size", self.max_size, 2, ", <unk> and a token")
        if self.n_eval is not None:
            require_size("language_model", "n_eval", self.n_eval, 1)
        train, validation, test = split_by_position(read_text(self.path))
        # A frozen dataclass is set past its door: the text is read once, where what is wrong with it is still refused.
        object.__setattr__(self, "vocabulary", Vocabulary.fit(self.kind, train, self.max_size))
        pieces = {"train": train, "validation": validation, "test": test}
        ids = {name: self._narrow(self.vocabulary.encode(piece)) for name, piece in pieces.items()}
        for name, ids_N in ids.items():
            require(
                len(ids_N) > self.length,
                f"language_model has length {self.length}, but the {name} piece of {self.path} has {len(ids_N)} "
                f"tokens; expected at least {self.length + 1}, a window.",
            )
        object.__setattr__(self, "_ids", ids)

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size

    @property
    def n_outputs(self) -> int:
        return self.vocabulary.size

    def sample(self, key: Array, batch_size: int) -> Batch:
        ids_N = self._ids["train"]
        starts_B = jax.random.randint(key, (batch_size,), 0, len(ids_N) - self.length)
        windows_BT = jnp.asarray(ids_N)[starts_B[:, None] + jnp.arange(self.length + 1)]
        return self._shift(windows_BT.astype(jnp.int32), None)

    def evaluation_sets(self) -> dict[str, Batch]:
        return {name: self._cut(self._ids[name]) for name in ("validation", "test")}

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        nats, n_tokens = objectives.cross_entropy(outputs, batch.targets, batch.weights)
        sums = {"loss": (nats, n_tokens), "perplexity": (nats, n_tokens)}
        starts_V = self.vocabulary.starts_character()
        if starts_V is not None:
            n_characters = jnp.sum(batch.weights * jnp.asarray(starts_V)[batch.targets])
            sums["bits_per_character"] = (nats / math.log(2), n_characters)
        return sums

    def solve(self, batch: Batch) -> Array:
        """What the pairs of the training text say: p(b | a) = (n_ab + k_a q_b) / (n_a + k_a).

        n counts pairs in the training text, k_a the different tokens seen after a, q is the share of b, from one more
        than its count. Best among those that know the last token alone; a table of V² numbers.

        Source   Witten & Bell 1991, The zero-frequency problem, method C, interpolated.
        """
        return jnp.asarray(self._log_bigrams_VV)[batch.inputs]

    @functools.cached_property
    def _log_bigrams_VV(self) -> np.ndarray:
        V, ids_N = self.vocab_size, self._ids["train"].astype(np.int64)
        n_VV = np.bincount(ids_N[:-1] * V + ids_N[1:], minlength=V * V).reshape(V, V)
        q_V = (np.bincount(ids_N, minlength=V) + 1) / (len(ids_N) + V)
        k_V1 = np.maximum((n_VV > 0).sum(1, keepdims=True), 1)
        return np.log((n_VV + k_V1 * q_V) / (n_VV.sum(1, keepdims=True) + k_V1)).astype(np.float32)

    def _cut(self, ids_N: np.ndarray) -> Batch:
        L = self.length
        n_targets = len(ids_N) - 1
        n_windows = -(-n_targets // L)
        kept = n_windows if self.n_eval is None else min(self.n_eval, n_windows)
        filled_N = np.pad(ids_N, (0, n_windows * L - n_targets))
        starts_B = L * np.arange(kept)
        windows_BT = filled_N[starts_B[:, None] + np.arange(L + 1)].astype(np.int32)
        lengths_B = np.minimum(n_targets - starts_B, L).astype(np.int32)
        return self._shift(jnp.asarray(windows_BT), None if (lengths_B == L).all() else jnp.asarray(lengths_B))

    def _shift(self, windows_BT: Array, lengths_B: Array | None) -> Batch:
        """The one place where targets are shifted against inputs."""
        inputs_BT, targets_BT = windows_BT[:, :-1], windows_BT[:, 1:]
        if lengths_B is None:
            return Batch(inputs_BT, None, targets_BT, jnp.ones(inputs_BT.shape))
        told_BT = jnp.arange(self.length) < lengths_B[:, None]
        return Batch(jnp.where(told_BT, inputs_BT, 0), lengths_B, targets_BT, told_BT.astype(jnp.float32))

    def _narrow(self, ids_N: np.ndarray) -> np.ndarray:
        """The ids in the smallest type that holds them: they are a constant of the compiled step."""
        return ids_N.astype(np.min_scalar_type(self.vocab_size - 1))
