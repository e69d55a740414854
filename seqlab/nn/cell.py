"""What every cell of ours is: Flax's cell protocol around an equation over affine maps."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.affine import Affine, join
from seqlab.nn.checks import check_positive
from seqlab.nn.initializers import Initializer, per_gate
from seqlab.nn.pointwise import standardise
from seqlab.nn.recurrence import AffineFn, Carry, Vectors, Weights, step, turn
from seqlab.types import Array


class Norm(NamedTuple):
    """Layer normalisation: g ⊙ (a − μ)/σ + b, with μ and σ over the features of a_FB, all gates together.

    Source   Ba et al. 2016, arXiv:1607.06450, eq. 4.
    """

    scale: Array
    bias: Array | None

    def __call__(self, a: Array) -> Array:
        a = self.scale * standardise(a)
        return a if self.bias is None else a + self.bias


class Cell(nn.RNNCellBase):
    """A cell: `weights` makes its parameters, `equation` says its step; a cell's file defines the two.

    The last leaf of the carry is h, which is also the output. Carries are float32 (float64 for float64 parameters).

    Raises   UserError for features < 1.
    """

    features: int
    layer_norm: bool = False
    kernel_init: Initializer = nn.initializers.glorot_uniform()
    recurrent_init: Initializer = nn.initializers.orthogonal()
    bias_init: Initializer = nn.initializers.zeros_init()

    def __post_init__(self):
        super().__post_init__()
        check_positive("features", self.features)

    def weights(self, d_input: int) -> Weights:
        """The parameters for inputs of `d_input` numbers; compact, through `affine` and `norm`."""
        raise NotImplementedError

    def equation(self, affine: AffineFn, vectors: Vectors, carry: Carry) -> Carry:
        """The carry after a step; reads the cell's fields and its arguments, never its parameters."""
        raise NotImplementedError

    def __call__(self, carry: Carry, x: Array) -> tuple[Carry, Array]:
        weights = self.weights(x.shape[-1])
        batch, (x_BD, carry) = x.shape[:-1], jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), (x, carry))
        carry, _ = step(self.equation, join(weights.maps), weights.vectors, turn(carry), x_BD.T, {}, None)
        carry = jax.tree.map(lambda leaf: leaf.T.reshape(*batch, -1), carry)
        return carry, jax.tree.leaves(carry)[-1]

    @nn.nowrap
    def initialize_carry(self, rng: Array, input_shape: tuple[int, ...]) -> Carry:
        return jnp.zeros((*input_shape[:-1], self.features), jnp.float32)

    @property
    def num_feature_axes(self) -> int:
        return 1

    @nn.nowrap
    def affine(self, name: str, d_input: int | None, n_gates: int, bias_init: Any, recurrent: bool = True) -> Affine:
        """The parameters of one affine map; it leaves out x, the state or the bias for None, False or None."""
        F, inits = self.features, (self.kernel_init, self.recurrent_init, bias_init)
        return AffineParameters(F, n_gates, d_input, recurrent, *inits, name=name)()

    @nn.nowrap
    def norm(self, name: str, n_gates: int, bias_init: Any = None) -> Norm:
        """The parameters of one layer normalisation; it leaves out the bias for None."""
        shape = (self.features * n_gates,)
        scale = self.param(f"{name}_norm_scale", nn.initializers.ones_init(), shape, jnp.float32)
        bias = None if bias_init is None else self.param(f"{name}_norm_bias", bias_init, shape, jnp.float32)
        return Norm(scale, bias)

    @nn.nowrap
    def preactivation_weights(self, name: str, d_input: int, n_gates: int, bias_init: Any):
        """The maps and the norms, both by name, of a = W x + U q + b; or with layer normalisation of
        a = LN(W x) + LN(U q) + b."""
        if not self.layer_norm:
            return {name: self.affine(name, d_input, n_gates, bias_init)}, {}
        x, u = f"{name}_input", f"{name}_recurrent"
        maps = {x: self.affine(x, d_input, n_gates, None, recurrent=False), u: self.affine(u, None, n_gates, None)}
        return maps, {x: self.norm(x, n_gates, bias_init), u: self.norm(u, n_gates)}

    @nn.nowrap
    def preactivation(self, name: str, affine: AffineFn, norms: Vectors, q: Array) -> Array:
        """The value of a."""
        if not self.layer_norm:
            return affine(name, q)
        x, u = f"{name}_input", f"{name}_recurrent"
        return norms[x](affine(x)) + norms[u](affine(u, q))


class AffineParameters(nn.Module):
    """The parameters of an affine map: `kernel`, `recurrent_kernel`, `bias`, each gate drawn on its own.

    Shapes   kernel_DG, recurrent_kernel_FG, bias_G with G = n_gates F.
    """

    features: int
    n_gates: int
    d_input: int | None
    recurrent: bool
    kernel_init: Initializer
    recurrent_init: Initializer
    bias_init: Initializer | None

    @nn.compact
    def __call__(self) -> Affine:
        F, G = self.features, self.features * self.n_gates

        def kernel(name, init, d):
            return self.param(name, per_gate(init, self.n_gates), (d, G), jnp.float32)

        return Affine(
            W=None if self.d_input is None else kernel("kernel", self.kernel_init, self.d_input),
            U=kernel("recurrent_kernel", self.recurrent_init, F) if self.recurrent else None,
            b=None if self.bias_init is None else self.param("bias", self.bias_init, (G,), jnp.float32),
        )
