"""N replicas in one compiled program: what is written for one state is lifted to a stack of them."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from seqlab.nn.rows import AXIS


def lift(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Turn `function(one, *shared)` into a function of a stack, `(stack_R…, *shared) -> result_R…`.

    Each device takes its share of the replica axis. Within a device an accelerator runs them side by side (`vmap`),
    a CPU one after the other (`lax.map`): batched small matmuls are slow there.
    """
    on_cpu = mesh.devices.flat[0].platform == "cpu"

    def over_share(stack: Any, *shared: Any) -> Any:
        def one(replica: Any) -> Any:
            return function(replica, *shared)

        return lax.map(one, stack) if on_cpu else jax.vmap(one)(stack)

    if mesh.shape["replica"] == 1:
        return over_share

    def lifted(stack: Any, *shared: Any) -> Any:
        specs = (P("replica"), *(P() for _ in shared))
        return jax.shard_map(
            over_share, mesh=mesh, in_specs=specs, out_specs=P("replica"), axis_names={"replica"}, check_vma=False
        )(stack, *shared)

    return lifted


def replica_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of the leaves of a stack of states: split over replicas, whole within one."""
    return NamedSharding(mesh, P("replica"))


def row_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of the leaves of a stack that begin with the rows of a batch: each device has its own."""
    return NamedSharding(mesh, P("replica", AXIS))


def split_rows(tree: Any, mesh: Mesh) -> Any:
    """Ask the compiler to keep the leading axis of every leaf, the rows of a batch, split over the data axis."""
    if mesh.shape[AXIS] == 1:
        return tree
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, NamedSharding(mesh, P(AXIS))), tree)


def sum_over_rows(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Let each device compute `function(whole, rows, *whole) -> summed` for its own rows alone: `over_rows`."""

    def summed_alone(*arguments: Any) -> tuple[Any, None]:
        return function(*arguments), None

    spread = over_rows(summed_alone, mesh)
    return lambda *arguments: spread(*arguments)[0]


def over_rows(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Let each device compute `function(whole, rows, *whole) -> (summed, kept)` for its own rows alone.

    `summed` is summed over devices; `kept`, whose leaves begin with the rows, stays where its rows are.

    Left to itself, the compiler sums the gradient of what a loop over steps or layers shares between rows over devices
    at every turn of the loop; here all that devices say to each other is one sum at the end.
    """
    if mesh.shape[AXIS] == 1:
        return function

    def on_one(whole: Any, rows: Any, *shared: Any) -> tuple[Any, Any]:
        summed, kept = function(whole, rows, *shared)
        return lax.psum(summed, AXIS), kept

    def spread(whole: Any, rows: Any, *shared: Any) -> Any:
        within = jax.sharding.get_abstract_mesh()
        specs = (P(), P(AXIS), *(P() for _ in shared))
        return jax.shard_map(
            on_one,
            mesh=mesh if within.empty else within,
            in_specs=specs,
            out_specs=(P(), P(AXIS)),
            axis_names={AXIS},
            check_vma=False,
        )(whole, rows, *shared)

    return spread
