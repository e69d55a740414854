"""Learned filters: a convolution as products of matrices."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.types import Array


class Filters(nn.Module):
    """Lay `features` learned kernels on each place of an image, over all its channels.

    y_ij = Σ_m Σ_n K_mn x_{i+m, j+n} + b

    with zeros around the image where `padded`, so that it keeps its size. The parameters are those of flax.linen.Conv.

    On a CPU the windows are written side by side, and one product reads them all: the gradient of XLA's own convolution
    takes 30 times as long there inside of a loop over updates as outside of it.

    Shapes   x_BHWC -> y_BHWF with F = `features`; without `padded` H − k + 1 rows and W − k + 1 columns, k = `kernel`.
    Source   LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, §II.A; the
             windows: Chellapilla, Puri, Simard 2006, High Performance Convolutional Neural Networks, §3.
    """

    features: int
    kernel: int
    padded: bool = True

    @nn.compact
    def __call__(self, x_BHWC: Array) -> Array:
        k, C = self.kernel, x_BHWC.shape[-1]
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (k, k, C, self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        x_BHWC, K_kkCF, b_F = nn.dtypes.promote_dtype(x_BHWC, kernel, bias)
        correlate: Any = _by_windows if jax.default_backend() == "cpu" else _by_library
        return correlate(x_BHWC, K_kkCF, self.padded) + b_F


def _by_windows(x_BHWC: Array, K_kkCF: Array, padded: bool) -> Array:
    k, _, C, F = K_kkCF.shape
    if padded:
        around = ((k - 1) // 2, k // 2)
        x_BHWC = jnp.pad(x_BHWC, ((0, 0), around, around, (0, 0)))
    H, W = x_BHWC.shape[1] - k + 1, x_BHWC.shape[2] - k + 1
    windows = [x_BHWC[:, m : m + H, n : n + W] for m in range(k) for n in range(k)]
    return jnp.concatenate(windows, -1) @ K_kkCF.reshape(k * k * C, F)


def _by_library(x_BHWC: Array, K_kkCF: Array, padded: bool) -> Array:
    axes = ("NHWC", "HWIO", "NHWC")
    padding = "SAME" if padded else "VALID"
    return jax.lax.conv_general_dilated(x_BHWC, K_kkCF, (1, 1), padding, dimension_numbers=axes)
