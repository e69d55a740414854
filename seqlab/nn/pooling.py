"""Pooling: from what an encoder gives at each step to one vector a row.

A pool maps (encoding, lengths_B) -> z_BF. It looks at valid steps only; a row of length 0 gives zeros.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.masks import valid_mask
from seqlab.nn.matrix import as_matrix
from seqlab.types import Array, Encoding, require


class LastPool(nn.Module):
    """Take the output once the whole row has been read.

    z = y_T, T the row's length; of a bidirectional encoder the last output of both directions

    Shapes   Encoding, lengths_B -> z_BF.
    """

    def __call__(self, encoding: Encoding, lengths_B: Array | None = None) -> Array:
        return encoding.last_BF


class FirstPool(nn.Module):
    """Take the output at the first step, where a class token stands.

    z = y_1

    Shapes   Encoding, lengths_B -> z_BF.
    Source   Devlin et al. 2019, arXiv:1810.04805, §3; of patches, Dosovitskiy et al. 2021, arXiv:2010.11929, eq. 4.
    """

    def __call__(self, encoding: Encoding, lengths_B: Array | None = None) -> Array:
        return jnp.where(valid_mask(lengths_B, encoding.y_BTF.shape[1])[:, :1], encoding.y_BTF[:, 0], 0)


class MeanPool(nn.Module):
    """Average the outputs over the valid steps.

    z = 1/T Σ_t y_t

    Shapes   Encoding, lengths_B -> z_BF.
    """

    def __call__(self, encoding: Encoding, lengths_B: Array | None = None) -> Array:
        mask_BT = valid_mask(lengths_B, encoding.y_BTF.shape[1])
        a_BT = mask_BT / jnp.maximum(mask_BT.sum(axis=1, keepdims=True), 1)
        return _weighted_sum(a_BT, encoding.y_BTF, mask_BT)


class MaxPool(nn.Module):
    """Take each feature's greatest output over the valid steps.

    z_f = max_t y_tf

    Shapes   Encoding, lengths_B -> z_BF.
    Source   Collobert et al. 2011, Natural Language Processing (Almost) from Scratch, eq. 7.
    """

    def __call__(self, encoding: Encoding, lengths_B: Array | None = None) -> Array:
        mask_BT = valid_mask(lengths_B, encoding.y_BTF.shape[1])
        z_BF = jnp.max(encoding.y_BTF, axis=1, where=mask_BT[..., None], initial=-jnp.inf)
        return jnp.where(mask_BT.any(axis=1, keepdims=True), z_BF, 0)


class AttentionPool(nn.Module):
    """Average the outputs with weights that the outputs themselves ask for.

    e_t = vᵀ tanh(W y_t + b)
    a_t = exp(e_t) / Σ_s exp(e_s)
    z   = Σ_t a_t y_t

    Shapes   Encoding, lengths_B -> z_BF; W is F × `features`. The weights a_BT are sown into "intermediates".
    Raises   UserError for a bad size.
    Source   Yang et al. 2016, Hierarchical Attention Networks for Document Classification, eq. 5–7;
             the additive score is Bahdanau, Cho, Bengio 2015, §A.1.2, there with the decoder's state in it.
    Differs  The softmax runs over the valid steps only, in float32.
    """

    features: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.features, int) and self.features >= 1,
            f"AttentionPool got features {self.features!r}; expected an integer of at least 1.",
        )

    @nn.compact
    def __call__(self, encoding: Encoding, lengths_B: Array | None = None) -> Array:
        mask_BT = valid_mask(lengths_B, encoding.y_BTF.shape[1])
        y_BTF = jnp.where(mask_BT[..., None], encoding.y_BTF, 0)
        u_BTF = jnp.tanh(as_matrix(nn.Dense(self.features, name="W"), y_BTF))
        e_BT = nn.Dense(1, use_bias=False, name="v")(u_BTF)[..., 0]
        a_BT = _masked_softmax(e_BT, mask_BT)
        self.sow("intermediates", "a_BT", a_BT)
        return _weighted_sum(a_BT, y_BTF, mask_BT)


def _masked_softmax(e_BT: Array, mask_BT: Array) -> Array:
    """Softmax over the steps where the mask holds, in float32 at least; zeros in a row where it holds nowhere."""
    e_BT = e_BT.astype(jnp.promote_types(e_BT.dtype, jnp.float32))
    # The least finite number, not -inf: a row without valid steps makes no NaN even on the way.
    a_BT = jax.nn.softmax(jnp.where(mask_BT, e_BT, jnp.finfo(e_BT.dtype).min), axis=1)
    return jnp.where(mask_BT, a_BT, 0)


def _weighted_sum(a_BT: Array, y_BTF: Array, mask_BT: Array) -> Array:
    """Σ_t a_t y_t over the steps where the mask holds, summed in the dtype of the weights, returned in that of y."""
    return jnp.sum(a_BT[..., None] * y_BTF, axis=1, where=mask_BT[..., None]).astype(y_BTF.dtype)
