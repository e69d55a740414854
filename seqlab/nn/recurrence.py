"""The recurrence: one scan that runs any cell's equation, and one derivative that makes it fast.

A cell says its step as an equation over *affine maps*: `affine(name, q)` is W x + U q + b, with x the input of the
step and q whatever of the state is multiplied (h, or r ⊙ h). Everything else is elementwise. So the derivative of
the whole scan splits in two: the maps, which are large matrix products outside any loop, and a linear scan that
knows the elementwise part alone. Transposed by JAX, that is backpropagation through time whose loop carries the
carry's cotangent and nothing else; the gradient of each kernel is one product after it.

Inside the loop arrays are feature-major, h_FB, as in the papers, where a kernel stands to the left of a column: gates
are then contiguous parts of a_GB, and a product with a few rows runs up to twice as fast on a CPU. Outside, and in
the products over all time, they are batch-major, h_BF. See docs/design.md, §5.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.nn.affine import Affine, Kernels, apply, carry_dtype, dense, join, moves
from seqlab.nn.matrix import turned
from seqlab.nn.store import Store
from seqlab.types import Array

Carry = Any
Vectors = Any


class Weights(NamedTuple):
    """What a cell learns: affine maps by name, and small vectors (peepholes, norms) in any tree.

    An equation sees each vector with a last axis of 1, which stands for the batch.
    """

    maps: dict[str, Affine]
    vectors: Vectors


class Given(NamedTuple):
    """What a scan is told besides; nothing here is differentiated.

    Shapes   valid_TB: whether a step is real, None when all are;
             zoneout: None, or a tree like the carry, of masks _TBF (True keeps the old value) or rates _T11;
             drop_BF: what every q is multiplied with, or None.
    """

    valid: Array | None = None
    zoneout: Any = None
    drop: Array | None = None


class AffineFn(Protocol):
    def __call__(self, name: str, q: Array | None = None) -> Array: ...


Equation = Callable[[AffineFn, Vectors, Carry], Carry]


CACHED = 2**18  # numbers, 1 MB: a turned copy that leaves the cache costs more than it saves


def turn(tree: Any) -> Any:
    """The last two axes of every array swapped: batch-major to feature-major, or back."""
    return jax.tree.map(lambda leaf: leaf.swapaxes(-1, -2), tree)


def step(
    equation: Equation,
    kernels: Kernels,
    vectors: Vectors,
    carry: Carry,
    x_DB: Array | None,
    shift: dict[str, Array],
    drop: Array | None,
) -> tuple[Carry, dict[str, Array]]:
    """One step, all feature-major: the new carry, and the q that each map met.

    A map's value is what its kernel gives, if it has one, and its `shift`, if it has one.
    """
    met = {}

    def affine(name: str, q: Array | None = None) -> Array:
        if q is not None:
            met[name] = q = q if drop is None else q * drop
        terms = [apply(kernels[name], x_DB, q)] if name in kernels else []
        return sum(terms, shift[name]) if name in shift else terms[0]

    return equation(affine, jax.tree.map(lambda v: v[..., None], vectors), carry), met


def settle(valid: Array | None, zoneout: Any, old: Carry, new: Carry) -> Carry:
    """The carry that a step leaves behind: zoneout first, then padding, which keeps the old carry.

    Linear in (old, new), so it serves values and tangents alike; `valid` broadcasts against the carry.
    """

    def keep(z, o, n):
        return jnp.where(z, o, n) if z.dtype == bool else z * o + (1 - z) * n

    new = jax.tree.map(lambda o, n: n.astype(o.dtype), old, new)
    if zoneout is not None:
        new = jax.tree.map(keep, zoneout, old, new)
    if valid is not None:
        new = jax.tree.map(lambda o, n: jnp.where(valid, n, o), old, new)
    return new


def output(carry: Carry, valid_B: Array | None, dtype: Any) -> Array:
    """y_BF = h, the last leaf of the carry; zeros in the padding."""
    h_BF = jax.tree.leaves(carry)[-1].T.astype(dtype)
    return h_BF if valid_B is None else jnp.where(valid_B[:, None], h_BF, jnp.zeros((), dtype))


def _prepare(weights, x_BTD, given):
    """What the loops of a run read: kernels, and by step (x, shift, valid, zoneout), feature-major.

    On the CPU the input's product runs inside the loop, where writing and reading it again costs more than it saves;
    elsewhere it is one large product ahead of the loop, and what is left inside is shifted by it.
    """
    valid_zoneout = given.valid, turn(given.zoneout)
    if jax.default_backend() == "cpu":
        return join(weights.maps), (x_BTD.transpose(1, 2, 0), {}, *valid_zoneout)
    ahead = {name: Affine(m.W, None, m.b) for name, m in weights.maps.items() if m.W is not None}
    inside = {name: m if m.W is None else Affine(None, m.U, None) for name, m in weights.maps.items()}
    x_DN = x_BTD.reshape(-1, x_BTD.shape[-1]).T
    shift = {
        name: apply(kernel, x_DN, None).reshape(-1, *x_BTD.shape[:2]).transpose(2, 0, 1)
        for name, kernel in join(ahead).items()
    }
    return join({name: m for name, m in inside.items() if m.U is not None}), (None, shift, *valid_zoneout)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def recurrence(
    equation: Equation, reverse: bool, weights: Weights, carry: Carry, x_BTD: Array, given: Given
) -> tuple[Carry, Array]:
    """Run an equation along time, from the end if `reverse`.

        a_t[name] = W[name] x_t + U[name] q_t + b[name]
        carry_t = equation(a_t, carry_{t−1}),  y_t = h_t, the last leaf of the carry

    Shapes   carry of leaves _BF, x_BTD -> final carry, y_BTF. The carry is float32 (float64 for float64 parameters);
             y has the dtype of the parameters.
    """
    dtype = jax.tree.leaves(weights.maps)[0].dtype
    drop_FB = turn(given.drop)
    kernels, xs = _prepare(weights, x_BTD, given)

    def body(carry, per_step):
        x_DB, shift, valid_B, zoneout = per_step
        new, _ = step(equation, kernels, weights.vectors, carry, x_DB, shift, drop_FB)
        new = settle(valid_B, zoneout, carry, new)
        return new, output(new, valid_B, dtype)

    final, y_TBF = lax.scan(body, turn(carry), xs, reverse=reverse)
    return turn(final), y_TBF.swapaxes(0, 1)


@partial(recurrence.defjvp, symbolic_zeros=True)
def _recurrence_jvp(equation, reverse, primals, tangents):
    weights, carry, x_BTD, given = primals
    dweights, dcarry, dx_BTD, _ = tangents
    dtype = jax.tree.leaves(weights.maps)[0].dtype
    drop_FB = turn(given.drop)
    kernels, xs = _prepare(weights, x_BTD, given)
    store = Store(jax.tree.leaves((weights, kernels, drop_FB)))
    # Where the maps' tangents come in: every map has a shift.
    zeros = {name: jnp.zeros((_n_outputs(m), x_BTD.shape[0]), carry_dtype(dtype)) for name, m in weights.maps.items()}

    def body(carry, per_step):
        x_DB, shift, valid_B, zoneout = per_step

        def bare(carry, shift, vectors):
            return step(equation, kernels, vectors, carry, x_DB, shift, drop_FB)

        new, linear, met = jax.linearize(bare, carry, zeros | shift, weights.vectors, has_aux=True)
        settled = settle(valid_B, zoneout, carry, new)
        y_BF = output(settled, valid_B, dtype)
        turned = {id(q): q.T.astype(dtype) for q in met.values()}
        return settled, store.put((linear, {name: turned[id(q)] for name, q in met.items()}), per_step, y_BF)

    final, kept = lax.scan(body, turn(carry), xs, reverse=reverse)
    y_TBF, (_, met) = kept[0], store.get(xs, kept)
    x_TBD, dx_TBD = x_BTD.swapaxes(0, 1), dx_BTD.swapaxes(0, 1) if moves(dx_BTD) else None
    da = {
        name: _kernel_tangents(m, dweights.maps[name], x_TBD, dx_TBD, met.get(name)) for name, m in weights.maps.items()
    }
    dvectors = dense(dweights.vectors)
    # A bias's tangent is added in the loop, since its transpose, a sum over rows, costs least while da is in the cache.
    db = {name: dm.b[:, None].astype(carry_dtype(dtype)) for name, dm in dweights.maps.items() if moves(dm.b)}

    def tangent(dcarry, per_step):
        da, xs, kept = per_step
        _, _, valid_B, zoneout = xs
        linear, _ = store.get(xs, kept)
        da = {name: d.T + db[name] if name in db else d.T for name, d in da.items()}
        dnew = settle(valid_B, zoneout, dcarry, linear(dcarry, da, dvectors))
        return dnew, output(dnew, valid_B, dtype)

    dfinal, dy_TBF = lax.scan(tangent, turn(dense(dcarry)), (da, xs, kept), reverse=reverse)
    return (turn(final), y_TBF.swapaxes(0, 1)), (turn(dfinal), dy_TBF.swapaxes(0, 1))


def _n_outputs(m):
    return (m.U if m.W is None else m.W).shape[1]


def _kernel_tangents(m, dm, x_TBD, dx_TBD, q_TBF):
    """The tangent of Wᵀ x + Uᵀ q over all time, da_TBG, but for what reaches it through q.

    Products of matrices with a row for each step of each sequence; transposed, the gradients of the kernels.
    """
    T, B = x_TBD.shape[:2]
    dtype = (m.U if m.W is None else m.W).dtype
    da = jnp.zeros((T * B, _n_outputs(m)), carry_dtype(dtype))
    for z, w in ((x_TBD, dm.W), (dx_TBD, m.W), (q_TBF, dm.U)):
        if z is not None and moves(w):
            z_NF = z.reshape(T * B, -1).astype(dtype)
            da += ((turned(z_NF) if z_NF.size <= CACHED else z_NF) @ w).astype(da.dtype)
    return da.reshape(T, B, -1)
