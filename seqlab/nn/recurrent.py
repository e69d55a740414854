"""Recurrent layers: a cell along time, in one direction or in both."""

import operator
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.nn.affine import carry_dtype
from seqlab.nn.cell import Cell
from seqlab.nn.checks import check_choice, check_lengths, check_positive
from seqlab.nn.dropout import Dropout, check_rate, dropout_mask, zoneout_masks, zoneout_rates
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.matrix import as_matrix
from seqlab.nn.recurrence import Given, recurrence, settle
from seqlab.types import Array, Encoding, UserError, require

MERGES: dict[str, Callable[[Array, Array], Array]] = {
    "concat": lambda ahead, back: jnp.concatenate([ahead, back], -1),
    "sum": operator.add,
}


class Recurrent(nn.Module):
    """A cell along time.

        carry_t, y_t = cell(carry_{t−1}, x_t)         t = 1 … T, or T … 1 if `reverse`

    In training, with `zoneout` each unit of the carry keeps its old value with that probability at each step (in
    evaluation, the expectation); with `recurrent_dropout` what the recurrent kernels multiply is masked, with one
    mask a row for all time.

    Shapes   x_BTD, lengths_B -> y_BTF, last_BF, state: the cell's carry. If `reverse`, each row starts at its last
             real step, and `last` is the output at its first.
    Raises   UserError for features < 1, a rate outside [0, 1), lengths that are not one a row, a cell whose inputs
             are not vectors, recurrent dropout for a cell that has no equation.
    Source   zoneout: Krueger et al. 2017, arXiv:1606.01305, eqs. 3-5; recurrent dropout: Gal & Ghahramani 2016,
             arXiv:1512.05287, eq. 7, with the same mask for all gates.
    """

    cell: Callable[..., nn.RNNCellBase]
    features: int
    reverse: bool = False
    recurrent_dropout: float = 0.0
    zoneout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_positive("features", self.features)
        check_rate("recurrent_dropout", self.recurrent_dropout)
        check_rate("zoneout", self.zoneout)

    def setup(self):
        self.core = self.cell(features=self.features)
        name = type(self.core).__name__
        require(
            isinstance(self.core, nn.RNNCellBase) and self.core.num_feature_axes == 1,
            f"cell is {name}, but a recurrent layer runs cells over vectors (an nn.RNNCellBase with one feature axis)",
        )
        require(
            isinstance(self.core, Cell) or not self.recurrent_dropout,
            f"recurrent_dropout is {self.recurrent_dropout}, but {name} does not say what its kernels multiply; "
            "use zoneout or one of seqlab.nn.cells",
        )

    def init_state(self, batch_size: int) -> Any:
        return self.core.initialize_carry(jax.random.key(0), (batch_size, 1))

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
    ) -> Encoding:
        B, T, _ = x_BTD.shape
        check_lengths(lengths_B, B)
        state = self.init_state(B) if state is None else state
        valid_TB = None
        if lengths_B is not None:
            # Cleared, so that not even a NaN in the padding reaches a gradient.
            valid_BT = valid_mask(lengths_B, T)
            x_BTD, valid_TB = jnp.where(valid_BT[..., None], x_BTD, 0), valid_BT.T
        zoneout = self._zoneout(T, state, train)
        if isinstance(self.core, Cell):
            drop = None
            if train and self.recurrent_dropout:
                drop = dropout_mask(self.make_rng("dropout"), self.recurrent_dropout, (B, self.features))
            weights = self.core.weights(x_BTD.shape[-1])
            dtype = carry_dtype(jax.tree.leaves(weights)[0].dtype)
            state = jax.tree.map(lambda leaf: leaf.astype(dtype), state)
            equation = self.core.clone(parent=None).equation
            state, y_BTF = recurrence(equation, self.reverse, weights, state, x_BTD, Given(valid_TB, zoneout, drop))
            last_BF = jax.tree.leaves(state)[-1].astype(y_BTF.dtype)
        else:
            state, y_BTF = self._plain_scan(state, x_BTD, valid_TB, zoneout)
            # The padding's outputs are zeros: of all rows in reverse, the last output is at t = 0.
            last_BF = y_BTF[:, 0] if self.reverse else last_step(y_BTF, lengths_B)
        if lengths_B is not None:
            last_BF = jnp.where(lengths_B[:, None] > 0, last_BF, 0)
        return Encoding(y_BTF, last_BF, state)

    def step(self, state: Any, x_BD: Array) -> tuple[Any, Array]:
        require(not self.reverse, "a layer with reverse=true reads from the end: it cannot take one step at a time")
        zoneout = jax.tree.map(lambda z: z[0], self._zoneout(1, state, train=False))
        return advance(self.core, state, (x_BD, None, zoneout))

    def _zoneout(self, n_steps: int, state: Any, train: bool) -> Any:
        if not self.zoneout:
            return None
        if train:
            return zoneout_masks(self.make_rng("dropout"), self.zoneout, n_steps, state)
        return zoneout_rates(self.zoneout, n_steps, state)

    def _plain_scan(self, state, x_BTD, valid_TB, zoneout):
        scan = nn.scan(
            advance, variable_broadcast="params", split_rngs={"params": False, "dropout": True}, reverse=self.reverse
        )
        state, y_TBF = scan(self.core, state, (x_BTD.swapaxes(0, 1), valid_TB, zoneout))
        return state, y_TBF.swapaxes(0, 1)


