"""What can be set about training: the node `trainer` of the config."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from seqlab.types import require

DTYPES = ("float32", "bfloat16")
MODES = ("min", "max")
# A trace is held in memory until it ends: some 0.4 MB an update of a small model (39,000 took 16 GB), and more with
# longer rows.
MOST_TRACED = 1000


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long, how large, how often.

    steps              updates in all
    batch_size         rows an update
    accumulate         micro-batches that an update's batch is split into
    eval_batch_size    rows that evaluation handles together
    log_every, eval_every, save_every   updates between two training events, evaluations, checkpoints
    analyze_every      updates between two looks at the model by the analyses chosen; None: at the start and the end
    monitor, mode      "set/metric" that picks the best checkpoint, and whether "min" or "max" is better
    patience           evaluations without a better monitor before stopping early; None: never
    ema                decay of the moving average of the parameters, which is then what is measured; None: off
    dtype              "float32", or "bfloat16" for mixed precision
    max_nonfinite      skipped updates in a row after which training stops
    profile            whether a trace is kept of up to ten updates once training is under way; or [first, last], the
                       steps between which it is taken, at most 1,000 updates
    cpu_devices        CPU cores used as devices: "auto" (all) or a count
    hosts              the processes that train together: None for this one alone, "auto" where Slurm, a TPU pod,
                       Kubernetes or Open MPI tell them, or {address: HOST:PORT of the first, count: N, index: I}

    Raises   UserError for a value outside its range, naming it.
    """

    steps: int
    batch_size: int
    accumulate: int
    eval_batch_size: int
    log_every: int
    eval_every: int
    save_every: int
    analyze_every: int | None
    monitor: str
    mode: str
    patience: int | None
    ema: float | None
    dtype: str
    max_nonfinite: int
    profile: bool | Sequence[int]
    cpu_devices: int | str
    hosts: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        counts = ("steps", "batch_size", "accumulate", "eval_batch_size", "log_every", "eval_every", "save_every")
        for field in (*counts, "max_nonfinite"):
            _require_count(field, getattr(self, field))
        for field in ("patience", "analyze_every"):
            if getattr(self, field) is not None:
                _require_count(field, getattr(self, field))
        require(
            self.batch_size % self.accumulate == 0,
            f"trainer.batch_size is {self.batch_size}, which trainer.accumulate = {self.accumulate} does not divide",
        )
        if not isinstance(self.profile, bool):
            _require_span("profile", self.profile, self.steps)
        require(
            self.ema is None or 0.0 < self.ema < 1.0,
            f"trainer.ema is {self.ema}: expected a decay between 0 and 1, or null for none",
        )
        require_choice("trainer.dtype", self.dtype, DTYPES)
        require_choice("trainer.mode", self.mode, MODES)
        require("/" in self.monitor, f'trainer.monitor is {self.monitor!r}: expected "set/metric"')

    @property
    def profiled(self) -> tuple[int, int] | None:
        """The steps between which a trace is taken."""
        if isinstance(self.profile, bool):
            return (min(10, self.steps // 2), min(20, self.steps)) if self.profile else None
        first, last = self.profile
        return first, last

    def require_monitor(self, measured: list[str]) -> None:
        """Refuse a monitor that is not among the "set/metric" names that the task measures."""
        require_choice("trainer.monitor", self.monitor, measured)


def _require_count(field: str, value: int) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    require(is_count, f"trainer.{field} is {value!r}: expected a whole number from 1")


def _require_span(field: str, value: Any, steps: int) -> None:
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    counts = all(isinstance(step, int) and not isinstance(step, bool) and step >= 0 for step in given)
    is_span = len(given) == 2 and counts and given[0] < given[1] <= steps
    expected = f"expected true, false, or [first, last] with first < last, at most trainer.steps = {steps}"
    require(is_span, f"trainer.{field} is {value!r}: {expected}")
    n_updates = given[1] - given[0]
    require(
        n_updates <= MOST_TRACED,
        f"trainer.{field} is {value!r}, {n_updates:,} updates: expected at most {MOST_TRACED:,}, since memory holds a "
        "trace until it ends",
    )


def require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not among its choices, naming the nearest."""
    nearest = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)[0]
    require(value in choices, f"{name} is {value!r}: expected one of {', '.join(choices)} (nearest: {nearest})")
