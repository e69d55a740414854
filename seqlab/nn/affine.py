"""The affine maps of a recurrence: all of a step that is a matrix product."""

from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from seqlab.types import Array


class Affine(NamedTuple):
    """An affine map W x + U q + b; a part that the map does not have is None.

    Shapes   W_DG, U_FG, b_G, with G the outputs of the map.
    """

    W: Array | None
    U: Array | None
    b: Array | None


class Kernel(NamedTuple):
    """An affine map made ready for a loop: beside its parts, `joined` = [W, U, b]ᵀ, so that a step is one product."""

    parts: Affine
    joined: Array


Kernels = dict[str, Kernel]


def carry_dtype(dtype: Any) -> Any:
    """float32 for every dtype of the parameters, but float64 for float64."""
    return jnp.promote_types(dtype, jnp.float32)


def join(maps: dict[str, Affine]) -> Kernels:
    """Every map made ready for a loop."""

    def one(m: Affine) -> Kernel:
        parts = [m.W, m.U, None if m.b is None else m.b[None]]
        return Kernel(m, jnp.concatenate([part for part in parts if part is not None]).T)

    return {name: one(m) for name, m in maps.items()}


@jax.custom_jvp
def apply(kernel: Kernel, x_DB: Array | None, q_FB: Array | None) -> Array:
    """a_GB = Wᵀ x + Uᵀ q + b of the parts that are there, multiplied in their dtype and summed in float32."""
    (W, U, b), joined = kernel
    n_rows = next(z for z in (x_DB, q_FB) if z is not None).shape[1]
    columns = [x_DB if W is not None else None, q_FB if U is not None else None]
    columns.append(jnp.ones((1, n_rows)) if b is not None else None)
    z_ZB = jnp.concatenate([z.astype(joined.dtype) for z in columns if z is not None])
    return jnp.matmul(joined, z_ZB, preferred_element_type=carry_dtype(joined.dtype))


@partial(apply.defjvp, symbolic_zeros=True)
def _apply_jvp(primals, tangents):
    """By parts, so that the transpose with respect to q multiplies with U alone, as it lies in memory."""
    (kernel, x_DB, q_FB), (dkernel, dx_DB, dq_FB) = primals, tangents
    a_GB, dtype = apply(*primals), kernel.joined.dtype
    m, dm = kernel.parts, dkernel.parts
    terms = [
        lax.dot_general(w, z.astype(dtype), (((0,), (0,)), ((), ()))).astype(a_GB.dtype)
        for w, z in ((dm.W, x_DB), (m.W, dx_DB), (dm.U, q_FB), (m.U, dq_FB))
        if moves(w) and moves(z)
    ]
    if moves(dm.b):
        terms.append(jnp.broadcast_to(dm.b[:, None].astype(a_GB.dtype), a_GB.shape))
    return a_GB, reduce(add, terms) if terms else jnp.zeros_like(a_GB)


def moves(tangent: Any) -> bool:
    """Whether a tangent is there and is not a symbolic zero."""
    return tangent is not None and not isinstance(tangent, SymbolicZero)


def dense(tangents: Any) -> Any:
    """A tree of tangents with its symbolic zeros made real."""

    def one(t: Any) -> Array:
        return jnp.zeros(t.shape, t.dtype) if isinstance(t, SymbolicZero) else t

    return jax.tree.map(one, tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
