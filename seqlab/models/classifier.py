"""The classifier: many to one."""

from collections.abc import Callable

import flax.linen as nn

from seqlab.nn.dropout import Dropout, check_rate
from seqlab.types import Array, Encoding, require


class Classifier(nn.Module):
    """Read a row, then say one thing about it.

    logits = W pool(encoder(inputs(x))) + b

    Shapes   ids_BT or u_BTD, lengths_B -> logits_BV with V = `n_outputs`.
    Raises   UserError for a bad size or rate.
    """

    inputs: nn.Module
    encoder: nn.Module
    pool: Callable[[Encoding, Array | None], Array]
    n_outputs: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.n_outputs, int) and self.n_outputs >= 1,
            f"Classifier got n_outputs {self.n_outputs!r}; expected an integer of at least 1.",
        )
        check_rate("dropout", self.dropout)

    @nn.compact
    def __call__(self, inputs: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        x_BTD = self.inputs(inputs, lengths_B, train=train)
        encoding = self.encoder(x_BTD, lengths_B, train=train)
        z_BF = self.pool(encoding, lengths_B)
        z_BF = Dropout(self.dropout)(z_BF, train=train)
        return nn.Dense(self.n_outputs, name="head")(z_BF)
