"""From a gradient to an update."""

import dataclasses
import math
from typing import Any

import jax
import optax

from seqlab.training.schedule import Schedule
from seqlab.types import Array, Params, require

NEVER_DECAYED = ("bias", "norm", "embed", "frozen")


@dataclasses.dataclass(frozen=True)
class Optimiser:
    """Clip, direction, decoupled weight decay, learning rate.

        d  = direction(clip(g))
        Δθ = −η(s) (d + λ θ)        η(s) = learning_rate · factor(s),  λ = weight_decay, 0 for leaves never decayed

    Raises   UserError for a learning rate or a weight decay that is negative or not finite.
    Source   Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2 (decoupled weight decay).
    Differs  the schedule multiplies the weight decay too, as in optax and PyTorch.
    """

    learning_rate: float
    direction: optax.GradientTransformation
    factor: Schedule
    clip: optax.GradientTransformation | None = None
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name}={value} should be zero or a positive number.")

    def init(self, params: Params) -> Any:
        """The state of clip and direction before the first update."""
        return self._clipped_direction().init(params)

    def update(self, grads: Params, opt_state: Any, params: Params, step: Array) -> tuple[Params, Any]:
        """The update of update number `step` (counted from 0), to be added to the parameters."""
        directions, opt_state = self._clipped_direction().update(grads, opt_state, params)
        rate = self.applied_learning_rate(step)

        def update_of(d: Array, theta: Array, decayed: bool) -> Array:
            decay = self.weight_decay * theta if decayed and self.weight_decay else 0.0
            return (-rate * (d + decay)).astype(theta.dtype)

        return jax.tree.map(update_of, directions, params, self.decayed(params)), opt_state

    def applied_learning_rate(self, step: Array) -> Array:
        """η(step) = learning_rate · factor(step)."""
        return self.learning_rate * self.factor(step)

    def decayed(self, params: Params) -> Any:
        """Which leaves the weight decay shrinks: a tree of bools over the parameters of one replica.

        Not decayed: a leaf with a bias, a norm, an embedding or something frozen among the names of its path, and one
        with fewer than two dimensions.
        """
        return jax.tree.map_with_path(_is_decayed, params)

    def describe_decay(self, params: Params) -> list[str]:
        """One line a leaf, in the order of the tree: its path, its shape and whether it is decayed."""
        return [
            f"{'decayed' if _is_decayed(path, leaf) else 'kept   '}  {_name(path)} {tuple(leaf.shape)}"
            for path, leaf in jax.tree.leaves_with_path(params)
        ]

    def _clipped_direction(self) -> optax.GradientTransformation:
        return optax.chain(self.clip or optax.identity(), self.direction)


def _is_decayed(path: tuple[Any, ...], leaf: Array) -> bool:
    return leaf.ndim >= 2 and not any(word in _name(path).lower() for word in NEVER_DECAYED)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
