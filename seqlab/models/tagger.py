"""The tagger: many to many, in step. A language model is one."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.matrix import as_matrix
from seqlab.types import Array, Encoding, require


class Tagger(nn.Module):
    """Say one thing at each step of a row.

        logits_t = W encoder(inputs(x))_t + b    and 0 past the length;  with `tied`, W is E, the table of the inputs

    Shapes   ids_BT or u_BTD, lengths_B -> logits_BTV with V = `n_outputs`, and with a state to go on from (that of
             `init_state`, or what came back with a row's last window) the state after it too;
             a prompt: ids_BT or u_BTD, lengths_B -> state, logits_BV after it;
             a step: state, ids_B or u_BD -> state, logits_BV.
    Raises   UserError for a bad size or rate, and for tied inputs that have no table or one of another shape than W.
    Source   tied: Press & Wolf 2017, arXiv:1608.05859, §3; Vaswani et al. 2017, arXiv:1706.03762, §3.4.
    Differs  Vaswani et al. multiply what they look up by √D; here it is taken as it is.
    """

    inputs: nn.Module
    encoder: nn.Module
    n_outputs: int
    dropout: float = 0.0
    tied: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.n_outputs, int) and self.n_outputs >= 1,
            f"Tagger got n_outputs {self.n_outputs!r}; expected an integer of at least 1.",
        )
        check_rate("dropout", self.dropout)
        require(
            not self.tied or hasattr(self.inputs, "attend"),
            f"Tagger got tied=true, but {type(self.inputs).__name__} has no table to tie the head to; expected "
            "model/inputs=token.",
        )

    def setup(self) -> None:
        self.drop = Dropout(self.dropout)
        if self.tied:
            self.b = self.param("bias", nn.initializers.zeros_init(), (self.n_outputs,))
        else:
            self.head = nn.Dense(self.n_outputs)

    def __call__(
        self, inputs: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool
    ) -> Array | tuple[Array, Any]:
        encoding = self.encode(inputs, lengths_B, state=state, train=train)
        logits_BTV = self._say(self.drop(encoding.y_BTF, train=train))
        logits_BTV = jnp.where(valid_mask(lengths_B, logits_BTV.shape[1])[..., None], logits_BTV, 0)
        return logits_BTV if state is None else (logits_BTV, encoding.state)

    def encode(self, inputs: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool) -> Encoding:
        """Give what the head reads, with the state of the inputs (None if they have none) and the encoder's."""
        of_inputs, of_encoder = (None, None) if state is None else state
        if of_inputs is None:
            x_BTD = self.inputs(inputs, lengths_B, train=train)
        else:
            x_BTD, of_inputs = self.inputs(inputs, lengths_B, state=of_inputs, train=train)
        encoding = self.encoder(x_BTD, lengths_B, state=of_encoder, train=train)
        return encoding.replace(state=(of_inputs, encoding.state))

    def init_state(self, batch_size: int) -> Any:
        """The state before anything is read."""
        of_inputs = self.inputs.init_state(batch_size) if hasattr(self.inputs, "init_state") else None
        return of_inputs, self.encoder.init_state(batch_size)

    def begin(self, inputs: Array, lengths_B: Array | None = None) -> tuple[Any, Array]:
        """Read prompts, each of its own length, without dropout."""
        encoding = self.encode(inputs, lengths_B, state=self.init_state(len(inputs)), train=False)
        return encoding.state, self._say(last_step(encoding.y_BTF, lengths_B))

    def step(self, state: Any, inputs: Array) -> tuple[Any, Array]:
        """Read one step, without dropout: stepping through a row equals reading it whole."""
        state, y_BF = self.encode_step(state, inputs)
        return state, self._say(y_BF)

    def encode_step(self, state: Any, inputs: Array) -> tuple[Any, Array]:
        """Give what the head reads at one step."""
        of_inputs, of_encoder = state
        if of_inputs is None:
            x_BD = self.inputs(inputs[:, None], train=False)[:, 0]
        else:
            of_inputs, x_BD = self.inputs.step(of_inputs, inputs)
        of_encoder, y_BF = self.encoder.step(of_encoder, x_BD)
        return (of_inputs, of_encoder), y_BF

    def room(self, n_prompt: int) -> int | None:
        """Give the most steps that can follow a prompt of `n_prompt`, None for no limit."""
        rooms = [part.room() for part in (self.inputs, self.encoder) if hasattr(part, "room")]
        return min((room - n_prompt for room in rooms if room is not None), default=None)

    def _say(self, y: Array) -> Array:
        if not self.tied:
            return as_matrix(self.head, y)
        V, D = self.inputs.vocab_size, self.inputs.features
        require(
            (self.n_outputs, y.shape[-1]) == (V, D),
            f"Tagger got tied=true, {self.n_outputs} outputs and an encoder of width {y.shape[-1]}, but the table of "
            f"the inputs has {V} rows of width {D}; expected the same (model.inputs.features).",
        )
        return self.inputs.attend(y) + self.b
