"""A recurrent decoder that looks at the source before each step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.bridge import TanhBridge
from seqlab.nn.decoders.fixed_context import beside
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.source_attention import Memory, SourceAttention
from seqlab.types import Array, Encoding


class AttentionState(NamedTuple):
    """The layer's state, and what is kept of the source."""

    layer: Any
    memory: Memory


def hidden(state: Any, dtype: Any) -> Array:
    """s_BF of a recurrent layer's state: its last leaf, which of a stack is the top layer's."""
    return jax.tree.leaves(state)[-1].astype(dtype)


class SoftAttention(nn.Module):
    """A recurrent layer that reads, besides its input, an average of the source, weighted by what it knows so far.

        s_0 = bridge(source)
        c_t = attention(s_{t−1}, source);   s_t = layer(s_{t−1}, [x_t; c_t]);   gives out [s_t; c_t]

    The weights are sown as "weights" into the collection "intermediates" for who asks for it.

    Shapes   start: source, lengths_B -> state; x_BTD, lengths_B, state -> y_BTF, last_BF, state; weights_BHTS.
    Raises   UserError as its layer, its bridge and its attention.
    Source   Bahdanau et al. 2015, arXiv:1409.0473, §3.1 and appendix A.2.2; with score = General or Dot the contexts
             of Luong et al. 2015, arXiv:1508.04025, but from s_{t−1}.
    Differs  A mask that the layer would draw once a row (recurrent and variational dropout) is drawn at each step.
    """

    layer: Callable[..., nn.Module]
    features: int
    source_attention: Callable[..., nn.Module] = SourceAttention
    bridge: Callable[[], nn.Module] = TanhBridge

    def setup(self):
        self.core, self.cross = self.layer(features=self.features), self.bridge()
        self.attention = self.source_attention(features=self.features)

    def start(self, source: Encoding, lengths_B: Array | None = None) -> AttentionState:
        state = self.cross(source, self.core.init_state(source.last_BF.shape[0]))
        return AttentionState(state, self.attention.memory(source.y_BTF, lengths_B))

    def room(self) -> int | None:
        return None

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: AttentionState, train: bool = False
    ) -> Encoding:
        real_BT = None if lengths_B is None else valid_mask(lengths_B, x_BTD.shape[1])
        asked = self.attention.asked()

        def body(decoder: SoftAttention, layer: Any, per_step: tuple[Array, Array | None]) -> Any:
            return decoder.advance(layer, state.memory, *per_step, train=train, asked=asked)

        scan = nn.scan(
            body, variable_broadcast="params", split_rngs={"params": False, "dropout": True}, in_axes=1, out_axes=(1, 2)
        )
        layer, (y_BTF, weights_BHTS) = scan(self, state.layer, (x_BTD, real_BT))
        if asked:
            self.sow("intermediates", "weights", weights_BHTS)
        return Encoding(y_BTF, last_step(y_BTF, lengths_B), AttentionState(layer, state.memory))

    def step(self, state: AttentionState, x_BD: Array) -> tuple[AttentionState, Array]:
        layer, (y_BF, _) = self.advance(state.layer, state.memory, x_BD, None, train=False, asked=False)
        return AttentionState(layer, state.memory), y_BF

    def advance(
        self, layer: Any, memory: Memory, x_BD: Array, real_B: Array | None, *, train: bool, asked: bool
    ) -> tuple[Any, tuple[Array, Array | None]]:
        """One step: the layer's state, [s_t; c_t], and weights_BHS if asked."""
        s_BF = hidden(layer, x_BD.dtype)
        c_B1F, weights_BH1S = self.attention.look(s_BF[:, None], memory, train=train, asked=asked)
        layer, y_BF = advance(self.core, layer, beside(x_BD, c_B1F[:, 0]), c_B1F[:, 0], real_B, train)
        return layer, (y_BF, weights_BH1S[:, :, 0] if asked else None)


def advance(
    core: nn.Module, layer: Any, x_BD: Array, c_BF: Array, real_B: Array | None, train: bool
) -> tuple[Any, Array]:
    """One step of a recurrent layer, and [s_t; c_t]; a step past the row's length leaves the state and gives zeros."""
    n_B = None if real_B is None else real_B.astype(jnp.int32)
    encoding = core(x_BD[:, None], n_B, state=layer, train=train)
    c_BF = c_BF if real_B is None else jnp.where(real_B[:, None], c_BF, 0)
    layer = jax.tree.map(lambda old, new: new.astype(old.dtype), layer, encoding.state)
    return layer, beside(encoding.y_BTF[:, 0], c_BF)
