"""The encoder-decoder: many to many, the one row read whole before the other is written."""

from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.models.teacher import Always
from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.inputs import TokenInputs
from seqlab.nn.matrix import as_matrix
from seqlab.nn.reinforce import reinforce_loss
from seqlab.nn.rows import row_keys
from seqlab.types import Array, Encoding, require


class EncoderDecoder(nn.Module):
    """Read a row, then write another, each symbol after the ones before it.

        source = encoder(inputs(x));   s_0 = decoder.start(source)
        logits_t = W decoder(E[y_0], …, E[y_{t−1}])_t + b        y_0: the start symbol, the last row of E

    A model that learns is told the target y_{t−1}. With a `teacher` schedule it is told it with probability ε(s) at
    update s, each symbol by itself, and otherwise a sample of what it said itself. With `tied`, W is E without y_0.
    What a decoder draws is learned by REINFORCE, whose term is sown into the collection "losses".

    Shapes   inputs: ids_BS or u_BSD, lengths_B; targets_BT and their weights_BT (0: past the end) -> logits_BTV with
             V = `n_outputs`;  begin: inputs, lengths_B -> state, logits_BV;  step: state, ids_B -> state, logits_BV.
    Raises   UserError for a bad size or rate, and for `tied` with a decoder of another width than the table.
    Source   Sutskever et al. 2014, arXiv:1409.3215; Cho et al. 2014, arXiv:1406.1078; scheduled sampling: Bengio et
             al. 2015, arXiv:1506.03099, §2.4.
    Differs  Masks that a layer draws once a row are drawn at each step where the teacher leaves the model alone.
    """

    inputs: nn.Module
    encoder: nn.Module
    decoder: nn.Module
    n_outputs: int
    target_features: int
    dropout: float = 0.0
    tied: bool = False
    teacher: Callable[[Array], Array] | Always = Always()
    teacher_forced: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_outputs", "target_features"):
            size = getattr(self, name)
            is_size = isinstance(size, int) and size >= 1
            require(is_size, f"EncoderDecoder got {name} {size!r}; expected an integer of at least 1.")
        check_rate("dropout", self.dropout)

    def setup(self) -> None:
        self.drop = Dropout(self.dropout)
        self.targets = TokenInputs(self.n_outputs + 1, self.target_features)
        if self.tied:
            self.b = self.param("bias", nn.initializers.zeros_init(), (self.n_outputs,))
        else:
            self.head = nn.Dense(self.n_outputs)

    def __call__(
        self, inputs: Array, lengths_B: Array | None, targets_BT: Array, weights_BT: Array, *, train: bool
    ) -> Array:
        state = self.decoder.start(self._encode(inputs, lengths_B, train), lengths_B)
        told_BT = self._shift(jnp.where(weights_BT > 0, targets_BT, 0))
        if train and not isinstance(self.teacher, Always):
            logits_BTV, choices = self._write(state, told_BT, self.teacher(self.get_variable("training", "step")))
        else:
            encoding = self.decoder(self.targets(told_BT, train=train), state=state, train=train)
            logits_BTV, choices = self._say(self.drop(encoding.y_BTF, train=train)), encoding.choices
        if choices is not None:
            log_p_BTV = jax.nn.log_softmax(logits_BTV.astype(jnp.float32))
            labels_BT = jnp.where(weights_BT > 0, targets_BT, 0)
            log_likelihood_BT = jnp.take_along_axis(log_p_BTV, labels_BT[..., None], -1)[..., 0]
            self.sow("losses", "reinforce", reinforce_loss(log_likelihood_BT, choices, weights_BT))
        return logits_BTV

    def begin(self, inputs: Array, lengths_B: Array | None = None) -> tuple[Any, Array]:
        """Read sources, each of its own length, and the start symbol, without dropout."""
        state = self.decoder.start(self._encode(inputs, lengths_B, train=False), lengths_B)
        return self.step(state, jnp.full(len(inputs), self.n_outputs))

    def step(self, state: Any, ids_B: Array) -> tuple[Any, Array]:
        """Read what was written last, without dropout: stepping through a row equals being told it whole."""
        state, y_BF = self.decoder.step(state, self.targets(ids_B[:, None], train=False)[:, 0])
        return state, self._say(y_BF)

    def room(self, n_prompt: int) -> int | None:
        """Give the most steps that can be written after a source of `n_prompt` steps, None for no limit.

        The source takes nothing of it; below 0, the encoder has no room for the source.
        """
        room = self.encoder.room() if hasattr(self.encoder, "room") else None
        if room is not None and room < n_prompt:
            return room - n_prompt
        room = self.decoder.room()
        return None if room is None else room - 1

    def _encode(self, inputs: Array, lengths_B: Array | None, train: bool) -> Encoding:
        return self.encoder(self.inputs(inputs, lengths_B, train=train), lengths_B, train=train)

    def _shift(self, targets_BT: Array) -> Array:
        """The one place where targets are shifted: what the decoder is told before each of them."""
        start_B1 = jnp.full((len(targets_BT), 1), self.n_outputs, targets_BT.dtype)
        return jnp.concatenate([start_B1, targets_BT[:, :-1]], 1)

    def _write(self, state: Any, told_BT: Array, ε: Array) -> tuple[Array, Any]:
        """Step by step, each told the target with probability ε and otherwise what was drawn at the step before."""
        keys_B = row_keys(self.make_rng("dropout"), len(told_BT))

        def body(model: "EncoderDecoder", carry: Any, per_step: Any) -> Any:
            (state, said_B), (t, told_B) = carry, per_step
            keys_B2 = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(keys_B)
            taught_B = (t == 0) | jax.vmap(lambda key: jax.random.bernoulli(key, ε))(keys_B2[:, 0])
            ids_B = jnp.where(taught_B, told_B, said_B)
            encoding = model.decoder(model.targets(ids_B[:, None], train=True), state=state, train=True)
            logits_BV = model._say(model.drop(encoding.y_BTF, train=True))[:, 0]
            said_B = jax.vmap(jax.random.categorical)(keys_B2[:, 1], logits_BV).astype(told_B.dtype)
            choices = jax.tree.map(lambda a_B1: a_B1[:, 0], encoding.choices)
            return (encoding.state, said_B), (logits_BV, choices)

        scan = nn.scan(
            body, variable_broadcast="params", split_rngs={"params": False, "dropout": True}, in_axes=0, out_axes=1
        )
        _, (logits_BTV, choices) = scan(self, (state, told_BT[:, 0]), (jnp.arange(told_BT.shape[1]), told_BT.T))
        return logits_BTV, choices

    def _say(self, y: Array) -> Array:
        if not self.tied:
            return as_matrix(self.head, y)
        require(
            y.shape[-1] == self.target_features,
            f"EncoderDecoder got tied=true, but the decoder gives out {y.shape[-1]} features and the table of the "
            f"targets is {self.target_features} wide; expected the same (model.target_features).",
        )
        return self.targets.attend(y)[..., : self.n_outputs] + self.b
