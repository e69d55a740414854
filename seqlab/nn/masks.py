"""Masks, derived from lengths and positions: True = may be looked at."""

from typing import NamedTuple

import jax.numpy as jnp

from seqlab.types import Array


def valid_mask(lengths_B: Array | None, n_steps: int) -> Array:
    """Mark the steps before each row's length.

    mask_bt = t < length_b

    Shapes   lengths_B -> mask_BT with T = `n_steps`; `None` (every row full) -> a mask_1T of True, to broadcast.
    """
    if lengths_B is None:
        return jnp.ones((1, n_steps), bool)
    return jnp.arange(n_steps) < lengths_B[:, None]


def last_step(y_BTF: Array, lengths_B: Array | None) -> Array:
    """The output at each row's last real step, zeros for a row without one."""
    if lengths_B is None:
        return y_BTF[:, -1]
    last_BF = jnp.take_along_axis(y_BTF, jnp.maximum(lengths_B - 1, 0)[:, None, None], 1)[:, 0]
    return jnp.where(lengths_B[:, None] > 0, last_BF, 0)


class Sight(NamedTuple):
    """Who may look at whom.

    mask_bts = valid_bs  and  s ≤ t, if `causal`  and  |t − s| < window, if there is one

    Shapes   positions t_BT of the queries, s_BS of the keys, valid_BS: which keys there are; B may be 1 in each.
             `in_order` says that both are the steps of one row, one after the other.
    """

    t_BT: Array
    s_BS: Array
    valid_BS: Array
    causal: bool = False
    window: int | None = None
    in_order: bool = False

    def mask(self) -> Array:
        """Give mask_BST."""
        ahead_BST = self.t_BT[:, None, :] - self.s_BS[:, :, None]
        mask_BST = jnp.broadcast_to(
            self.valid_BS[:, :, None], jnp.broadcast_shapes(ahead_BST.shape, self.valid_BS[:, :, None].shape)
        )
        if self.causal:
            mask_BST &= ahead_BST >= 0
        if self.window is not None:
            mask_BST &= jnp.abs(ahead_BST) < self.window
        return mask_BST
