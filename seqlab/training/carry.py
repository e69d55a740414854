"""The state that a model hands on from window to window, cut in the gradient: truncated BPTT.

A carry is a model's state after each row's last window, a pytree whose leaves begin with B.
"""

from typing import Any, TypeGuard

import flax.linen as nn
import jax
import jax.numpy as jnp

from seqlab.types import Array, ContinuousTask, Task


def goes_on(task: Task) -> TypeGuard[ContinuousTask]:
    """Whether the windows of a task follow each other, so that a state is carried between them."""
    return hasattr(task, "sample_at")


def initial_state(model: nn.Module, variables: Any, batch_size: int) -> Any:
    """The state before anything is read."""
    return jax.tree.map(jnp.asarray, model.apply(variables, batch_size, method="init_state"))


def choose_rows(chosen_B: Array, ours: Any, theirs: Any) -> Any:
    """Our rows where they are chosen, theirs elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(chosen_B.reshape(-1, *[1] * (a.ndim - 1)), a, b), ours, theirs)


def finite_rows(carry: Any) -> Array:
    """The rows in which every number is finite.

    Shapes   -> finite_B.
    """
    leaves = jax.tree.leaves(carry)
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all(range(1, leaf.ndim)) for leaf in leaves]), 0)
