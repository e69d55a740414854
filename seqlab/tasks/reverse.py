"""Write a row backwards."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets, draw_lengths
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class Reverse:
    """Read n symbols and, once the delimiter has been read, write them from the last to the first.

        inputs    s_1 … s_n   delimiter   n × blank
        targets   (n + 1) × ignored       s_n … s_1

    The ids 0 … V−3 are data, V−2 is the blank, V−1 the delimiter; the length of a row is 2n + 1. With `min_symbols`
    n is uniform in min_symbols … n_symbols, else every row has n_symbols. A model without memory guesses: accuracy
    1/(V−2), loss ln(V−2). At best: accuracy 1, loss 0.

    Shapes   inputs_BT, lengths_B (None without min_symbols), targets_BT; logits_BTV, V the data symbols alone.
    Metrics  loss (cross-entropy), accuracy, sequence_accuracy; of the written steps.
    Raises   UserError for n_symbols < 1, min_symbols outside 1 … n_symbols, vocab_size < 3, n_eval < 1.
    Source   Grefenstette et al. 2015, arXiv:1506.02516, "sequence reversal"; the layout is that of copy_memory.
    """

    n_symbols: int = 10
    min_symbols: int | None = None
    vocab_size: int = 10
    n_eval: int = 1024
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "step"
    length_fields: ClassVar[tuple[str, ...]] = ("n_symbols", "min_symbols")

    def __post_init__(self) -> None:
        require_size("reverse", "n_symbols", self.n_symbols, 1)
        if self.min_symbols is not None:
            require_size("reverse", "min_symbols", self.min_symbols, 1)
            require(
                self.min_symbols <= self.n_symbols,
                f"reverse has min_symbols {self.min_symbols}; expected at most n_symbols, {self.n_symbols}.",
            )
        require_size("reverse", "vocab_size", self.vocab_size, 3, ", a symbol, the blank and the delimiter")
        require_size("reverse", "n_eval", self.n_eval, 1)

    @property
    def n_outputs(self) -> int:
        return self.vocab_size - 2

    @property
    def blank(self) -> int:
        return self.vocab_size - 2

    @property
    def delimiter(self) -> int:
        return self.vocab_size - 1

    def sample(self, key: Array, batch_size: int) -> Batch:
        key_symbols, key_n = jax.random.split(key)
        n_B1 = draw_lengths(key_n, batch_size, self.min_symbols, self.n_symbols)[:, None]
        t_T = jnp.arange(2 * self.n_symbols + 1)
        symbols_BT = jax.random.randint(key_symbols, (batch_size, len(t_T)), 0, self.blank)
        inputs_BT = jnp.where(t_T < n_B1, symbols_BT, jnp.where(t_T == n_B1, self.delimiter, self.blank))
        written_BT = (t_T > n_B1) & (t_T <= 2 * n_B1)
        mirrored_BT = jnp.take_along_axis(symbols_BT, (2 * n_B1 - t_T).clip(0), axis=1)
        return Batch(
            inputs=jnp.where(t_T <= 2 * n_B1, inputs_BT, 0),
            lengths=None if self.min_symbols is None else 2 * n_B1[:, 0] + 1,
            targets=jnp.where(written_BT, mirrored_BT, 0),
            weights=written_BT.astype(jnp.float32),
        )

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return objectives.of_tokens(outputs, batch)

    def solve(self, batch: Batch) -> Array:
        delimiter_B1 = (batch.inputs == self.delimiter).argmax(1)[:, None]
        mirror_BT = 2 * delimiter_B1 - jnp.arange(batch.inputs.shape[1])
        return LARGE * jax.nn.one_hot(jnp.take_along_axis(batch.inputs, mirror_BT.clip(0), axis=1), self.n_outputs)
