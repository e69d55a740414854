"""The simple recurrent network."""

import flax.linen as nn

from seqlab.nn.cell import Cell
from seqlab.nn.checks import check_choice
from seqlab.nn.pointwise import relu, sigmoid, tanh
from seqlab.nn.recurrence import Weights

ACTIVATIONS = {"tanh": tanh, "relu": relu, "sigmoid": sigmoid}


class RNN(Cell):
    """Elman's network: the state is one squashed affine map of the input and of the state before.

        h' = φ(W x + U h + b)

    with layer normalisation

        h' = φ(LN(W x + U h))

    Shapes   x_BD, h_BF -> h_BF, with F = features.
    Raises   UserError for an unknown activation.
    Source   Elman 1990, Cognitive Science 14(2); Ba et al. 2016, arXiv:1607.06450, eq. 4.
    Differs  φ may be tanh, relu or sigmoid (Elman's).
    """

    activation: str = "tanh"

    def __post_init__(self):
        super().__post_init__()
        check_choice("activation", self.activation, ACTIVATIONS)

    @nn.compact
    def weights(self, d_input):
        if not self.layer_norm:
            return Weights({"hidden": self.affine("hidden", d_input, 1, self.bias_init)}, {})
        return Weights(
            {"hidden": self.affine("hidden", d_input, 1, None)}, {"LN": self.norm("hidden", 1, self.bias_init)}
        )

    def equation(self, affine, vectors, h):
        φ = ACTIVATIONS[self.activation]
        a = affine("hidden", h)
        return φ(vectors["LN"](a)) if self.layer_norm else φ(a)
