"""Inputs: the first part of a model, which turns what the task gives into vectors."""

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.checks import check_kind
from seqlab.nn.dropout import Dropout, check_rate
from seqlab.nn.initializers import Initializer
from seqlab.nn.masks import valid_mask
from seqlab.nn.matrix import as_matrix
from seqlab.types import Array, require


class TokenInputs(nn.Module):
    """Look ids up in a table of vectors.

    x_t = E[id_t]    and 0 past the length, whatever the id there

    Shapes   ids_BT, lengths_B -> x_BTD with D = `features`.
    Raises   UserError for a bad size or rate, and for inputs that are no ids.
    Source   Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, §2 (the mapping C).
    Differs  Padding, known by the lengths alone, sends the table no gradient.
             `dropout` drops entries of the vectors, each step anew.
             E starts with the variance 1/D; torch.nn.Embedding starts with 1: `embedding_init` chooses.
    """

    vocab_size: int
    features: int
    dropout: float = 0.0
    embedding_init: Initializer = nn.linear.default_embed_init

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.vocab_size is not None,
            "TokenInputs got vocab_size None: the task gives no ids; choose model/inputs=linear for vectors, lenet, "
            "grid or patches for images, frames for video.",
        )
        require(
            isinstance(self.vocab_size, int) and self.vocab_size >= 2,
            f"TokenInputs got vocab_size {self.vocab_size!r}; expected an integer of at least 2.",
        )
        _require_features(self)
        check_rate("dropout", self.dropout)

    def setup(self) -> None:
        self.E = nn.Embed(self.vocab_size, self.features, embedding_init=self.embedding_init)
        self.drop = Dropout(self.dropout)

    def __call__(self, ids_BT: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_kind("TokenInputs", ids_BT, "ids")
        mask_BT = valid_mask(lengths_B, ids_BT.shape[1])
        x_BTD = self.drop(self.E(ids_BT), train=train)
        # Last, so that what was looked up for padding (NaN for ids out of range) goes no further, nor gradients back.
        return jnp.where(mask_BT[..., None], x_BTD, 0)

    def attend(self, y: Array) -> Array:
        """Say how well vectors fit each id: E y.

        Shapes   y_BTD or y_BD -> scores_BTV or scores_BV with V = `vocab_size`.
        """
        return self.E.attend(y)


class LinearInputs(nn.Module):
    """Map vectors affinely to the width of the model.

    x_t = W u_t + b    and 0 past the length, whatever the vector there, NaN included

    Shapes   u_BTD, lengths_B -> x_BTF with F = `features`.
    Raises   UserError for a bad size, and for inputs that are no vectors.
    """

    features: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_features(self)

    @nn.compact
    def __call__(self, u_BTD: Array, lengths_B: Array | None = None, *, train: bool) -> Array:
        check_kind("LinearInputs", u_BTD, "vectors")
        mask_BT1 = valid_mask(lengths_B, u_BTD.shape[1])[..., None]
        # Before the product, or NaN times a zero cotangent would reach the gradient of W; after it because of b.
        x_BTF = as_matrix(nn.Dense(self.features, name="W"), jnp.where(mask_BT1, u_BTD, 0))
        return jnp.where(mask_BT1, x_BTF, 0)


def _require_features(module: TokenInputs | LinearInputs) -> None:
    require(
        isinstance(module.features, int) and module.features >= 1,
        f"{type(module).__name__} got features {module.features!r}; expected an integer of at least 1.",
    )
