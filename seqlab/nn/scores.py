"""Score functions: how well a key fits a query.

A score is a module that maps (q_BTHK, k_BSHK) -> scores_BHTS; its equation is the pure function of the same name.
"""

import math

import flax.linen as nn
import jax.numpy as jnp

from seqlab.types import Array


def dot(q_BTHK: Array, k_BSHK: Array) -> Array:
    """q · k."""
    return jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK)


def scaled_dot(q_BTHK: Array, k_BSHK: Array) -> Array:
    """q · k / √K."""
    return dot(q_BTHK * (1 / math.sqrt(q_BTHK.shape[-1])), k_BSHK)


def general(q_BTHK: Array, k_BSHK: Array, W_HKK: Array) -> Array:
    """qᵀ W k."""
    return dot(jnp.einsum("bthk,hkj->bthj", q_BTHK, W_HKK), k_BSHK)


def additive(q_BTHK: Array, k_BSHK: Array, v_HK: Array) -> Array:
    """vᵀ tanh(q + k)."""
    hidden_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
    return jnp.einsum("btshk,hk->bhts", hidden_BTSHK, v_HK)


class Dot(nn.Module):
    """Dot product.

    Source   Luong et al. 2015, arXiv:1508.04025, §3.1, "dot".
    """

    def __call__(self, q_BTHK: Array, k_BSHK: Array) -> Array:
        return dot(q_BTHK, k_BSHK)


class ScaledDot(nn.Module):
    """Dot product over the root of the width, so that its variance does not grow with it.

    Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
    """

    def __call__(self, q_BTHK: Array, k_BSHK: Array) -> Array:
        return scaled_dot(q_BTHK, k_BSHK)


class General(nn.Module):
    """Bilinear form, of each head its own.

    Source   Luong et al. 2015, arXiv:1508.04025, §3.1, "general".
    """

    @nn.compact
    def __call__(self, q_BTHK: Array, k_BSHK: Array) -> Array:
        H, K = q_BTHK.shape[-2:]
        W_HKK = self.param("W", nn.initializers.lecun_normal(batch_axis=0), (H, K, K), jnp.float32)
        return general(q_BTHK, k_BSHK, W_HKK.astype(q_BTHK.dtype))


class Additive(nn.Module):
    """One hidden layer, of each head its own.

    vᵀ tanh(W s + U h)    with q = W s and k = U h, the projections of the layer around it

    So U h, which no query changes, is computed once for each key, and not once for each query.

    Source   Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.
    """

    @nn.compact
    def __call__(self, q_BTHK: Array, k_BSHK: Array) -> Array:
        H, K = q_BTHK.shape[-2:]
        v_HK = self.param("v", nn.initializers.normal(1 / math.sqrt(K)), (H, K), jnp.float32)
        return additive(q_BTHK, k_BSHK, v_HK.astype(q_BTHK.dtype))
