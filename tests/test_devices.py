"""How many devices a run may ask for."""

import os
from collections.abc import Iterator

import jax
import pytest

from seqlab.training.devices import start


@pytest.fixture
def one_core() -> Iterator[None]:
    """A thread that may use one core alone."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say which cores are given")
def test_more_devices_than_cores_are_given_with_a_warning_in_one_line(one_core, caplog):
    for count in (1, "auto"):
        start(count)
        assert not caplog.messages
    assert start(3) == jax.devices()[:3]
    assert caplog.messages == ["trainer.cpu_devices is 3, more than there are cores (1): slower"]
