"""Which devices a run uses, and how replicas and rows are laid over them.

On a CPU, XLA spreads neither elementwise work nor small matmuls over the cores, but it runs several CPU *devices* side
by side. So `cpu_devices="auto"` makes every core a device and the ordinary mesh path does the rest.
"""

import itertools
import logging
import math
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from seqlab.training.hosts import join
from seqlab.types import require

_log = logging.getLogger(__name__)
AXES = ("replica", "data")


def start(cpu_devices: int | str, hosts: Any = None) -> list[jax.Device]:
    """Start JAX's backend with `cpu_devices` CPU devices ("auto": one a core) and return the devices of the run.

    With several `hosts` (`hosts.join`) each has so many, and those of all are returned.

    The count is the process's: once the backend runs it can be lowered (a later job of a sweep may ask for fewer
    devices) but not raised. On an accelerator all of its devices are returned and `cpu_devices` is ignored.

    More devices than cores are a warning, not refused: they only take turns, and a run that was trained on more cores
    is measured and gone on with on fewer by its own config, whose devices make the same sums.

    Raises   UserError for a count below 1, for one that the running backend can't serve, and as `hosts.join`.
    """
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    is_count = isinstance(cpu_devices, int) and not isinstance(cpu_devices, bool) and cpu_devices >= 1
    require(
        cpu_devices == "auto" or is_count, f'trainer.cpu_devices is {cpu_devices!r}: expected "auto" or a count from 1'
    )
    n_devices = n_cores if cpu_devices == "auto" else int(cpu_devices)
    _prepare_cpu(n_devices)
    join(hosts)
    devices = jax.devices()
    if devices[0].platform != "cpu":
        return devices
    if n_devices > n_cores:
        _log.warning("trainer.cpu_devices is %d, more than there are cores (%d): slower", n_devices, n_cores)
    if cpu_devices == "auto":
        return devices
    require(
        n_devices <= jax.local_device_count(),
        f"trainer.cpu_devices is {n_devices}, but this process has started with {jax.local_device_count()}: "
        "start the run in a process of its own",
    )
    return _first_of_each_host(devices, n_devices)


def _prepare_cpu(n_devices: int) -> None:
    if n_devices == 1:
        return
    try:
        jax.config.update("jax_num_cpu_devices", n_devices)
    except RuntimeError:  # the backend runs already, and with it everything below is settled
        return
    # One thread a device: with a pool shared by all matmuls the devices wait for each other.
    flag = "--xla_cpu_multi_thread_eigen=false"
    if flag not in os.environ["XLA_FLAGS"]:
        os.environ["XLA_FLAGS"] += f" {flag}"
    # XLA sizes the pool that runs the devices by NPROC. More threads than devices take turns on a device's work and
    # wait for each other at every hand-over (seen: half as fast). With so few, collectives of programs that are in
    # flight together can wait for each other for ever (seen with jax 0.8.3 to 0.10.2): whoever runs on several CPU
    # devices waits for each program before starting the next, as `Programs` does.
    os.environ.setdefault("NPROC", str(n_devices))


def make_mesh(devices: list[jax.Device], n_replicas: int, rows: int) -> Mesh:
    """Lay replicas, then rows, over the devices: axes ("replica", "data").

    replica = gcd(n_replicas, n_devices),  data = gcd(rows, n_devices / replica)

    `rows` is what one device pass handles together: the batch, or the micro-batch when gradients are accumulated.
    Devices that divide neither are left idle, as many on each host, with a warning.

    Raises   UserError where a host would have nothing to do.
    """
    n_replica_shards = math.gcd(n_replicas, len(devices))
    n_data_shards = math.gcd(rows, len(devices) // n_replica_shards)
    n_used, n_hosts = n_replica_shards * n_data_shards, len({device.process_index for device in devices})
    require(
        n_used % n_hosts == 0,
        f"{n_hosts} hosts cannot share {rows} rows, the batch or micro-batch, of {n_replicas} replicas evenly: choose "
        f"a trainer.batch_size that {n_hosts} divides",
    )
    if n_used < len(devices):
        told = "%d of %d devices have nothing to do: neither %d replicas nor the %d rows of a batch divide among more"
        _log.warning(told, len(devices) - n_used, len(devices), n_replicas, rows)
    used = np.array(_first_of_each_host(devices, n_used // n_hosts))
    return Mesh(used.reshape(n_replica_shards, n_data_shards), AXES)


def _first_of_each_host(devices: list[jax.Device], count: int) -> list[jax.Device]:
    by_host = itertools.groupby(sorted(devices, key=lambda device: device.process_index), lambda d: d.process_index)
    return [device for _, own in by_host for device in itertools.islice(own, count)]
