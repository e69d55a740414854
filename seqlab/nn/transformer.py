"""The Transformer: blocks that mix over time, then think at each step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.checks import check_choice, check_lengths, check_positive
from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.pointwise import gelu
from seqlab.nn.positions import Positions
from seqlab.types import Array, Encoding, require

NORMS: dict[str, Callable[..., nn.Module]] = {"layer": partial(nn.LayerNorm, epsilon=1e-5), "rms": nn.RMSNorm}
ACTIVATIONS = ("relu", "gelu", "swiglu")


class FeedForward(nn.Module):
    """What a block does at each step.

        y = W_2 φ(W_1 x)              relu, gelu
        y = W_2 (silu(W_1 x) ⊙ W_3 x) swiglu

    Shapes   x_BTD -> y_BTD, with `d_ff` numbers inside; biases are left out of the formulas, and of swiglu.
    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 2; Shazeer 2020, arXiv:2002.05202, eq. 6.
    """

    d_ff: int
    activation: str

    @nn.compact
    def __call__(self, x_BTD: Array) -> Array:
        D = x_BTD.shape[-1]
        if self.activation == "swiglu":
            W_1, W_3, W_2 = (
                nn.Dense(n, use_bias=False, name=f"W_{i}") for i, n in ((1, self.d_ff), (3, self.d_ff), (2, D))
            )
            return W_2(nn.silu(W_1(x_BTD)) * W_3(x_BTD))
        φ = nn.relu if self.activation == "relu" else gelu
        return nn.Dense(D, name="W_2")(φ(nn.Dense(self.d_ff, name="W_1")(x_BTD)))


class Block(nn.Module):
    """One layer of a Transformer.

        x ← x + mixer(norm(x));  x ← x + feed_forward(norm(x))         placement = pre
        x ← norm(x + mixer(x));  x ← norm(x + feed_forward(x))         placement = post

    with dropout on what is added.

    Shapes   x_BTD, the mixer's state, lengths_B -> x_BTD, the mixer's state.
    Source   post: Vaswani et al. 2017, arXiv:1706.03762, §3.1, §5.4; pre: Xiong et al. 2020, arXiv:2002.04745.
    """

    mixer: Callable[..., nn.Module]
    d_ff: int
    activation: str
    norm: str
    placement: str
    dropout: float
    train: bool

    @nn.compact
    def __call__(self, x_BTD: Array, state: Any, lengths_B: Array | None) -> tuple[Array, Any]:
        drop = partial(Dropout(self.dropout), train=self.train)
        norm_1, norm_2 = (NORMS[self.norm](name=f"norm_{i}") for i in (1, 2))
        mixer = self.mixer(features=x_BTD.shape[-1], name="mixer")
        feed_forward = FeedForward(self.d_ff, self.activation, name="feed_forward")
        pre = self.placement == "pre"

        mixed = mixer(norm_1(x_BTD) if pre else x_BTD, lengths_B, state=state, train=self.train)
        x_BTD = x_BTD + drop(mixed.y_BTF)
        x_BTD = x_BTD if pre else norm_1(x_BTD)
        x_BTD = x_BTD + drop(feed_forward(norm_2(x_BTD) if pre else x_BTD))
        return x_BTD if pre else norm_2(x_BTD), None if state is None else mixed.state


class TransformerState(NamedTuple):
    """Where each row is, and the states of the mixers, whose second axis is the layer."""

    length_B: Array
    mixers: Any


class Transformer(nn.Module):
    """Blocks on top of each other, over inputs that know their places.

        x ← dropout(positions(x));  n_layers times: x ← block(x);  y = norm(x) if placement = pre, else x

    The mixer is any sequence layer: self-attention, with which this is the Transformer's encoder (causal = false) or
    its decoder without a source (causal = true), or a recurrent layer. All layers are one `scan` over stacked
    parameters, so that compiling takes as long for many as for one; with `remat` a layer is computed again for the
    gradient instead of kept.

    Shapes   x_BTD with D = `features`, lengths_B -> y_BTD, last_BD, state: None, or what follows the given one.
    Raises   UserError for a size below 1, a rate outside [0, 1), an unknown norm, placement or activation, and for
             inputs of another width.
    Source   Vaswani et al. 2017, arXiv:1706.03762; RMSNorm: Zhang & Sennrich 2019, arXiv:1910.07467.
    Differs  Relative positions have a table for each layer, where T5 has one for all.
    """

    mixer: Callable[..., nn.Module]
    features: int
    n_layers: int = 2
    d_ff: int | None = None
    activation: str = "gelu"
    norm: str = "layer"
    placement: str = "pre"
    positions: Callable[..., Positions] = Positions
    dropout: float = 0.0
    remat: bool = False

    def __post_init__(self):
        super().__post_init__()
        for name in ("features", "n_layers"):
            check_positive(name, getattr(self, name))
        if self.d_ff is not None:
            check_positive("d_ff", self.d_ff)
        check_rate("dropout", self.dropout)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("norm", self.norm, NORMS)
        check_choice("placement", self.placement, ("pre", "post"))

    def room(self) -> int | None:
        """The most steps that a state has room for, None for no limit."""
        parts = self.mixer(features=self.features, parent=None), self.positions(parent=None)
        limits = [part.max_length for part in parts if hasattr(part, "max_length")]
        return min(limits) if limits else None

    def init_state(self, batch_size: int) -> TransformerState:
        one = self.mixer(features=self.features, parent=None).bind({}).init_state(batch_size)
        mixers = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], self.n_layers, 1), one)
        return TransformerState(jnp.zeros(batch_size, jnp.int32), mixers)

    @nn.compact
    def __call__(
        self,
        x_BTD: Array,
        lengths_B: Array | None = None,
        *,
        state: TransformerState | None = None,
        train: bool = False,
    ) -> Encoding:
        B, T, _ = x_BTD.shape
        check_lengths(lengths_B, B)
        real_BT = valid_mask(lengths_B, T)
        t_BT = jnp.arange(T)[None] if state is None else state.length_B[:, None] + jnp.arange(T)
        x_BTD = self.positions(name="positions").embed(x_BTD, t_BT)
        require(
            x_BTD.shape[-1] == self.features,
            f"a Transformer of features={self.features} got inputs of width {x_BTD.shape[-1]}, positions included: "
            "they are added to, so the widths must be equal (model.inputs.features)",
        )
        # Padding's inputs and positions may be anything, NaN too.
        x_BTD = jnp.where(real_BT[..., None], x_BTD, 0)
        x_BTD = Dropout(self.dropout)(x_BTD, train=train)
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False) if self.remat else Block,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(1, nn.broadcast),
            out_axes=1,
            length=self.n_layers,
        )
        d_ff = 4 * self.features if self.d_ff is None else self.d_ff
        fields = self.mixer, d_ff, self.activation, self.norm, self.placement, self.dropout, train
        x_BTD, mixers = layers(*fields, name="layers")(x_BTD, None if state is None else state.mixers, lengths_B)
        if self.placement == "pre":
            x_BTD = NORMS[self.norm](name="norm")(x_BTD)
        y_BTD = jnp.where(real_BT[..., None], x_BTD, 0)
        if state is not None:
            n_real_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
            state = TransformerState(state.length_B + n_real_B, mixers)
        return Encoding(y_BTD, last_step(y_BTD, lengths_B), state)

    def step(self, state: TransformerState, x_BD: Array) -> tuple[TransformerState, Array]:
        encoding = self(x_BD[:, None], state=state)
        return encoding.state, encoding.y_BTF[:, 0]
