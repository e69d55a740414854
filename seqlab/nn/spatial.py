"""Images by themselves: correlation and convolution with a kernel that is given, and pooling over windows."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.nn.checks import check_choice, check_positive
from seqlab.types import Array, require

KERNELS: dict[str, np.ndarray] = {
    "identity": np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32),
    "horizontal edges": np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32),
    "vertical edges": np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32),
    "all edges": np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32),
    "sharpen": np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32),
    "blur": np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]], np.float32) / 16,
}
"""Kernels that nobody learned: the derivatives of Sobel, the Laplacian, the image less its Laplacian, a bell."""

POOLINGS: dict[str, Callable[..., Array]] = {"max": jnp.max, "average": jnp.mean, "min": jnp.min}


def correlate(image_BHWC: Array, kernel_hw: Array) -> Array:
    """Lay a kernel on each place of each channel where it fits, and sum what is under it.

    y_ij = Σ_m Σ_n x_{i+m, j+n} k_mn

    Shapes   image_BHWC, kernel_hw -> image_BHWC with H − h + 1 rows and W − w + 1 columns.
    Raises   UserError for a kernel that does not fit into the image.
    Source   Goodfellow, Bengio, Courville 2016, Deep Learning, eq. 9.6. Libraries call this a convolution.
    """
    (_, H, W, C), (h, w) = image_BHWC.shape, kernel_hw.shape
    require(h <= H and w <= W, f"a kernel of {h} × {w} does not fit into an image of {H} × {W}")
    kernel_hw1C = jnp.broadcast_to(jnp.asarray(kernel_hw, image_BHWC.dtype)[..., None, None], (h, w, 1, C))
    axes = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        image_BHWC, kernel_hw1C, (1, 1), "VALID", dimension_numbers=axes, feature_group_count=C
    )


def convolve(image_BHWC: Array, kernel_hw: Array) -> Array:
    """Convolve each channel with a kernel: correlate with the flipped one.

    y_ij = Σ_m Σ_n x_{i+h−1−m, j+w−1−n} k_mn

    Shapes   as `correlate`.
    Raises   UserError as `correlate`.
    Source   Goodfellow, Bengio, Courville 2016, Deep Learning, eq. 9.5, where the image reaches all indices.
    """
    return correlate(image_BHWC, kernel_hw[::-1, ::-1])


def pool(image_BHWC: Array, pooling: str, window: int = 2) -> Array:
    """Give the greatest, mean or least number of each window; the windows lie side by side.

    y_ij = max | mean | min over m, n < window of x_{window·i+m, window·j+n}

    Shapes   image_BHWC -> image_BHWC with H // window rows and W // window columns: what fills no window is left out.
    Raises   UserError for an unknown pooling, a window < 1, and an image smaller than a window.
    """
    check_choice("pooling", pooling, POOLINGS)
    check_positive("window", window)
    B, H, W, C = image_BHWC.shape
    require(window <= min(H, W), f"a window of {window} × {window} does not fit into an image of {H} × {W}")
    H, W = H // window, W // window
    # Not `nn.max_pool`: its gradient, which looks for each window's maximum, takes three times as long on a CPU.
    x_BHhWwC = image_BHWC[:, : H * window, : W * window].reshape(B, H, window, W, window, C)
    return POOLINGS[pooling](x_BHhWwC, (2, 4))
