"""LeNet-5: the convolutional network that read cheques."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.checks import check_choice, check_images, check_positive
from seqlab.nn.filters import Filters
from seqlab.nn.spatial import POOLINGS, pool
from seqlab.types import Array, require

SIDE = 32
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": nn.tanh, "relu": nn.relu}


class LeNet(nn.Module):
    """LeNet-5, up to the layer below its outputs, as a sequence of one vector; or its features where they are seen.

        S2 = pool(φ(C1 * image));  S4 = pool(φ(C3 * S2));  C5 = φ(W S4 + b);  F6 = φ(W C5 + b)

    gives out F6, or with `grid` the places of S4, row by row. The kernels are 5 × 5 and the windows 2 × 2: 6 maps of
    28 × 28 in C1 (156 parameters), 16 of 10 × 10 in C3 (2,416), 120 units in C5 (48,120), 84 in F6. An image smaller
    than 32 × 32 stands in the middle of zeros.

    Shapes   image_BHWC -> x_B1F, the F = `features` units of F6; with `grid` x_BTF with T = 25, the F = `features`
             maps of C3 (16 in the paper).
    Raises   UserError for a bad size, an unknown activation or pooling, an image greater than 32 × 32, and for inputs
             that are no images.
    Source   LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, §II.B.
    Differs  C3 reads every map of S2, where the paper's table I leaves out connections (1,516 parameters); pooling has
             neither coefficient nor bias nor φ of its own, which stands behind C1 and C3 instead; tanh is not scaled
             (1.7159 tanh(2/3 a)). The outputs, radial basis functions there, are the model's own head.
    """

    features: int = 84
    grid: bool = False
    activation: str = "tanh"
    pooling: str = "average"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("features", self.features)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("pooling", self.pooling, POOLINGS)

    @nn.compact
    def __call__(self, image_BHWC: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_images("LeNet", image_BHWC, lengths_B)
        φ, B = ACTIVATIONS[self.activation], len(image_BHWC)
        n_maps = self.features if self.grid else 16
        S2_BHWF = pool(φ(Filters(6, 5, padded=False, name="C1")(_pad(image_BHWC))), self.pooling)
        S4_BHWF = pool(φ(Filters(n_maps, 5, padded=False, name="C3")(S2_BHWF)), self.pooling)
        if self.grid:
            return S4_BHWF.reshape(B, -1, n_maps)
        C5_BF = φ(nn.Dense(120, name="C5")(S4_BHWF.reshape(B, -1)))
        return φ(nn.Dense(self.features, name="F6")(C5_BF))[:, None]


def _pad(image_BHWC: Array) -> Array:
    """The image in the middle of zeros, 32 × 32."""
    _, H, W, _ = image_BHWC.shape
    require(
        max(H, W) <= SIDE,
        f"LeNet reads images of up to {SIDE} × {SIDE}, but these have {H} × {W}: make them smaller, or choose "
        "model/inputs=grid or patches",
    )
    before = (SIDE - H) // 2, (SIDE - W) // 2
    rows, columns = ((n, SIDE - size - n) for n, size in zip(before, (H, W), strict=True))
    return jnp.pad(image_BHWC, ((0, 0), rows, columns, (0, 0)))
