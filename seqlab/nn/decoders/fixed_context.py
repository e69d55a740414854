"""Recurrent decoders that know one vector of the source."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.bridge import TanhBridge
from seqlab.nn.masks import valid_mask
from seqlab.types import Array, Encoding


class FixedState(NamedTuple):
    """The layer's state, and the context c_BF if every step sees it."""

    layer: Any
    c_BF: Array | None


class FixedContext(nn.Module):
    """A recurrent layer that starts from what the encoder has read in the end.

        s_0 = bridge(source);   s_t = layer(s_{t−1}, x_t);   gives out s_t
        with `context`:         s_t = layer(s_{t−1}, [x_t; c]);   gives out [s_t; c],   c = the encoder's last output

    Shapes   start: source, lengths_B -> state; x_BTD, lengths_B, state -> y_BTF, last_BF, state.
    Raises   UserError as its layer and its bridge.
    Source   Sutskever et al. 2014, arXiv:1409.3215, §2; with `context` Cho et al. 2014, arXiv:1406.1078, §2.2.
    Differs  Cho et al. give out x_t besides, and c there is tanh(V h_T).
    """

    layer: Callable[..., nn.Module]
    features: int
    bridge: Callable[[], nn.Module] = TanhBridge
    context: bool = False

    def setup(self):
        self.core, self.cross = self.layer(features=self.features), self.bridge()

    def start(self, source: Encoding, lengths_B: Array | None = None) -> FixedState:
        state = self.cross(source, self.core.init_state(source.last_BF.shape[0]))
        return FixedState(state, source.last_BF if self.context else None)

    def room(self) -> int | None:
        return None

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: FixedState, train: bool = False
    ) -> Encoding:
        if state.c_BF is None:
            encoding = self.core(x_BTD, lengths_B, state=state.layer, train=train)
            return encoding.replace(state=FixedState(encoding.state, None))
        B, T, _ = x_BTD.shape
        c_BTF = jnp.broadcast_to(state.c_BF[:, None], (B, T, state.c_BF.shape[-1]))
        encoding = self.core(beside(x_BTD, c_BTF), lengths_B, state=state.layer, train=train)
        real_BT = valid_mask(lengths_B, T)
        some_B1 = real_BT[:, :1]
        return Encoding(
            beside(encoding.y_BTF, jnp.where(real_BT[..., None], c_BTF, 0)),
            beside(encoding.last_BF, jnp.where(some_B1, state.c_BF, 0)),
            FixedState(encoding.state, state.c_BF),
        )

    def step(self, state: FixedState, x_BD: Array) -> tuple[FixedState, Array]:
        c_BF = state.c_BF
        layer, y_BF = self.core.step(state.layer, x_BD if c_BF is None else beside(x_BD, c_BF))
        return FixedState(layer, c_BF), y_BF if c_BF is None else beside(y_BF, c_BF)


def beside(a: Array, b: Array) -> Array:
    """[a; b], in the dtype of a."""
    return jnp.concatenate([a, b.astype(a.dtype)], -1)
