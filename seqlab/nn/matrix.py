"""All vectors of a batch as the rows of one matrix, for what treats each of them alike."""

from collections.abc import Callable

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
