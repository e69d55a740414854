"""The encoder that does nothing: for inputs that say all by themselves."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.checks import check_lengths
from seqlab.nn.masks import valid_mask
from seqlab.types import Array, Encoding, require


class Identity(nn.Module):
    """Hand on what the inputs give: a classifier is inputs, pool and head, a decoder looks at the inputs themselves.

    y_t = x_t    last = 1/T Σ_t x_t over the valid steps

    Shapes   x_BTD, lengths_B -> y_BTD, last_BD, state: (), for there is nothing to go on from.
    Raises   UserError for inputs of another width than `features`, where that is given: it tells the width to what
             stands behind (`${model.encoder.features}`).
    """

    features: int | None = None

    def init_state(self, batch_size: int) -> tuple[()]:
        return ()

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
    ) -> Encoding:
        B, T, D = x_BTD.shape
        check_lengths(lengths_B, B)
        require(
            self.features in (None, D),
            f"Identity got features={self.features} and inputs of width {D}, which it hands on as they are: leave "
            "model.encoder.features to the inputs",
        )
        mask_BT1 = valid_mask(lengths_B, T)[..., None]
        y_BTD = jnp.where(mask_BT1, x_BTD, 0)
        last_BD = y_BTD.sum(1, dtype=jnp.promote_types(y_BTD.dtype, jnp.float32)) / jnp.maximum(mask_BT1.sum(1), 1)
        return Encoding(y_BTD, last_BD.astype(y_BTD.dtype), ())

    def step(self, state: tuple[()], x_BD: Array) -> tuple[tuple[()], Array]:
        return state, x_BD
