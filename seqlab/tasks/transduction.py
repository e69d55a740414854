"""Write a row anew: as it is, backwards, or in order."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets, draw_lengths
from seqlab.types import Array, Batch, Sums, UserError, require


def copy(s_BT: Array, n_B1: Array) -> Array:
    """s_1, s_2 … s_n."""
    return s_BT


def reverse(s_BT: Array, n_B1: Array) -> Array:
    """s_n … s_2, s_1."""
    return jnp.take_along_axis(s_BT, (n_B1 - 1 - jnp.arange(s_BT.shape[1])).clip(0), axis=1)


def sort(s_BT: Array, n_B1: Array) -> Array:
    """The least first."""
    last = jnp.iinfo(s_BT.dtype).max
    return jnp.sort(jnp.where(jnp.arange(s_BT.shape[1]) < n_B1, s_BT, last), 1)


RULES: dict[str, Callable[[Array, Array], Array]] = {"copy": copy, "reverse": reverse, "sort": sort}


@dataclasses.dataclass(frozen=True)
class Transduction:
    """Read n symbols, then write them by a rule and say that this is the end.

        source    s_1 … s_n
        target    rule(s_1 … s_n)   end          rule: copy, reverse or sort

    Symbols are uniform in 0 … V−1, n in min_symbols … n_symbols; `eos`, the end, is the target V. At best: accuracy 1,
    loss 0. A row that is right at every step, told what came before, is the row that a greedy decoder writes, so that
    sequence_accuracy is that of decoding.

    Shapes   inputs_BS with S = n_symbols, lengths_B; targets_BT with T = n_symbols + 1; logits_BTV, V + 1 of them.
    Metrics  loss (cross-entropy), accuracy, sequence_accuracy.
    Raises   UserError for an unknown rule, n_symbols < 1, min_symbols outside 1 … n_symbols, vocab_size < 2 and
             n_eval < 1.
    Source   Grefenstette et al. 2015, arXiv:1506.02516 (copy, reversal); Vinyals et al. 2016, arXiv:1511.06391 (sort).
    """

    rule: str
    n_symbols: int = 10
    min_symbols: int = 1
    vocab_size: int = 10
    n_eval: int = 1024
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "sequence"
    length_fields: ClassVar[tuple[str, ...]] = ("n_symbols", "min_symbols")

    def __post_init__(self) -> None:
        nearest = difflib.get_close_matches(str(self.rule), RULES, n=1, cutoff=0.0)[0]
        choices = ", ".join(RULES)
        require(
            self.rule in RULES,
            f"transduction has rule {self.rule!r}; expected one of {choices} (nearest: {nearest}).",
        )
        require_size("transduction", "n_symbols", self.n_symbols, 1)
        require_size("transduction", "min_symbols", self.min_symbols, 1)
        require(
            self.min_symbols <= self.n_symbols,
            f"transduction has min_symbols {self.min_symbols}; expected at most n_symbols, {self.n_symbols}.",
        )
        require_size("transduction", "vocab_size", self.vocab_size, 2)
        require_size("transduction", "n_eval", self.n_eval, 1)

    @property
    def eos(self) -> int:
        return self.vocab_size

    @property
    def n_outputs(self) -> int:
        return self.vocab_size + 1

    def sample(self, key: Array, batch_size: int) -> Batch:
        key_symbols, key_n = jax.random.split(key)
        n_B = draw_lengths(key_n, batch_size, self.min_symbols, self.n_symbols)
        s_BS = jax.random.randint(key_symbols, (batch_size, self.n_symbols), 0, self.vocab_size)
        s_BS = jnp.where(jnp.arange(self.n_symbols) < n_B[:, None], s_BS, 0)
        weights_BT = jnp.arange(self.n_symbols + 1) <= n_B[:, None]
        targets_BT = jnp.where(weights_BT, self._answer(s_BS, n_B), 0)
        return Batch(s_BS, n_B, targets_BT, weights_BT.astype(jnp.float32))

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return objectives.of_tokens(outputs, batch)

    def solve(self, batch: Batch) -> Array:
        assert batch.lengths is not None
        return LARGE * jax.nn.one_hot(self._answer(batch.inputs, batch.lengths), self.n_outputs)

    def encode_source(self, text: str) -> np.ndarray:
        """The ids of symbols, written as numbers between spaces.

        Raises   UserError for what is no symbol.
        """
        try:
            ids = np.array([int(word) for word in text.split()], np.int32)
        except ValueError as error:
            raise UserError(f"source is {text!r}; expected whole numbers between spaces.") from error
        inside = ((ids >= 0) & (ids < self.vocab_size)).all()
        require(bool(inside), f"source is {text!r}; expected symbols from 0 to {self.vocab_size - 1}.")
        return ids

    def decode_target(self, ids: Iterable[int]) -> str:
        """The symbols as numbers between spaces."""
        return " ".join(str(int(i)) for i in ids)

    def _answer(self, s_BS: Array, n_B: Array) -> Array:
        n_B1 = n_B[:, None]
        written_BT = jnp.pad(RULES[self.rule](s_BS, n_B1), [(0, 0), (0, 1)])
        return jnp.where(jnp.arange(self.n_symbols + 1) < n_B1, written_BT, self.eos)
