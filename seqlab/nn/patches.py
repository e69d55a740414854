"""An image as a sequence of patches."""

import math

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.checks import check_images, check_positive
from seqlab.nn.matrix import as_matrix
from seqlab.types import Array, require


class Patches(nn.Module):
    """Cut an image into squares, row by row, and map each affinely to the width of the model.

        x = [x_class; W p_1 + b; …; W p_T + b]

    With `class_token`, a learned vector stands before them: pool=first reads what an encoder makes of it. Where a
    patch stands is for the encoder to say (model/positions).

    Shapes   image_BHWC -> x_BTD with T = H W / P² (+ 1 for the class), P = `patch_size` and D = `features`.
    Raises   UserError for a bad size, an image that the patches do not fill, and for inputs that are no images.
    Source   Dosovitskiy et al. 2021, arXiv:2010.11929, §3.1, eq. 1, without E_pos.
    """

    features: int
    patch_size: int = 4
    class_token: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("features", self.features)
        check_positive("patch_size", self.patch_size)

    @nn.compact
    def __call__(self, image_BHWC: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_images("Patches", image_BHWC, lengths_B)
        (B, H, W, C), P = image_BHWC.shape, self.patch_size
        both = math.gcd(H, W)
        nearest = min((n for n in range(1, both + 1) if both % n == 0), key=lambda n: abs(n - P))
        require(
            both % P == 0,
            f"patch_size is {P}, but patches of {P} × {P} do not fill an image of {H} × {W}; the nearest that do are "
            f"{nearest} × {nearest}",
        )
        p_BHWhwC = image_BHWC.reshape(B, H // P, P, W // P, P, C).swapaxes(2, 3)
        x_BTD = as_matrix(nn.Dense(self.features, name="W"), p_BHWhwC.reshape(B, -1, P * P * C))
        if not self.class_token:
            return x_BTD
        x_class_D = self.param("x_class", nn.initializers.zeros_init(), (self.features,))
        return jnp.concatenate([jnp.broadcast_to(x_class_D.astype(x_BTD.dtype), (B, 1, self.features)), x_BTD], 1)
