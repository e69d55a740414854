"""The parity of a row of bits."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets, draw_lengths
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class Parity:
    """Say whether a row of bits holds an odd number of ones: one answer a row, no hint on the way.

        x_t ~ uniform{0, 1},   target = (Σ_{t ≤ length} x_t) mod 2

    With `min_length` the lengths are uniform in min_length … length, else every row is full. One wrong bit anywhere
    turns the answer, so that a model short of a counter guesses: accuracy 1/2, loss ln 2. At best: loss 0.

    Shapes   inputs_BT, lengths_B (None without min_length), targets_B; logits_BV with V = 2.
    Metrics  loss (cross-entropy), accuracy.
    Raises   UserError for length < 1, min_length outside 1 … length, n_eval < 1.
    Source   Minsky & Papert 1969; as a sequence task Delétang et al. 2022, arXiv:2207.02098, "Parity Check".
    """

    length: int = 20
    min_length: int | None = None
    n_eval: int = 1024
    vocab_size: ClassVar[int] = 2
    d_input: ClassVar[None] = None
    n_outputs: ClassVar[int] = 2
    target_per: ClassVar[str] = "row"
    length_fields: ClassVar[tuple[str, ...]] = ("length", "min_length")

    def __post_init__(self) -> None:
        require_size("parity", "length", self.length, 1)
        if self.min_length is not None:
            require_size("parity", "min_length", self.min_length, 1)
            require(
                self.min_length <= self.length,
                f"parity has min_length {self.min_length}; expected at most the length, {self.length}.",
            )
        require_size("parity", "n_eval", self.n_eval, 1)

    def sample(self, key: Array, batch_size: int) -> Batch:
        key_bits, key_lengths = jax.random.split(key)
        lengths_B = draw_lengths(key_lengths, batch_size, self.min_length, self.length)
        bits_BT = jax.random.randint(key_bits, (batch_size, self.length), 0, 2)
        bits_BT = jnp.where(jnp.arange(self.length) < lengths_B[:, None], bits_BT, 0)
        return Batch(
            inputs=bits_BT,
            lengths=None if self.min_length is None else lengths_B,
            targets=bits_BT.sum(1) % 2,
            weights=jnp.ones(batch_size),
        )

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return {
            "loss": objectives.cross_entropy(outputs, batch.targets, batch.weights),
            "accuracy": objectives.accuracy(outputs, batch.targets, batch.weights),
        }

    def solve(self, batch: Batch) -> Array:
        bits_BT = batch.inputs
        if batch.lengths is not None:
            bits_BT = jnp.where(jnp.arange(self.length) < batch.lengths[:, None], bits_BT, 0)
        return LARGE * jax.nn.one_hot(bits_BT.sum(1) % 2, self.n_outputs)
