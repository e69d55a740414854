"""All vectors of a batch as the rows of one matrix, for what treats each of them alike."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
from jax import lax

from seqlab.types import Array


def as_matrix(f: Callable[[Array], Array], x: Array) -> Array:
    """f of each vector of x, made of all of them at once.

    y_…F = f(x_ND)_…F,   N the vectors of x_…D

    The gradient of a kernel or a bias then sums over one axis. Over rows and steps, two axes, XLA on a CPU turns the
    factors of the product around in memory first, and sums by windows: twice and six times the time.

    Shapes   x_…D -> y_…F, and f: x_ND -> y_NF.
    """
    y_NF = f(x.reshape(-1, x.shape[-1]))
    return y_NF.reshape(*x.shape[:-1], y_NF.shape[-1])


def turned(z_ND: Array) -> Array:
    """z, on a CPU behind a copy of its transpose, for a product whose gradient contracts its rows.

    XLA's product there reads a left factor that is turned number by number: for 2048 × 512 and 2048 × 128 it takes 3.7
    ms, and 2.0 ms when the narrower of the two has been copied.
    """
    # The first barrier keeps what makes z from being computed again in the copy, the second keeps the copy.
    barrier = lax.optimization_barrier
    return barrier(barrier(z_ND).T).T if jax.default_backend() == "cpu" else z_ND


@jax.custom_jvp
def product(x_ND: Array, W_DF: Array) -> Array:
    """x W, whose gradient dW = xᵀ dy is taken with the narrower factor turned around in memory first, on a CPU.

    Shapes   x_ND, W_DF -> y_NF.
    """
    return x_ND @ W_DF


@product.defjvp
def _product_jvp(primals, tangents):
    # Written as tangents, so that forward mode works too; what comes of dW is what its transpose, the gradient, does.
    (x_ND, W_DF), (dx_ND, dW_DF), barrier = primals, tangents, lax.optimization_barrier
    if x_ND.shape[1] < W_DF.shape[1] or jax.default_backend() != "cpu":
        of_W_NF = turned(x_ND) @ dW_DF
    else:
        of_W_NF = barrier(barrier(barrier(dW_DF.T) @ x_ND.T).T)
    return product(x_ND, W_DF), dx_ND @ W_DF + of_W_NF


def _as_dot_general(x_ND, W_DF, dimensions, precision=None, preferred_element_type=None):
    return product(x_ND, W_DF)


Dense = partial(nn.Dense, dot_general=_as_dot_general)
