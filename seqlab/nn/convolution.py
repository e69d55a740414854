"""A small convolutional network, whose features stay where they are seen."""

import flax.linen as nn

from seqlab.nn.checks import check_choice, check_images, check_positive
from seqlab.nn.filters import Filters
from seqlab.nn.spatial import POOLINGS, pool
from seqlab.types import Array, require


class ConvolutionGrid(nn.Module):
    """Convolve and pool, block after block, and read the places row by row.

        x ← pool(relu(K * x + b))    `n_blocks` times

    The image keeps its size under a convolution (zeros around it), and a pooling over windows of 2 × 2 halves it; an
    odd last row or column is left out.

    Shapes   image_BHWC -> x_BTF with T = (H / 2ⁿ) (W / 2ⁿ), rounded down, n = `n_blocks`, and F = `features`.
    Raises   UserError for a bad size, an unknown pooling, an image that cannot be halved so often, and for inputs that
             are no images.
    Source   the grid of annotation vectors: Xu et al. 2015, arXiv:1502.03044, §3.1.1.
    """

    features: int
    n_blocks: int = 2
    kernel: int = 3
    pooling: str = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("features", "n_blocks", "kernel"):
            check_positive(name, getattr(self, name))
        check_choice("pooling", self.pooling, POOLINGS)

    @nn.compact
    def __call__(self, image_BHWC: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_images("ConvolutionGrid", image_BHWC, lengths_B)
        B, H, W, _ = image_BHWC.shape
        most = min(H, W).bit_length() - 1
        require(
            self.n_blocks <= most,
            f"n_blocks is {self.n_blocks}, and each of them halves the image, but one of {H} × {W} can be halved "
            f"{most} times",
        )
        x_BHWF = image_BHWC
        for n in range(self.n_blocks):
            K = Filters(self.features, self.kernel, name=f"K_{n}")
            x_BHWF = pool(nn.relu(K(x_BHWF)), self.pooling)
        return x_BHWF.reshape(B, -1, self.features)
