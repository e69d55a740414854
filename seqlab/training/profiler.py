"""A trace of some updates, for the profiler's viewers, and what their time went into."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax

from seqlab.files import to_json, write_whole

# Spans of Python and of the runtime, and loops, which hold other spans.
_HOLDERS = re.compile(r"[$:()]|^(Thunk|Execute|Run|Pjit|jit_|Wait|Rendezvous|np\.|(while|conditional|call)\b)")
N_TOLD = 20
SUMMED_OVER = "cores and devices, which work at the same time: they may be more than an update takes"


class Profiler:
    """Trace the updates after step `first` up to step `last` into a directory.

    `perfetto_trace.json.gz` below it opens at ui.perfetto.dev, or in `chrome://tracing` once unpacked; `tensorboard
    --logdir` with xprof's plug-in reads it too. `operations.json` says how many milliseconds an update each kind of
    operation took in the latest trace, as far as it names them, summed over cores and devices, which work at the
    same time, waiting for each other included: they may be more than an update takes.
    """

    def __init__(self, directory: Path, first: int, last: int) -> None:
        self.directory = directory
        self._first, self._last = first, last
        self._began: int | None = None

    def ahead(self, step: int) -> int | None:
        """How many updates may be made in one go from this step on; None: any number."""
        return next((bound - step for bound in (self._first, self._last) if step < bound), None)

    def at(self, step: int) -> None:
        """Begin or end the trace, where it is time."""
        if step == self._first:
            self.directory.mkdir(parents=True, exist_ok=True)
            jax.profiler.start_trace(str(self.directory), create_perfetto_trace=True)
            self._began = step
        elif step >= self._last:
            self.close(step)

    def close(self, step: int) -> None:
        """End a trace that is under way, and sum it up."""
        if self._began is None:
            return
        n_updates, self._began = step - self._began, None
        jax.profiler.stop_trace()
        if n_updates:
            told = {"updates": n_updates, "summed_over": SUMMED_OVER, "ms_an_update": sum_up(self.directory, n_updates)}
            write_whole(self.directory / "operations.json", to_json(told, indent=1) + "\n")


def sum_up(directory: Path, n_updates: int) -> dict[str, float]:
    """Milliseconds an update by kind of operation in the latest trace, the longest first."""
    found: Counter[str] = Counter()
    # A run that was resumed may have been traced before.
    latest = max(directory.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime_ns)
    profile: Any = jax.profiler.ProfileData.from_file(str(latest))
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                if not _HOLDERS.search(event.name):
                    found[re.sub(r"[.\d]+$", "", event.name)] += event.duration_ns
    return {name: round(ns / 1e6 / n_updates, 4) for name, ns in found.most_common(N_TOLD)}
