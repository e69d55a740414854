"""The Transformer's decoder: blocks that look at the source."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn

from seqlab.nn.source_attention import Memory, SourceAttention
from seqlab.nn.transformer import Block, Transformer, TransformerState
from seqlab.types import Array, Encoding, require


class TransformerDecoder(Transformer):
    """A causal Transformer whose blocks attend to the source between their mixer and their feed-forward.

    placement = pre:    x ← x + f(norm(x))    for f = mixer, attention to the source, feed-forward

    and otherwise as `Transformer`. The state holds the source's keys and values for each layer.

    Shapes   start: source, lengths_B -> state; x_BTD with D = `features`, lengths_B, state -> y_BTD, last_BD, state.
    Raises   UserError as `Transformer`, for a mixer that is not causal, and for more steps than the state has room for.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.1.
    """

    source_attention: Callable[..., nn.Module] = SourceAttention

    def __post_init__(self):
        super().__post_init__()
        mixer = self.mixer(features=self.features, parent=None)
        require(
            getattr(mixer, "causal", True) and not getattr(mixer, "reverse", False),
            "a decoder's mixer got causal=false or reverse=true, but a step must not depend on those that follow it",
        )

    @nn.nowrap
    def source_node(self) -> Callable[..., nn.Module]:
        return self.source_attention

    def start(self, source: Encoding, lengths_B: Array | None = None) -> TransformerState:
        def body(block: Block, carry: None, of_layer: None) -> tuple[None, Memory]:
            return None, block.source.memory(source.y_BTF, lengths_B)

        _, memories = self.over_layers(body)(None, None)
        return self.init_state(source.y_BTF.shape[0])._replace(memories=memories)

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
    ) -> Encoding:
        room, T = self.room(), x_BTD.shape[1]
        require(
            room is None or room >= T, f"max_length is {room}, but the decoder is to write {T} steps; set a greater one"
        )
        return super().__call__(x_BTD, lengths_B, state=state, train=train)
