"""Several processes, the hosts, that train one run together: how they join, agree, and hold the same arrays.

Every host runs the same command and the same code. The first alone shows, logs and writes; what it finds out while it
does, it says to the others (`first_says`), and errors too, so that no host goes a way of its own. With one host, every
function here does nothing but the obvious.
"""

import atexit
import contextlib
import json
import os
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from seqlab.types import UserError, require

T = TypeVar("T")

EXPECTED = "expected null, auto, or {address: HOST:PORT, count: N, index: I}"
JOIN_SECONDS = 120
"""How long hosts wait for each other at the start."""
LOST = re.compile("Gloo|NCCL|RCCL|UNAVAILABLE|connection|heartbeat|coordination", re.IGNORECASE)
"""What an error speaks of where another host has ended."""
LEAVE_SECONDS = 20
"""How long a host that ends waits for the others to end too, before all are ended."""


def join(hosts: Any) -> None:
    """Make this process one host of several, before JAX's backend starts; null: it is the only one.

    "auto" takes what Slurm, a TPU pod, Kubernetes or Open MPI tell; else host `index` of `count` is told where the
    first one listens. All but the first fall silent.

    Raises   UserError for values that say nothing of the kind, and where the hosts do not find each other.
    """
    if hosts is None:
        return
    told = {} if hosts == "auto" else _read(hosts)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Its handler would take SIGTERM away from a process that is not training yet, or no longer.
    jax.config.update("jax_enable_preemption_service", False)
    failed: list[Exception] = []

    def initialize() -> None:
        try:
            # Its own time-out ends the process.
            jax.distributed.initialize(
                **told, initialization_timeout=2 * JOIN_SECONDS, shutdown_timeout_seconds=LEAVE_SECONDS
            )
        except Exception as error:
            failed.append(error)

    print(f"waiting for the other hosts, for {JOIN_SECONDS} s at most", file=sys.stderr, flush=True)
    joining = threading.Thread(target=initialize, daemon=True)
    joining.start()
    joining.join(JOIN_SECONDS)
    require(
        not joining.is_alive(),
        f"trainer.hosts is {hosts}, but not all hosts have come together within {JOIN_SECONDS} s: expected the same "
        "address and count on each, and every index once",
    )
    if failed:
        reason = (str(failed[0]).strip() or type(failed[0]).__name__).splitlines()[0][:160].rstrip(".")
        where = "" if told else " from Slurm, a TPU pod, Kubernetes or Open MPI"
        raise UserError(f"trainer.hosts is {hosts}, but nothing can be joined{where}: {reason}") from failed[0]
    if not is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)


class LostHosts(UserError):
    """Another host has ended, and nothing that waits for it can be done any more."""


