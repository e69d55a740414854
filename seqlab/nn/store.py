"""What the forward pass of a recurrence keeps for the backward pass."""

from typing import Any

import jax

from seqlab.types import Array


class Store:
    """Puts the arrays of a step's linearisation aside, each one once, and finds them again.

    An array that never changes, or that the scan reads anyway, is not kept a second time.
    """

    def __init__(self, fixed: list[Array]):
        self.fixed = fixed

    def put(self, tree: Any, given: Any, y: Array) -> list[Array]:
        """y and the arrays of `tree` that have to be kept beside it and the `given` ones."""
        leaves, self.treedef = jax.tree.flatten(tree)
        pools = {"fixed": self.fixed, "given": jax.tree.leaves(given), "kept": [y]}
        self.sources = []
        for leaf in leaves:
            found = ((pool, k) for pool, arrays in pools.items() for k, array in enumerate(arrays) if array is leaf)
            if (source := next(found, None)) is None:
                pool = "kept" if isinstance(leaf, jax.core.Tracer) else "fixed"
                source = pool, len(pools[pool])
                pools[pool].append(leaf)
            self.sources.append(source)
        return pools["kept"]

    def get(self, given: Any, kept: list[Array]) -> Any:
        """The tree again, of one step or of all."""
        pools = {"fixed": self.fixed, "given": jax.tree.leaves(given), "kept": kept}
        return jax.tree.unflatten(self.treedef, [pools[pool][k] for pool, k in self.sources])
