"""The gated recurrent unit."""

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.cell import Cell
from seqlab.nn.checks import check_choice
from seqlab.nn.gates import candidate, gate
from seqlab.nn.pointwise import mix, tanh
from seqlab.nn.pointwise import sigmoid as σ
from seqlab.nn.recurrence import Weights


class GRU(Cell):
    """Gated recurrent unit: the update gate blends the old state with a candidate.

        z = σ(W_z x + U_z h + b_z)                    update
        r = σ(W_r x + U_r h + b_r)                    reset
        h̃ = tanh(W_h x + U_h (r ⊙ h) + b_h)           candidate, reset before the product
        h̃ = tanh(W_h x + b_h + r ⊙ (U_h h + b_u))     candidate, reset after the product
        h' = (1 − z) ⊙ h + z ⊙ h̃

    with layer normalisation LN(W x) + LN(U h) + b takes the place of each W x + U h + b, and with the reset after
    the product h̃ = tanh(LN(W_h x) + b_h + r ⊙ (LN(U_h h) + b_u)).

    Shapes   x_BD, h_BF -> h_BF, with F = features.
    Raises   UserError for an unknown reset.
    Source   Cho et al. 2014, arXiv:1406.1078, eqs. 5-8 (before); Ba et al. 2016, arXiv:1607.06450, eqs. 26-29.
    Differs  Cho et al. and cuDNN write z for what is kept: their z is 1 − z here. `after` is cuDNN's form.
    """

    reset: str = "before"

    def __post_init__(self):
        super().__post_init__()
        check_choice("reset", self.reset, ("before", "after"))

    @nn.compact
    def weights(self, d_input):
        b = self.bias_init
        maps, norms = self.preactivation_weights("gates", d_input, 2, b)
        if self.reset == "before":
            candidate = self.preactivation_weights("candidate", d_input, 1, b)
            return Weights(maps | candidate[0], norms | candidate[1])
        x, u, b_map = "candidate_input", "candidate_recurrent", None if self.layer_norm else b
        maps |= {x: self.affine(x, d_input, 1, b_map, recurrent=False), u: self.affine(u, None, 1, b_map)}
        if self.layer_norm:
            norms |= {x: self.norm(x, 1, b), u: self.norm(u, 1, b)}
        return Weights(maps, norms)

    def equation(self, affine, norms, h):
        a_z, a_r = jnp.split(self.preactivation("gates", affine, norms, h), 2)
        z, r = gate("z", σ(a_z)), gate("r", σ(a_r))
        if self.reset == "before":
            h̃ = tanh(self.preactivation("candidate", affine, norms, r * h))
        else:
            Wx, Uh = affine("candidate_input"), affine("candidate_recurrent", h)
            if self.layer_norm:
                Wx, Uh = norms["candidate_input"](Wx), norms["candidate_recurrent"](Uh)
            h̃ = tanh(Wx + r * Uh)
        return mix(z, h, candidate("h̃", h̃))
