"""The Transformer: blocks that mix over time, then think at each step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.nn.checks import check_choice, check_lengths, check_positive
from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.matrix import Dense, as_matrix
from seqlab.nn.pointwise import gelu
from seqlab.nn.positions import Positions
from seqlab.nn.self_attention import known_empty
from seqlab.types import Array, Encoding, require

NORMS: dict[str, Callable[..., nn.Module]] = {"layer": partial(nn.LayerNorm, epsilon=1e-5), "rms": nn.RMSNorm}
ACTIVATIONS = ("relu", "gelu", "swiglu")


class FeedForward(nn.Module):
    """What a block does at each step.

        y = W_2 φ(W_1 x)              relu, gelu
        y = W_2 (silu(W_1 x) ⊙ W_3 x) swiglu

    Shapes   x_ND -> y_ND, with `d_ff` numbers inside; biases are left out of the formulas, and of swiglu.
    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 2; Shazeer 2020, arXiv:2002.05202, eq. 6.
    """

    d_ff: int
    activation: str

    @nn.compact
    def __call__(self, x_ND: Array) -> Array:
        D = x_ND.shape[-1]
        if self.activation == "swiglu":
            W_1, W_3, W_2 = (
                Dense(n, use_bias=False, name=f"W_{i}") for i, n in ((1, self.d_ff), (3, self.d_ff), (2, D))
            )
            return W_2(nn.silu(W_1(x_ND)) * W_3(x_ND))
        φ = nn.relu if self.activation == "relu" else gelu
        return Dense(D, name="W_2")(φ(Dense(self.d_ff, name="W_1")(x_ND)))


class Block(nn.Module):
    """One layer of a Transformer: the mixer, then attention to the source if there is one, then the feed-forward.

        x ← x + f(norm(x))    for each f of them, placement = pre
        x ← norm(x + f(x))                        placement = post

    with dropout on what is added.

    Shapes   x_BTD, the mixer's state, the memory of the source, lengths_B -> x_BTD, the mixer's state.
    Source   post: Vaswani et al. 2017, arXiv:1706.03762, §3.1, §5.4; pre: Xiong et al. 2020, arXiv:2002.04745.
    """

    make_mixer: Callable[..., nn.Module]
    make_source: Callable[..., nn.Module] | None
    features: int
    d_ff: int
    activation: str
    norm: str
    placement: str
    dropout: float

    def setup(self):
        self.mixer = self.make_mixer(features=self.features)
        if self.make_source is not None:
            self.source = self.make_source(features=self.features)
        self.feed_forward = FeedForward(self.d_ff, self.activation)
        self.norms = [NORMS[self.norm](name=f"norm_{n}") for n in range(1, 3 + (self.make_source is not None))]
        self.drop = Dropout(self.dropout)

    def __call__(
        self, x_BTD: Array, state: Any, memory: Any, lengths_B: Array | None, *, train: bool
    ) -> tuple[Array, Any]:
        def over_time(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return lambda x_ND: f(x_ND.reshape(x_BTD.shape)).reshape(x_ND.shape)

        def add(n: int, f: Callable[[Array], Array], x_ND: Array) -> Array:
            norm, drop = self.norms[n], over_time(partial(self.drop, train=train))
            return x_ND + drop(f(norm(x_ND))) if self.placement == "pre" else norm(x_ND + drop(f(x_ND)))

        def mix(x_BTD: Array) -> Array:
            nonlocal state
            encoding = self.mixer(x_BTD, lengths_B, state=state, train=train)
            state = None if state is None else encoding.state
            return encoding.y_BTF

        def ask(x_BTD: Array) -> Array:
            return self.source(x_BTD, memory, train=train)

        # One matrix throughout, for the reason that `as_matrix` gives; what looks along time turns it back.
        x_ND = add(0, over_time(mix), x_BTD.reshape(-1, self.features))
        if self.make_source is not None:
            x_ND = add(1, over_time(ask), x_ND)
        return add(-1, self.feed_forward, x_ND).reshape(x_BTD.shape), state


class TransformerState(NamedTuple):
    """Where each row is, the state of each layer's mixer, and what the layers know of a source, their second axis."""

    length_B: Array
    mixers: tuple[Any, ...]
    memories: Any = None