@contextlib.contextmanager
def telling_of_lost_hosts(directory: Path) -> Iterator[None]:
    """Where a computation fails since another host has ended, say so, and end without waiting for that one.

    Raises   LostHosts, which says how to go on with the run in `directory`.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or not LOST.search(str(error)):
            raise
        # Before JAX's own farewell, which waits for all hosts and aborts the process.
        atexit.register(_end_alone)
        raise LostHosts(
            f"Another host of this run has ended: start all of them again with resume={directory}, and they go on "
            "from the last state that was saved"
        ) from error


def _end_alone() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)


def is_first() -> bool:
    """Whether this is the host that shows, logs and writes."""
    return jax.process_index() == 0


def first_says(say: Callable[[], T]) -> T:
    """What `say()` gives on the first host, on every host; it is called there alone, and gives what JSON can hold.

    Raises   on every host where the first one does; a UserError as such.
    """
    if jax.process_count() == 1:
        return say()
    raised, told = None, b""
    if is_first():
        try:
            told = json.dumps([None, say()]).encode()
        except Exception as error:
            raised = error
            told = json.dumps([isinstance(error, UserError), f"{error}"]).encode()
    n_bytes = int(multihost_utils.broadcast_one_to_all(np.int32(len(told))))
    # Padded to a few sizes, since each is compiled once.
    padded = np.frombuffer(told.ljust(max(256, 1 << (n_bytes - 1).bit_length()), b" "), np.uint8)
    is_mistake, said = json.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())
    if raised is not None:
        raise raised
    if is_mistake is not None:
        raise UserError(said) if is_mistake else RuntimeError(f"The first host failed: {said}")
    return said


def each_says(number: int) -> list[int]:
    """The numbers that the hosts say, in their order."""
    if jax.process_count() == 1:
        return [number]
    return [int(said) for said in multihost_utils.process_allgather(np.int32(number))]


def meet() -> None:
    """Wait until every host is here."""
    each_says(0)


def require_same(what: str, told: bytes) -> None:
    """Refuse hosts that were told different things."""
    sums = each_says(zlib.crc32(told) >> 1)
    others = [str(host) for host, said in enumerate(sums) if said != sums[0]]
    require(not others, f"{what} of host {', '.join(others)} differ from host 0's: all hosts are to have the same")


def hold(tree: Any, sharding: Sharding) -> Any:
    """Arrays with the values of a tree, which are the same on every host, laid over devices.

    Raises   UserError where hosts have different values.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    tree = jax.tree.map(np.asarray, tree)
    require_same("The data that hosts read", b"".join(leaf.tobytes() for leaf in jax.tree.leaves(tree)))
    return hold_part(tree, tree, slice(0, None), sharding)


def hold_part(part: Any, like: Any, rows: slice, sharding: Sharding) -> Any:
    """Arrays of the shapes of `like` laid over devices, of which this host has the `rows` that its devices hold."""
    if sharding.is_fully_addressable:
        return jax.device_put(part, sharding)

    def lay(leaf: np.ndarray, whole: Any) -> jax.Array:
        def share(index: Any) -> np.ndarray:
            first, last, _ = index[0].indices(whole.shape[0])
            return leaf[(slice(first - rows.start, last - rows.start), *index[1:])]

        return jax.make_array_from_callback(whole.shape, sharding, share)

    return jax.tree.map(lay, part, like)


def own_rows(sharding: Sharding, n_rows: int) -> slice:
    """The rows of a batch that this host's devices hold."""
    places: Any = sharding.addressable_devices_indices_map((n_rows,)).values()
    held = [rows[0].indices(n_rows) for rows in places]
    return slice(min(first for first, _, _ in held), max(last for _, last, _ in held))


def fetch(tree: Any) -> Any:
    """The values of arrays as NumPy's, whole on every host."""

    def whole(leaf: Any) -> Any:
        elsewhere = isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated)
        return multihost_utils.process_allgather(leaf, tiled=True) if elsewhere else leaf

    return jax.device_get(jax.tree.map(whole, tree))


def _read(hosts: Any) -> dict[str, Any]:
    """The arguments of `jax.distributed.initialize`."""
    keys = ["address", "count", "index"]
    given = isinstance(hosts, Mapping) and sorted(hosts) == keys
    require(given, f"trainer.hosts is {hosts}: {EXPECTED}")
    address, count, index = (hosts[key] for key in keys)
    host, colon, port = str(address).rpartition(":")
    require(
        bool(host and colon) and port.isdigit() and 0 < int(port) < 2**16,
        f"trainer.hosts.address is {address!r}: expected HOST:PORT, where the first host listens",
    )
    for key, value, least, most in (("count", count, 1, None), ("index", index, 0, count)):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= least
        within = is_count and (most is None or value < most)
        upto = "" if most is None else f" to {most - 1}"
        require(within, f"trainer.hosts.{key} is {value!r}: expected a whole number from {least}{upto}")
    return {
        "coordinator_address": address,
        "num_processes": count,
        "process_id": index,
        # What is told is all that counts, also within Slurm.
        "cluster_detection_method": "deactivate",
    }
