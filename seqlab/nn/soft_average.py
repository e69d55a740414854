"""The average that soft attention takes, in products and sums that a CPU is quick at.

XLA's product on a CPU reads a left factor that is turned around number by number, and sums along the last axis by
windows. So keys come before queries here, what is turned is the narrower factor, and gradients are written out.
Forward-mode differentiation, which JAX does not offer for such functions, is what `plain` attention is for.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.types import Array


@jax.custom_vjp
def soft_average(scores_BHST: Array, mask_BST: Array, kept_BHST: Array | None, v_BHSK: Array) -> Array:
    """Average the values by the softmax of the scores over the keys, without making the weights.

        e_st = exp(a_st − max_s a_st),   z_t = Σ_s e_st,   y_t = Σ_s e_st m_st v_s / z_t
        da_st = e_st (m_st v_s · d_t − y_t · d_t),   dv_s = Σ_t e_st m_st d_t,   d_t = dy_t / z_t

    with e = 0 where the mask does not let a query look, and m the dropout of the weights, None for none. A query that
    may look at nothing gets zeros.

    Shapes   scores_BHST in float32 at least, mask_BST, kept_BHST, v_BHSK -> y_BHTK in the dtype of v.
    Source   Dao et al. 2022, arXiv:2205.14135, appendix B.2 (the gradient by y · dy).
    """
    return _soft_average(scores_BHST, mask_BST, kept_BHST, v_BHSK)[0]


def _soft_average(a, mask, m, v):
    a = jnp.where(mask[:, None], a, -jnp.inf)
    e = jnp.exp(a - jnp.max(a, 2, keepdims=True, initial=-1e30))
    z = e.sum(2)
    z = jnp.where(z == 0, 1, z)
    y = _turned(v, e if m is None else e * m) / z[..., None]
    return y.astype(v.dtype), (e, m, v, z, y)


def _soft_average_gradient(kept, dy):
    e, m, v, z, y = kept
    d = dy / z[..., None]
    s = _product("bhsk,bhtk->bhst", v, d)
    da = e * ((s if m is None else s * m) - (y * d).sum(-1)[:, :, None])
    dv = _product("bhst,bhtk->bhsk", e if m is None else e * m, d)
    return da, None, None if m is None else jnp.zeros_like(m), dv.astype(v.dtype)


soft_average.defvjp(_soft_average, _soft_average_gradient)


@jax.custom_vjp
def key_products(k_BHSK: Array, q_BHTK: Array) -> Array:
    """k · q of each key and query.

    Shapes   k_BHSK, q_BHTK -> scores_BHST in float32 at least.
    """
    return _product("bhsk,bhtk->bhst", k_BHSK, q_BHTK)


def _key_products_gradient(kept, ds):
    k, q = kept
    dk = _product("bhst,bhtk->bhsk", ds, q)
    return dk.astype(k.dtype), _turned(k, ds).astype(q.dtype)


key_products.defvjp(lambda k, q: (key_products(k, q), (k, q)), _key_products_gradient)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def stretches(z_BHSK: Array, ends: tuple[tuple[int, int], ...]) -> tuple[Array, ...]:
    """Cut stretches of keys, from a first up to before an end, the last one up to the end of all.

    They may overlap, and gradients are summed in place.
    """
    return tuple(z_BHSK[:, :, first:end] for first, end in ends)


def _stretches_gradient(ends, _, dz_of):
    B, H, _, K = dz_of[0].shape
    dz_BHSK = jnp.zeros((B, H, ends[-1][1], K), dz_of[0].dtype)
    for (first, end), dz in zip(ends, dz_of, strict=True):
        dz_BHSK = dz_BHSK.at[:, :, first:end].add(dz)
    return (dz_BHSK,)


stretches.defvjp(lambda z, ends: (stretches(z, ends), None), _stretches_gradient)


def _turned(v_BHSK, e_BHST):
    """Σ_s e_st v_s, _BHTK: turned around after the product, which the barrier keeps the compiler from undoing."""
    return lax.optimization_barrier(_product("bhsk,bhst->bhkt", v_BHSK, e_BHST)).swapaxes(2, 3)


def _product(axes, a, b):
    """Take both factors in the lower of their precisions, and the sum in float32 at least."""
    low = min(a.dtype, b.dtype, key=lambda dtype: jnp.finfo(dtype).bits)
    return jnp.einsum(axes, a.astype(low), b.astype(low), preferred_element_type=jnp.promote_types(low, jnp.float32))