def advance(cell: nn.RNNCellBase, carry: Any, per_step: Any) -> tuple[Any, Array]:
    """One step of any cell, with padding and zoneout."""
    x, valid, zoneout = per_step
    new, y = cell(carry, x)
    # Where the output is a part of the carry, zoneout keeps the old output too.
    place = next((k for k, leaf in enumerate(jax.tree.leaves(new)) if leaf is y), None)
    new = settle(None if valid is None else valid[:, None], zoneout, carry, new)
    y = (y if place is None else jax.tree.leaves(new)[place]).astype(x.dtype)
    return new, y if valid is None else jnp.where(valid[:, None], y, 0)


class Bidirectional(nn.Module):
    """A cell along time from both ends.

        y_t = [y→_t, y←_t]   (merge = concat, 2 F outputs)   or   y→_t + y←_t   (merge = sum)

    Shapes   x_BTD, lengths_B -> y_BTF, last_BF, state: the carries (forward, backward). `last` merges the last
             outputs of both directions: forward at the row's last real step, backward at its first.
    Raises   UserError for an unknown merge, for `step`, and as `Recurrent`.
    Source   Schuster & Paliwal 1997.
    """

    cell: Callable[..., nn.RNNCellBase]
    features: int
    merge: str = "concat"
    recurrent_dropout: float = 0.0
    zoneout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_choice("merge", self.merge, MERGES)
        check_positive("features", self.features)
        check_rate("recurrent_dropout", self.recurrent_dropout)
        check_rate("zoneout", self.zoneout)

    def setup(self):
        def direction(reverse: bool) -> Recurrent:
            return Recurrent(self.cell, self.features, reverse, self.recurrent_dropout, self.zoneout)

        self.forward, self.backward = direction(False), direction(True)

    def init_state(self, batch_size: int) -> Any:
        return self.forward.init_state(batch_size), self.backward.init_state(batch_size)

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
    ) -> Encoding:
        ahead, back = (None, None) if state is None else state
        forward = self.forward(x_BTD, lengths_B, state=ahead, train=train)
        backward = self.backward(x_BTD, lengths_B, state=back, train=train)
        merge = MERGES[self.merge]
        y_BTF = merge(forward.y_BTF, backward.y_BTF)
        last_BF = merge(forward.last_BF, backward.last_BF)
        return Encoding(y_BTF, last_BF, (forward.state, backward.state))

    def step(self, state: Any, x_BD: Array) -> tuple[Any, Array]:
        raise UserError("a bidirectional layer reads from both ends: it cannot take one step at a time")


class Stack(nn.Module):
    """Layers on top of each other.

        y = x;  for each layer:  y ← y + layer(dropout(norm(y)))

    norm: layer normalisation of what a layer reads, only if `norm`; y +: only if `residual`, and not around the
    first layer, whose input is not of the layers' width; dropout: in training, not before the first layer, with a
    new mask at each step, or one mask a row for all time if `variational`. x and what each layer gives are sown as "y"
    into the collection "layers".

    Shapes   x_BTD, lengths_B -> y_BTF, last_BF, state: a tuple over the layers.
    Raises   UserError for n_layers < 1, a dropout outside [0, 1), and as its layers.
    Source   variational: Gal & Ghahramani 2016, arXiv:1512.05287; the place of the norm: Xiong et al. 2020,
             arXiv:2002.04745.
    """

    layer: Callable[..., nn.Module]
    features: int
    n_layers: int = 1
    residual: bool = False
    norm: bool = False
    dropout: float = 0.0
    variational: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_positive("n_layers", self.n_layers)
        check_rate("dropout", self.dropout)

    def setup(self):
        self.layers = [self.layer(features=self.features) for _ in range(self.n_layers)]
        self.norms = [nn.LayerNorm() for _ in range(self.n_layers if self.norm else 0)]
        self.drops = [Dropout(self.dropout, self.variational) for _ in range(self.n_layers - 1)]

    def init_state(self, batch_size: int) -> Any:
        return tuple(layer.init_state(batch_size) for layer in self.layers)

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool = False
    ) -> Encoding:
        B, T, _ = x_BTD.shape
        check_lengths(lengths_B, B)
        if lengths_B is not None:
            x_BTD = jnp.where(valid_mask(lengths_B, T)[..., None], x_BTD, 0)
        states = (None,) * self.n_layers if state is None else state
        y_BTF, last_BF, out = x_BTD, jnp.zeros(()), []
        self._tell(x_BTD)
        for n, (layer, layer_state) in enumerate(zip(self.layers, states, strict=True)):
            encoding = layer(self._read(n, y_BTF, train), lengths_B, state=layer_state, train=train)
            skip = self.residual and n > 0
            y_BTF = y_BTF + encoding.y_BTF if skip else encoding.y_BTF
            last_BF = last_BF + encoding.last_BF if skip else encoding.last_BF
            out.append(encoding.state)
            self._tell(y_BTF)
        return Encoding(y_BTF, last_BF, tuple(out))

    def step(self, state: Any, x_BD: Array) -> tuple[Any, Array]:
        y_BF, out = x_BD, []
        self._tell(x_BD)
        for n, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True)):
            new, layer_y_BF = layer.step(layer_state, self._read(n, y_BF, train=False))
            y_BF = y_BF + layer_y_BF if self.residual and n > 0 else layer_y_BF
            out.append(new)
            self._tell(y_BF)
        return tuple(out), y_BF

    def _tell(self, y: Array) -> None:
        if not self.is_initializing():  # where every collection is open
            self.sow("layers", "y", y)

    def _read(self, n: int, y: Array, train: bool) -> Array:
        """What layer n reads of y."""
        y = as_matrix(self.norms[n], y) if self.norm else y
        return self.drops[n - 1](y, train=train) if n > 0 else y
