"""What self-attention and attention to a source share: heads, their projections, and the average over values."""

from collections.abc import Callable

import flax.linen as nn

from seqlab.nn.attention import IMPLEMENTATIONS, Bias, Dropout, attend
from seqlab.nn.checks import check_choice, check_positive
from seqlab.nn.dropout import check_rate
from seqlab.nn.masks import Sight
from seqlab.nn.matrix import Dense, as_matrix
from seqlab.nn.scores import ScaledDot
from seqlab.types import Array, require


class MultiHead(nn.Module):
    """Attention by several heads, each with projections of its own.

        y = W_o [y_1, …, y_H],   y_h = softmax(score(W_q,h x, W_k,h z)) W_v,h z

    where a subclass says what x, z and the mask are. With `n_kv_heads` < n_heads several heads share their keys and
    values.

    Raises   UserError for heads that don't divide, a rate outside [0, 1), sizes below 1, an unknown implementation.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.2.2; Ainslie et al. 2023, arXiv:2305.13245 (shared heads).
    """

    features: int
    n_heads: int = 4
    n_kv_heads: int | None = None
    score: Callable[[], nn.Module] = ScaledDot
    dropout: float = 0.0
    bias: bool = True
    implementation: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        for name in ("features", "n_heads"):
            check_positive(name, getattr(self, name))
        check_rate("dropout", self.dropout)
        check_choice("implementation", self.implementation, IMPLEMENTATIONS)
        require(
            self.features % self.n_heads == 0,
            f"features is {self.features} and n_heads is {self.n_heads}, but the heads must divide the features",
        )
        require(
            self.n_kv_heads is None or (self.n_kv_heads >= 1 and self.n_heads % self.n_kv_heads == 0),
            f"n_heads is {self.n_heads} and n_kv_heads is {self.n_kv_heads}, but the latter must divide the former",
        )

    def setup(self):
        K = self.features // self.n_heads
        G = self.n_kv_heads or self.n_heads
        self.W_q, self.W_k, self.W_v = (Dense(n * K, use_bias=self.bias) for n in (self.n_heads, G, G))
        self.W_o = Dense(self.features, use_bias=self.bias)
        self.fit = self.score()

    def split(self, W: nn.Module, x_BTD: Array) -> Array:
        """W x, each head's part by itself, _BTHK."""
        y_BTF = as_matrix(W, x_BTD)
        return y_BTF.reshape(*y_BTF.shape[:2], -1, self.features // self.n_heads)

    def merge(self, y_BTHK: Array) -> Array:
        """W_o [y_1, …, y_H], _BTF."""
        return as_matrix(self.W_o, y_BTHK.reshape(*y_BTHK.shape[:2], -1))

    def asked(self) -> bool:
        """Whether someone asks for the weights."""
        return self.is_mutable_collection("intermediates") and not self.is_initializing()

    def average(
        self,
        q_BTHK: Array,
        k_BSGK: Array,
        v_BSGK: Array,
        sight: Sight,
        *,
        bias: Bias | None = None,
        train: bool,
        asked: bool,
    ) -> tuple[Array, Array | None]:
        """Give y_BTHK, and weights_BHTS if asked."""
        dropout = Dropout(self.make_rng("dropout"), self.dropout) if train and self.dropout else None
        # Parameters are made before a chunk could make them inside of its own transformation.
        implementation = "plain" if asked or self.is_initializing() else self.implementation
        return attend(
            q_BTHK, k_BSGK, v_BSGK, sight, score=self.fit, bias=bias, dropout=dropout, implementation=implementation
        )
