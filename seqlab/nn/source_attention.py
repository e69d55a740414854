"""Attention to a source, whose keys and values are made once for all steps."""

from typing import NamedTuple

import jax.numpy as jnp

from seqlab.nn.checks import check_lengths
from seqlab.nn.heads import MultiHead
from seqlab.nn.masks import Sight, valid_mask
from seqlab.types import Array


class Memory(NamedTuple):
    """What is kept of a source.

    Shapes   k_BSGK, v_BSGK; valid_BS: which of them are real.
    """

    k_BSGK: Array
    v_BSGK: Array
    valid_BS: Array


def clear_source(y_BSD: Array, lengths_B: Array | None) -> tuple[Array, Array]:
    """The source with zeros for whatever stands in its padding, and valid_BS."""
    B, S, _ = y_BSD.shape
    check_lengths(lengths_B, B)
    valid_BS = jnp.broadcast_to(valid_mask(lengths_B, S), (B, S))
    return jnp.where(valid_BS[..., None], y_BSD, 0), valid_BS


class SourceAttention(MultiHead):
    """Multi-head attention in which each query looks at the whole of its row's source.

        q_h = W_q,h s;   k_h, v_h = W_k,h z, W_v,h z
        y = W_o [y_1, …, y_H],   y_h = softmax(score(q_h, k_h)) v_h

    A source of length 0 gives zeros. The weights are sown as "weights" into the collection "intermediates" for who
    asks for it.

    Shapes   `memory`: z_BSD, lengths_B -> Memory; s_BTD, Memory -> y_BTF.
    Raises   UserError as `MultiHead`.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.2.3; with score = Additive and one head, Bahdanau et al. 2015,
             arXiv:1409.0473, appendix A.1.2.
    Differs  Bahdanau et al. average z itself; here also values are projected, on their way in and on their way out.
    """

    def memory(self, z_BSD: Array, lengths_B: Array | None = None) -> Memory:
        z_BSD, valid_BS = clear_source(z_BSD, lengths_B)
        return Memory(self.split(self.W_k, z_BSD), self.split(self.W_v, z_BSD), valid_BS)

    def __call__(self, s_BTD: Array, memory: Memory, *, train: bool = False) -> Array:
        y_BTF, weights_BHTS = self.look(s_BTD, memory, train=train, asked=self.asked())
        if self.asked():
            self.sow("intermediates", "weights", weights_BHTS)
        return y_BTF

    def look(self, s_BTD: Array, memory: Memory, *, train: bool, asked: bool) -> tuple[Array, Array | None]:
        """Give y_BTF, and weights_BHTS if asked."""
        T, S = s_BTD.shape[1], memory.valid_BS.shape[1]
        sight = Sight(jnp.arange(T)[None], jnp.arange(S)[None], memory.valid_BS)
        k_BSGK, v_BSGK = memory.k_BSGK, memory.v_BSGK
        q_BTHK = self.split(self.W_q, s_BTD)
        y_BTHK, weights_BHTS = self.average(q_BTHK, k_BSGK, v_BSGK, sight, train=train, asked=asked)
        # Nothing was looked at, and so the bias of W_o says nothing.
        y_BTF = jnp.where(memory.valid_BS.any(1)[:, None, None], self.merge(y_BTHK), 0)
        return y_BTF, weights_BHTS
