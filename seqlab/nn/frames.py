"""Video: each frame read as an image."""

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.checks import check_choice, check_kind, check_lengths, check_positive
from seqlab.nn.masks import valid_mask
from seqlab.types import Array

MERGES = ("mean", "flat")


class FrameInputs(nn.Module):
    """Read each frame by itself, with one network for all, and map what it says to the width of the model.

        x_t = W merge(frame(image_t)) + b    and 0 past the length, whatever the frame there, NaN included

    The frame's network gives the places of an image: merge = mean averages them, flat writes them one after the other.

    Shapes   video_BTHWC, lengths_B -> x_BTF with F = `features`.
    Raises   UserError for a bad size, an unknown merge, inputs that are no video, and as `frame`.
    Source   Donahue et al. 2015, arXiv:1411.4389, §3.
    """

    frame: nn.Module
    features: int
    merge: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("features", self.features)
        check_choice("merge", self.merge, MERGES)

    @nn.compact
    def __call__(self, video_BTHWC: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_kind("FrameInputs", video_BTHWC, "video")
        B, T, *image = video_BTHWC.shape
        check_lengths(lengths_B, B)
        mask_BT1 = valid_mask(lengths_B, T)[..., None]
        # Before the network, or NaN times a zero cotangent would reach its gradient; after it because of b.
        image_BTHWC = jnp.where(mask_BT1[..., None, None], video_BTHWC, 0)
        y_NPF = self.frame(image_BTHWC.reshape(B * T, *image), train=train)
        y_NF = y_NPF.mean(1) if self.merge == "mean" else y_NPF.reshape(B * T, -1)
        return jnp.where(mask_BT1, nn.Dense(self.features, name="W")(y_NF).reshape(B, T, -1), 0)
