"""How much memory a run took at most, in a process that may have made others before."""

import contextlib
import re
import resource
import sys
from pathlib import Path

import jax


class PeakMemory:
    """The most memory that the accelerator, or without one the process, has held from here on.

    Linux alone can forget what a process held before. Elsewhere a run that stays below the peak of an earlier one has
    no number.
    """

    def __init__(self) -> None:
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
        self._before = _peak()

    def mebibytes(self) -> int | None:
        """The peak up to now; None where it was one of before."""
        peak = _peak()
        return round(peak / 2**20) if peak > self._before else None


def _peak() -> int:
    """The accelerator's peak in bytes where there is one, else that of the process."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return int(statistics["peak_bytes_in_use"])
    if sys.platform == "linux":
        # Not `ru_maxrss`, which begins with the peak of the process that started this one.
        told = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        assert told is not None, "Linux tells the peak of a process"
        return int(told[1]) * 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes
