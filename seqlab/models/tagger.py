"""The tagger: many to many, in step. A language model is one."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.masks import valid_mask
from seqlab.types import Array, require


class Tagger(nn.Module):
    """Say one thing at each step of a row.

    logits_t = W encoder(inputs(x))_t + b    and 0 past the length

    Shapes   ids_BT or u_BTD, lengths_B -> logits_BTV with V = `n_outputs`;
             a step: state, ids_B or u_BD -> state, logits_BV; a prompt: state, ids_BT -> state, logits_BV after it.
    Raises   UserError for a bad size or rate.
    """

    inputs: nn.Module
    encoder: nn.Module
    n_outputs: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.n_outputs, int) and self.n_outputs >= 1,
            f"Tagger got n_outputs {self.n_outputs!r}; expected an integer of at least 1.",
        )
        check_rate("dropout", self.dropout)

    def setup(self) -> None:
        self.drop = Dropout(self.dropout)
        self.head = nn.Dense(self.n_outputs)

    def __call__(self, inputs: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        x_BTD = self.inputs(inputs, lengths_B, train=train)
        y_BTF = self.encoder(x_BTD, lengths_B, train=train).y_BTF
        logits_BTV = self.head(self.drop(y_BTF, train=train))
        return jnp.where(valid_mask(lengths_B, inputs.shape[1])[..., None], logits_BTV, 0)

    def init_state(self, batch_size: int) -> Any:
        """Give the state before the first step."""
        return self.encoder.init_state(batch_size)

    def room(self) -> int | None:
        """Give the most steps that a state has room for, None for no limit."""
        return self.encoder.room() if hasattr(self.encoder, "room") else None

    def read(self, state: Any, inputs: Array, lengths_B: Array) -> tuple[Any, Array]:
        """Go on by a prompt of each row's own length, without dropout."""
        encoding = self.encoder(self.inputs(inputs, lengths_B, train=False), lengths_B, state=state, train=False)
        return encoding.state, self.head(encoding.last_BF)

    def step(self, state: Any, inputs: Array) -> tuple[Any, Array]:
        """Read one step, without dropout: stepping through a row equals reading it whole."""
        x_BD = self.inputs(inputs[:, None], train=False)[:, 0]
        state, y_BF = self.encoder.step(state, x_BD)
        return state, self.head(y_BF)
