"""What the synthetic tasks share: their fixed evaluation sets, and lengths that vary."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from seqlab.types import Array, Batch

LARGE = 100.0
"""A logit whose softmax is exactly 1 in float32: what a reference solver says of the right answer."""

# Training keys come from `jax.random.key(seed)`, whose first word is 0 for every 32-bit seed.
_EVALUATION_ROOT = (0x5E91AB, 0)


def evaluation_keys() -> dict[str, Array]:
    """The keys of the validation and the test set: the same ones in every run, apart from every training stream."""
    root = jax.random.wrap_key_data(jnp.array(_EVALUATION_ROOT, jnp.uint32), impl="threefry2x32")
    return {name: jax.random.fold_in(root, i) for i, name in enumerate(("validation", "test"))}


def draw_evaluation_sets(sample: Callable[[Array, int], Batch], n_eval: int) -> dict[str, Batch]:
    """Draw the validation and the test set with `evaluation_keys`."""
    draw = jax.jit(sample, static_argnums=1)
    return {name: draw(key, n_eval) for name, key in evaluation_keys().items()}


def draw_lengths(key: Array, batch_size: int, shortest: int | None, longest: int) -> Array:
    """Draw lengths uniformly from shortest..longest; without a shortest, every row is the longest."""
    return jax.random.randint(key, (batch_size,), longest if shortest is None else shortest, longest + 1)
