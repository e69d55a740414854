"""Long short-term memory."""

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.cell import Cell
from seqlab.nn.gates import candidate, gate
from seqlab.nn.initializers import chrono, forget_bias
from seqlab.nn.pointwise import sigmoid as σ
from seqlab.nn.pointwise import tanh
from seqlab.nn.recurrence import Weights


class LSTM(Cell):
    """Long short-term memory: a cell C that is kept, written and read through gates.

        f = σ(W_f x + U_f h + b_f)          forget
        i = σ(W_i x + U_i h + b_i)          input
        o = σ(W_o x + U_o h + b_o)          output
        C̃ = tanh(W_C x + U_C h + b_C)       candidate
        C' = f ⊙ C + i ⊙ C̃
        h' = o ⊙ tanh(C')

    with peepholes the gates also see the cell: p_f ⊙ C, p_i ⊙ C and p_o ⊙ C' are added before σ;
    with layer normalisation (a_f, a_i, a_o, a_C) = LN(W x) + LN(U h) + b and h' = o ⊙ tanh(LN(C')).

    Shapes   x_BD, (C_BF, h_BF) -> (C_BF, h_BF), with F = features.
    Raises   UserError for chrono < 3.
    Source   Hochreiter & Schmidhuber 1997; Gers et al. 2000 (forget gate); Gers et al. 2002, §3 (peepholes);
             Tallec & Ollivier 2018, arXiv:1804.11188 (chrono); Ba et al. 2016, arXiv:1607.06450, eqs. 20-22.
    Differs  b_f starts at `forget_bias`, or b_f and b_i at the chrono draw for lags up to `chrono`.
    """

    forget_bias: float = 1.0
    chrono: int | None = None
    peephole: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.chrono is not None:
            chrono(self.chrono)

    @nn.compact
    def weights(self, d_input):
        b = forget_bias(self.forget_bias) if self.chrono is None else chrono(self.chrono)
        maps, vectors = self.preactivation_weights("gates", d_input, 4, b)
        if self.peephole:
            vectors["p"] = self.param("peephole", nn.initializers.zeros_init(), (3, self.features), jnp.float32)
        if self.layer_norm:
            vectors["LN_C"] = self.norm("cell", 1, nn.initializers.zeros_init())
        return Weights(maps, vectors)

    def equation(self, affine, vectors, carry):
        C, h = carry
        a_f, a_i, a_o, a_C = jnp.split(self.preactivation("gates", affine, vectors, h), 4)
        p_C = (lambda k, C: vectors["p"][k] * C) if self.peephole else lambda k, C: 0.0

        f = gate("f", σ(a_f + p_C(0, C)))
        i = gate("i", σ(a_i + p_C(1, C)))
        C = f * C + i * candidate("C̃", tanh(a_C))
        o = gate("o", σ(a_o + p_C(2, C)))
        h = o * tanh(vectors["LN_C"](C) if self.layer_norm else C)
        return C, h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        h = super().initialize_carry(rng, input_shape)
        return h, h
