"""The scalar mix: one sequence of the layers of an encoder."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.types import Array, require


class ScalarMix(nn.Module):
    """Weigh layers against each other with learned numbers.

        y_t = γ Σ_l s_l h_l,t    s = softmax(w)

    It starts as the mean of the layers: w = 0, γ = 1.

    Shapes   layers of h_BTF -> y_BTF.
    Raises   UserError for layers of different shapes.
    Source   Peters et al. 2018, arXiv:1802.05365, eq. 1.
    """

    @nn.compact
    def __call__(self, layers: Sequence[Array]) -> Array:
        shapes = [h_BTF.shape for h_BTF in layers]
        require(len(set(shapes)) == 1, f"ScalarMix got layers of the shapes {shapes}; expected one shape.")
        w_L = self.param("w", nn.initializers.zeros_init(), (len(layers),))
        γ = self.param("gamma", nn.initializers.ones_init(), ())
        s_L = jax.nn.softmax(w_L.astype(jnp.float32)).astype(w_L.dtype)
        return γ * sum(s * h_BTF for s, h_BTF in zip(s_L, layers, strict=True))
