"""The bidirectional language model: two encoders, one for each direction, with the same inputs and the same head."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.masks import valid_mask
from seqlab.nn.matrix import as_matrix
from seqlab.types import Array, require


class BiLM(nn.Module):
    """Say two things at each step of a row: one of what was read up to it, one of what follows from it on.

        x = inputs(ids)
        logits→_t = W encoder→(x_1 … x_t) + b
        logits←_t = W encoder←(x_T … x_t) + b      encoder← reads each row from its end

    and 0 past the length. The inputs, W and b are shared, the encoders are not.

    Shapes   ids_BT or u_BTD, lengths_B -> logits_BTV, V = `n_outputs`: half of them forward, then half backward.
    Raises   UserError for outputs that are not two halves, a bad rate, and an encoder that cannot take one step at a
             time: it would see what it is to say.
    Source   Peters et al. 2018, arXiv:1802.05365, §3.1.
    """

    inputs: nn.Module
    encoder: Callable[..., nn.Module]
    n_outputs: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.n_outputs, int) and self.n_outputs >= 2 and self.n_outputs % 2 == 0,
            f"BiLM got n_outputs {self.n_outputs!r}; expected an even integer of at least 2, half for each direction "
            "(task=bidirectional_lm).",
        )
        check_rate("dropout", self.dropout)

    def setup(self) -> None:
        self.forward, self.backward = self.encoder(), self.encoder()
        self.drop, self.head = Dropout(self.dropout), nn.Dense(self.n_outputs // 2)

    def __call__(self, inputs: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        both = self.encode(inputs, lengths_B, train=train)
        logits_BTV = jnp.concatenate([as_matrix(self.head, self.drop(y_BTF, train=train)) for y_BTF in both], -1)
        return jnp.where(valid_mask(lengths_B, inputs.shape[1])[..., None], logits_BTV, 0)

    def encode(self, inputs: Array, lengths_B: Array | None = None, *, train: bool) -> tuple[Array, Array]:
        """Give what the head reads: the outputs of both encoders, in the order of the row."""
        x_BTD = self.inputs(inputs, lengths_B, train=train)
        ahead_BTF = self.forward(x_BTD, lengths_B, train=train).y_BTF
        back_BTF = self.backward(reverse_rows(x_BTD, lengths_B), lengths_B, train=train).y_BTF
        if self.is_initializing():
            # Who can take one step at a time sees nothing ahead; who cannot says so here.
            self.forward.step(self.forward.init_state(1), x_BTD[:1, 0])
        return ahead_BTF, reverse_rows(back_BTF, lengths_B)


def reverse_rows(x_BTD: Array, lengths_B: Array | None) -> Array:
    """Turn each row round within its length; what lies past it stays."""
    if lengths_B is None:
        return x_BTD[:, ::-1]
    t_T, n_B1 = jnp.arange(x_BTD.shape[1]), lengths_B[:, None]
    return jnp.take_along_axis(x_BTD, jnp.where(t_T < n_B1, n_B1 - 1 - t_T, t_T)[..., None], 1)
