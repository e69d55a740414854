"""Elementwise functions whose derivative is written in terms of their value.

What a derivative names is what the recurrence has to keep for each step. JAX's own σ keeps y and y (1 − y), its tanh
the like; these keep y, which the cell's next product keeps anyway.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.types import Array


@jax.custom_jvp
def sigmoid(a: Array) -> Array:
    """σ(a), with dσ = da y (1 − y)."""
    return lax.logistic(a)


@sigmoid.defjvp
def _sigmoid_jvp(primals, tangents):
    y, d = sigmoid(*primals), tangents[0]
    d = d * y
    return y, d - d * y


@jax.custom_jvp
def tanh(a: Array) -> Array:
    """tanh(a), with dtanh = da (1 − y²)."""
    return lax.tanh(a)


@tanh.defjvp
def _tanh_jvp(primals, tangents):
    y, d = tanh(*primals), tangents[0]
    return y, d - d * y * y


@jax.custom_jvp
def relu(a: Array) -> Array:
    """max(a, 0), with drelu = da sign(y)."""
    return jnp.maximum(a, 0)


@relu.defjvp
def _relu_jvp(primals, tangents):
    y, d = relu(*primals), tangents[0]
    return y, d * jnp.sign(y)


@jax.custom_jvp
def mix(z: Array, old: Array, new: Array) -> Array:
    """(1 − z) ⊙ old + z ⊙ new, with a derivative in z, old and new alone."""
    return (1 - z) * old + z * new


@mix.defjvp
def _mix_jvp(primals, tangents):
    (z, old, new), (dz, dold, dnew) = primals, tangents
    return mix(z, old, new), dold - z * dold + z * dnew - dz * old + dz * new


@jax.custom_jvp
def standardise(a: Array) -> Array:
    """(a − μ) / √(σ² + ε) over the features of a_FB, ε = 1e-6; keeps the value and 1 / √(σ² + ε)."""
    return _standardise(a)[0]


def _standardise(a):
    centred = a - a.mean(0, keepdims=True)
    r = lax.rsqrt(jnp.square(centred).mean(0, keepdims=True) + 1e-6)
    return centred * r, r


@standardise.defjvp
def _standardise_jvp(primals, tangents):
    (y, r), d = _standardise(*primals), tangents[0]
    return y, r * (d - d.mean(0, keepdims=True) - y * (y * d).mean(0, keepdims=True))


@jax.custom_jvp
def gelu(a: Array) -> Array:
    """a Φ(a), Φ by its tanh formula (Hendrycks & Gimpel 2016, arXiv:1606.08415, §2); keeps a alone."""
    return 0.5 * a * (1 + _gelu_tanh(a))


def _gelu_tanh(a):
    return lax.tanh(_GELU * (a + 0.044715 * a**3))


@gelu.defjvp
def _gelu_jvp(primals, tangents):
    # Behind the barrier, tanh is computed again for the derivative: cheaper than to write and read it.
    (a,), (d,) = lax.optimization_barrier(primals), tangents
    t = _gelu_tanh(a)
    slope = 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * _GELU * (1 + 3 * 0.044715 * a * a)
    return gelu(*primals), slope * d


_GELU = math.sqrt(2 / math.pi)
