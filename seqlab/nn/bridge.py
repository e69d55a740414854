"""Bridges: from what an encoder has read to the first state of a decoder.

A bridge maps (source, state) -> state, where the given state says which leaves of which shapes are wanted.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.types import Encoding, require


class TanhBridge(nn.Module):
    """Make each leaf of the state out of the last output, whatever the widths.

    s_0 = tanh(W last + b)

    Shapes   source, a state of leaves _B… -> a state of the same shapes.
    Raises   UserError for a state of other than real numbers.
    Source   Cho et al. 2014, arXiv:1406.1078, appendix A.1.2; Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2.
    Differs  Cho et al. have no bias; of a bidirectional encoder Bahdanau et al. read the backward half alone.
    """

    @nn.compact
    def __call__(self, source: Encoding, state: Any) -> Any:
        leaves, tree = jax.tree.flatten(state)
        for leaf in leaves:
            real = jnp.issubdtype(leaf.dtype, jnp.floating)
            require(
                real, f"the state has a leaf of {leaf.dtype}, but only the state of a recurrent layer can be bridged"
            )
        made = []
        for n, leaf in enumerate(leaves):
            a_BF = nn.Dense(math.prod(leaf.shape[1:]), name=f"W_{n}")(source.last_BF)
            dtype = jnp.promote_types(leaf.dtype, a_BF.dtype)
            made.append(jnp.tanh(a_BF).reshape(leaf.shape).astype(dtype))
        return jax.tree.unflatten(tree, made)


class CopyBridge(nn.Module):
    """Hand over the encoder's own final state.

    Shapes   source, a state of leaves _B… -> a state of the same shapes.
    Raises   UserError for an encoder whose state has other leaves than the decoder's.
    Source   Sutskever et al. 2014, arXiv:1409.3215, §2.
    """

    def __call__(self, source: Encoding, state: Any) -> Any:
        given, wanted = (str(jax.tree.map(lambda leaf: leaf.shape[1:], tree)) for tree in (source.state, state))
        require(
            given == wanted,
            f"the encoder's final state has a row of the shapes {given}, but the decoder's has {wanted}: make them "
            "equal (direction, cell, features, n_layers) or take model/bridge=tanh",
        )
        return source.state
