"""The recurrence: one scan that runs any cell's equation, and one derivative that makes it fast.

A cell says its step as an equation over *affine maps*: `affine(name, q)` is x W + q U + b, with x the input of the
step and q whatever of the state is multiplied (h, or r ⊙ h). Everything else is elementwise. So the derivative of
the whole scan splits in two: the maps, which are large matrix products outside any loop, and a linear scan that
knows the elementwise part alone. Transposed by JAX, that is backpropagation through time whose loop carries the
carry's cotangent and nothing else; the gradient of each kernel is one product after it. See docs/design.md, §5.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from seqlab.types import Array

Carry = Any
Vectors = Any


class Affine(NamedTuple):
    """An affine map x W + q U + b; a part that the map does not have is None.

    Shapes   W_DG, U_FG, b_G, with G the outputs of the map.
    """

    W: Array | None
    U: Array | None
    b: Array | None


class Weights(NamedTuple):
    """What a cell learns: affine maps by name, and small vectors (peepholes, norms) in any tree."""

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


Kernels = dict[str, tuple[Array, Array]]


def carry_dtype(dtype: Any) -> Any:
    """float32 for every dtype of the parameters, but float64 for float64."""
    return jnp.promote_types(dtype, jnp.float32)


def product(q: Array, U: Array) -> Array:
    """q U, multiplied in the dtype of U and summed in float32."""
    return _product(q, U, U.T)


@jax.custom_jvp
def _product(q: Array, U: Array, U_T: Array) -> Array:
    """The same; its transpose multiplies with U_T as it lies in memory, made once for a whole loop."""
    return jnp.matmul(q.astype(U.dtype), U, preferred_element_type=carry_dtype(U.dtype))


@partial(_product.defjvp, symbolic_zeros=True)
def _product_jvp(primals, tangents):
    (q, U, U_T), (dq, dU, _) = primals, tangents
    y = _product(q, U, U_T)
    terms = _product_tangents(q, U_T, dq, dU)
    return y, reduce(add, terms) if terms else jnp.zeros_like(y)


def _product_tangents(q, U_T, dq, dU):
    """The terms of dq U + q dU, in the narrow dtype, so that the transposed products are narrow too."""
    dtype = U_T.dtype
    terms = []
    if _moves(dq):
        terms.append(lax.dot_general(dq.astype(dtype), U_T, (((dq.ndim - 1,), (1,)), ((), ()))))
    if _moves(dU):
        terms.append(q.astype(dtype) @ dU)
    return [term.astype(carry_dtype(dtype)) for term in terms]


def _moves(tangent):
    return not isinstance(tangent, SymbolicZero)


def _instantiate(tangent):
    return tangent if _moves(tangent) else jnp.zeros(tangent.shape, tangent.dtype)


def inputs(weights: Weights, x: Array) -> dict[str, Array]:
    """x W + b of every map, zeros where it has neither."""

    def one(m: Affine) -> Array:
        if m.W is not None:
            a = product(x, m.W)
        else:
            assert m.U is not None
            a = jnp.zeros((*x.shape[:-1], m.U.shape[-1]), carry_dtype(m.U.dtype))
        return a if m.b is None else a + m.b

    return {name: one(m) for name, m in weights.maps.items()}


def recurrent_kernels(weights: Weights) -> Kernels:
    """U and its transpose, of each map that has one."""
    return {name: (m.U, m.U.T) for name, m in weights.maps.items() if m.U is not None}


def step(equation: Equation, kernels: Kernels, vectors: Vectors, carry: Carry, a: dict[str, Array], drop=None):
    """One step from a = `inputs`: the new carry, and the q that each map met."""
    met = {}

    def affine(name: str, q: Array | None = None) -> Array:
        if q is None:
            return a[name]
        met[name] = q if drop is None else q * drop
        return a[name] + _product(met[name], *kernels[name])

    return equation(affine, vectors, carry), met


def settle(valid: Array | None, zoneout: Any, old: Carry, new: Carry) -> Carry:
    """The carry that a step leaves behind: zoneout first, then padding, which keeps the old carry.

    Linear in (old, new), so it serves values and tangents alike.
    """

    def keep(z, o, n):
        return jnp.where(z, o, n) if z.dtype == bool else z * o + (1 - z) * n

    new = jax.tree.map(lambda o, n: n.astype(o.dtype), old, new)
    if zoneout is not None:
        new = jax.tree.map(keep, zoneout, old, new)
    if valid is not None:
        new = jax.tree.map(lambda o, n: jnp.where(valid[..., None], n, o), old, new)
    return new


def output(carry: Carry, valid: Array | None, dtype: Any) -> Array:
    """y = h, the last leaf of the carry; zeros in the padding."""
    h = jax.tree.leaves(carry)[-1].astype(dtype)
    return h if valid is None else jnp.where(valid[..., None], h, jnp.zeros((), dtype))


def _scan(weights, carry, x_TBD, given, reverse, body):
    """Scan `body(carry, a, per_step)`; returns what `lax.scan` does, and what it scanned over.

    The input's product runs inside the loop on the CPU, where writing and reading it again costs more than it saves,
    and ahead of the loop as one large product elsewhere.
    """
    ahead = inputs(weights, x_TBD) if jax.default_backend() != "cpu" else None

    def with_inputs(carry, per_step):
        x, a, *_ = per_step
        return body(carry, inputs(weights, x) if a is None else a, per_step)

    xs = x_TBD, ahead, given.valid, given.zoneout
    return lax.scan(with_inputs, carry, xs, reverse=reverse), xs


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def recurrence(
    equation: Equation, reverse: bool, weights: Weights, carry: Carry, x_TBD: Array, given: Given
) -> tuple[Carry, Array]:
    """Run an equation along time, from the end if `reverse`.

        a_t[name] = x_t W[name] + q_t U[name] + b[name]
        carry_t = equation(a_t, carry_{t−1}),  y_t = h_t, the last leaf of the carry

    Shapes   x_TBD -> final carry, y_TBF; B stands for any axes. The carry is float32 (float64 for float64
             parameters); y has the dtype of the parameters.
    """
    dtype = jax.tree.leaves(weights.maps)[0].dtype

    kernels = recurrent_kernels(weights)

    def body(carry, a, per_step):
        _, _, valid, zoneout = per_step
        new, _ = step(equation, kernels, weights.vectors, carry, a, given.drop)
        new = settle(valid, zoneout, carry, new)
        return new, output(new, valid, dtype)

    return _scan(weights, carry, x_TBD, given, reverse, body)[0]


@partial(recurrence.defjvp, symbolic_zeros=True)
def _recurrence_jvp(equation, reverse, primals, tangents):
    weights, carry, x_TBD, given = primals
    dweights, dcarry, dx_TBD, _ = tangents
    dtype = jax.tree.leaves(weights.maps)[0].dtype
    kernels = recurrent_kernels(weights)
    store = Store(jax.tree.leaves((weights, kernels, given.drop)))

    def body(carry, a, per_step):
        def bare(carry, a, vectors):
            return step(equation, kernels, vectors, carry, a, given.drop)

        new, linear, met = jax.linearize(bare, carry, a, weights.vectors, has_aux=True)
        _, _, valid, zoneout = per_step
        settled = settle(valid, zoneout, carry, new)
        y = output(settled, valid, dtype)
        return settled, store.put((linear, {name: q.astype(dtype) for name, q in met.items()}), per_step, y)

    (final, kept), xs = _scan(weights, carry, x_TBD, given, reverse, body)
    y_TBF, (_, met) = kept[0], store.get(xs, kept)
    da = {name: _map_tangent(m, dweights.maps[name], x_TBD, dx_TBD, met.get(name)) for name, m in weights.maps.items()}
    dvectors, dcarry = jax.tree.map(_instantiate, (dweights.vectors, dcarry), is_leaf=lambda t: not _moves(t))

    def tangent(dcarry, per_step):
        da, xs, kept = per_step
        _, _, valid, zoneout = xs
        linear, _ = store.get(xs, kept)
        dnew = settle(valid, zoneout, dcarry, linear(dcarry, da, dvectors))
        return dnew, output(dnew, valid, dtype)

    dfinal, dy_TBF = lax.scan(tangent, dcarry, (da, xs, kept), reverse=reverse)
    return (final, y_TBF), (dfinal, dy_TBF)


def _map_tangent(m, dm, x_TBD, dx_TBD, q_TBF):
    """The tangent of x W + q U + b over all time, but for what reaches it through q."""
    terms = [] if m.W is None else _product_tangents(x_TBD, m.W.T, dx_TBD, dm.W)
    if q_TBF is not None and _moves(dm.U):
        terms.append((q_TBF @ dm.U).astype(carry_dtype(dm.U.dtype)))
    if m.b is not None and _moves(dm.b):
        terms.append(dm.b.astype(carry_dtype(dm.b.dtype)))
    n_outputs = next(w for w in m if w is not None).shape[-1]
    total = reduce(add, terms) if terms else jnp.zeros((), carry_dtype(x_TBD.dtype))
    return jnp.broadcast_to(total, (*x_TBD.shape[:-1], n_outputs))


class Store:
    """Puts the arrays of a step's linearisation aside, each one once, and finds them again.

    An array that never changes, or that the scan reads anyway, is not kept a second time.
    """

    def __init__(self, fixed: list[Array]):
        self.fixed = fixed

    def put(self, tree: Any, given: Any, y: Array) -> list[Array]:
        """y and the arrays of `tree` that have to be kept beside it and the `given` ones."""
        leaves, self.treedef = jax.tree.flatten(tree)
        pools = {"fixed": self.fixed, "given": jax.tree.leaves(given), "kept": [y]}
        self.sources = []
        for leaf in leaves:
            found = ((pool, k) for pool, arrays in pools.items() for k, array in enumerate(arrays) if array is leaf)
            if (source := next(found, None)) is None:
                pool = "kept" if isinstance(leaf, jax.core.Tracer) else "fixed"
                source = pool, len(pools[pool])
                pools[pool].append(leaf)
            self.sources.append(source)
        return pools["kept"]

    def get(self, given: Any, kept: list[Array]) -> Any:
        """The tree again, of one step or of all."""
        pools = {"fixed": self.fixed, "given": jax.tree.leaves(given), "kept": kept}
        return jax.tree.unflatten(self.treedef, [pools[pool][k] for pool, k in self.sources])
