"""Work that each device does for its own rows."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

AXIS = "data"  # the mesh axis that rows, the sequences of a batch, are spread over


def on_own_rows(function: Callable[..., Any], n_rows: int, in_axes: Any, out_axes: Any) -> Callable[..., Any]:
    """`function`, run by each device on its own rows, with what has no rows whole on every device.

    Left to itself, the compiler sums the gradient of what a loop shares between rows over devices at every turn of the
    loop; here it is one sum after it. `in_axes` and `out_axes` say like `vmap`'s where the rows are, None for none.
    Without a mesh (`jax.set_mesh`), or where the rows don't divide, it is the function itself.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AXIS in mesh.manual_axes or mesh.shape.get(AXIS, 1) == 1 or n_rows % mesh.shape[AXIS]:
        return function

    def specs(axes: Any) -> Any:
        return jax.tree.map(lambda k: P() if k is None else P(*(None,) * k, AXIS), axes, is_leaf=lambda k: k is None)

    return jax.shard_map(
        function, in_specs=specs(in_axes), out_specs=specs(out_axes), axis_names={AXIS}, check_vma=False
    )
