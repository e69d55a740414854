"""Add two numbers, digit by digit."""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.drawing import LARGE, draw_evaluation_sets
from seqlab.types import Array, Batch, Sums, require

SYMBOLS = "0123456789+"
PLUS = SYMBOLS.index("+")
MOST_DIGITS = 8  # sums fit in int32


@dataclasses.dataclass(frozen=True)
class Addition:
    """Read two numbers with a plus between them, then write their sum.

        source    535+61
        target    596   end

    The number of digits of each is uniform in 1 … n_digits and then the digits are, but for a leading zero of more
    than one. The ids 0 … 9 are the digits, 10 is the plus, and as a target `eos`, the end. At best: accuracy 1, loss 0.

    Shapes   inputs_BS with S = 2 n_digits + 1, lengths_B; targets_BT with T = n_digits + 2; logits_BTV, 11 of them.
    Metrics  loss (cross-entropy), accuracy, sequence_accuracy: the share of sums that are right.
    Raises   UserError for n_digits outside 1 … 8 and n_eval < 1.
    Source   Zaremba & Sutskever 2014, arXiv:1410.4615, §3; in this layout an example that comes with Keras.
    Differs  The sum has no padding but the end; sources are not reversed.
    """

    n_digits: int = 3
    n_eval: int = 1024
    vocab_size: ClassVar[int] = len(SYMBOLS)
    n_outputs: ClassVar[int] = 11
    eos: ClassVar[int] = 10
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "sequence"
    length_fields: ClassVar[tuple[str, ...]] = ("n_digits",)

    def __post_init__(self) -> None:
        require_size("addition", "n_digits", self.n_digits, 1)
        require(self.n_digits <= MOST_DIGITS, f"addition has n_digits {self.n_digits}; expected at most {MOST_DIGITS}.")
        require_size("addition", "n_eval", self.n_eval, 1)

    def sample(self, key: Array, batch_size: int) -> Batch:
        keys = jax.random.split(key, 4)
        n, m = (jax.random.randint(k, (batch_size,), 1, self.n_digits + 1) for k in keys[:2])
        a, b = (self._draw(k, n_B) for k, n_B in zip(keys[2:], (n, m), strict=True))
        s_S = jnp.arange(2 * self.n_digits + 1)
        n_B1, end_B1 = n[:, None], (n + 1 + m)[:, None]
        inputs_BS = jnp.where(
            s_S < n_B1,
            _digit(a, n_B1 - 1 - s_S),
            jnp.where(s_S == n_B1, PLUS, jnp.where(s_S < end_B1, _digit(b, end_B1 - 1 - s_S), 0)),
        )
        targets_BT, weights_BT = self._answer(a + b)
        return Batch(inputs_BS, end_B1[:, 0], jnp.where(weights_BT, targets_BT, 0), weights_BT.astype(jnp.float32))

    def evaluation_sets(self) -> dict[str, Batch]:
        return draw_evaluation_sets(self.sample, self.n_eval)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return objectives.of_tokens(outputs, batch)

    def solve(self, batch: Batch) -> Array:
        assert batch.lengths is not None
        s_S = jnp.arange(batch.inputs.shape[1])
        plus_B1 = (batch.inputs == PLUS).argmax(1)[:, None]
        end_B1 = batch.lengths[:, None]

        def number(first, end):
            place_BS = jnp.where((s_S >= first) & (s_S < end), 10 ** (end - 1 - s_S).clip(0), 0)
            return (batch.inputs * place_BS).sum(1)

        targets_BT, _ = self._answer(number(0, plus_B1) + number(plus_B1 + 1, end_B1))
        return LARGE * jax.nn.one_hot(targets_BT, self.n_outputs)

    def encode_source(self, text: str) -> np.ndarray:
        """The ids of a sum to do, `12+345`.

        Raises   UserError for what is no two numbers with a plus between them.
        """
        numbers = text.replace(" ", "").split("+")
        whole = len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers)
        require(whole, f"source is {text!r}; expected two numbers with a plus between them, like 12+345.")
        return np.array([SYMBOLS.index(c) for c in "+".join(numbers)], np.int32)

    def decode_target(self, ids: Iterable[int]) -> str:
        """The digits of a sum."""
        return "".join(SYMBOLS[int(i)] for i in ids)

    def _draw(self, key: Array, n_B: Array) -> Array:
        """Numbers of n digits."""
        least_B = jnp.where(n_B == 1, 0, 10 ** (n_B - 1))
        return jax.random.randint(key, n_B.shape, least_B, 10**n_B)

    def _answer(self, sum_B: Array) -> tuple[Array, Array]:
        t_T = jnp.arange(self.n_digits + 2)
        n_B1 = 1 + (sum_B[:, None] >= 10 ** jnp.arange(1, self.n_digits + 1)).sum(1, keepdims=True)
        targets_BT = jnp.where(t_T < n_B1, _digit(sum_B, n_B1 - 1 - t_T), self.eos)
        return targets_BT, t_T <= n_B1


def _digit(number_B: Array, place_BT: Array) -> Array:
    """The digits at places that count from the last one."""
    return number_B[:, None] // 10 ** place_BT.clip(0, MOST_DIGITS) % 10