class Transformer(nn.Module):
    """Blocks on top of each other, over inputs that know their places.

        x ← dropout(positions(x));  n_layers times: x ← block(x);  y = norm(x) if placement = pre, else x

    The mixer is any sequence layer: self-attention, with which this is the Transformer's encoder (causal = false) or
    its decoder without a source (causal = true), or a recurrent layer. All layers are one `scan` over stacked
    parameters, so that compiling takes as long for many as for one; with `remat` a layer is computed again for the
    gradient instead of kept, and with `unroll` each layer is compiled by itself: faster steps on a CPU, by a tenth to a
    fifth, for a compile time that grows with the layers. A single step goes from layer to layer, so that each state is
    changed in its place.

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
    unroll: bool = False

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

    def setup(self):
        self.place, self.drop = self.positions(), Dropout(self.dropout)
        d_ff = 4 * self.features if self.d_ff is None else self.d_ff
        inner = d_ff, self.activation, self.norm, self.placement, self.dropout
        self.layers = Block(self.mixer, self.source_node(), self.features, *inner)
        if self.placement == "pre":
            self.last_norm = NORMS[self.norm]()

    @nn.nowrap
    def source_node(self) -> Callable[..., nn.Module] | None:
        """What attends to a source in each block; a Transformer by itself has none."""
        return None

    def room(self) -> int | None:
        """The most steps that a state has room for, None for no limit."""
        mixer, positions = self.mixer(features=self.features, parent=None), self.positions(parent=None)
        limits = [mixer.room() if hasattr(mixer, "room") else None, getattr(positions, "max_length", None)]
        return min((limit for limit in limits if limit is not None), default=None)

    def init_state(self, batch_size: int) -> TransformerState:
        mixer = self.mixer(features=self.features, parent=None).bind({})
        mixers = tuple(mixer.init_state(batch_size) for _ in range(self.n_layers))
        return TransformerState(np.zeros(batch_size, np.int32), mixers)  # type: ignore[arg-type]

    def over_layers(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """The loop over the layers: body(block, x, of each layer) -> x, of each layer."""
        scan = nn.scan(
            nn.remat(body, prevent_cse=False) if self.remat else body,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=1,
            out_axes=1,
            length=self.n_layers,
            unroll=self.n_layers if self.unroll else 1,
        )
        return partial(scan, self.layers)

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
        # Padding's inputs and positions may be anything, NaN too.
        x_BTD = jnp.where(real_BT[..., None], self._embed(x_BTD, t_BT), 0)
        x_BTD = self.drop(x_BTD, train=train)
        first = state is not None and known_empty(state.length_B)

        def body(block: Block, x_BTD: Array, of_layer: tuple[Any, Any]) -> tuple[Array, Any]:
            mixer, memory = of_layer
            # Made here, so that the mixer knows too that it is empty, and need not look through all its room.
            mixer = block.mixer.init_state(B) if first else mixer
            return block(x_BTD, mixer, memory, lengths_B, train=train)

        stacked = None
        if state is not None and not first:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *state.mixers)
        x_BTD, mixers = self.over_layers(body)(x_BTD, (stacked, None if state is None else state.memories))
        y_BTD = jnp.where(real_BT[..., None], self._leave(x_BTD), 0)
        if state is not None:
            n_real_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
            unstacked = tuple(jax.tree.map(lambda leaf, n=n: leaf[:, n], mixers) for n in range(self.n_layers))
            state = TransformerState(state.length_B + n_real_B, unstacked, state.memories)
        return Encoding(y_BTD, last_step(y_BTD, lengths_B), state)

    def step(self, state: TransformerState, x_BD: Array) -> tuple[TransformerState, Array]:
        x_BTD, mixers = self._embed(x_BD[:, None], state.length_B[:, None]), []
        block, params = self.layers.clone(parent=None), self.layers.variables["params"]
        for n, mixer in enumerate(state.mixers):
            # The barrier makes the compiler cut the parameters ahead of a loop over steps, not in each of them.
            of_layer = lax.optimization_barrier(jax.tree.map(lambda leaf, n=n: leaf[n], params))
            memory = jax.tree.map(lambda leaf, n=n: leaf[:, n], state.memories)
            x_BTD, mixer = block.apply({"params": of_layer}, x_BTD, mixer, memory, None, train=False)
            mixers.append(mixer)
        return TransformerState(state.length_B + 1, tuple(mixers), state.memories), self._leave(x_BTD)[:, 0]

    def _embed(self, x_BTD: Array, t_BT: Array) -> Array:
        x_BTD = self.place.embed(x_BTD, t_BT)
        require(
            x_BTD.shape[-1] == self.features,
            f"a Transformer of features={self.features} got inputs of width {x_BTD.shape[-1]}, positions included: "
            "they are added to, so the widths must be equal (model.inputs.features)",
        )
        return x_BTD

    def _leave(self, x_BTD: Array) -> Array:
        return as_matrix(self.last_norm, x_BTD) if self.placement == "pre" else x_BTD
