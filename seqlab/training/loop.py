"""The host's side of training: what happens between two dispatches."""

import dataclasses
import math
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from seqlab.evaluation.evaluate import finalise
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.hosts import each_says, fetch, first_says
from seqlab.training.profiler import Profiler
from seqlab.training.programs import Programs
from seqlab.training.recompiling import tell_compilations
from seqlab.training.settings import Settings
from seqlab.training.state import State
from seqlab.training.stopping import StopRequest
from seqlab.types import Event, Logger, Params

# A dispatch is kept about this long: long against its overhead, short against the patience of who presses Ctrl-C.
DISPATCH_SECONDS = 0.5

Look = Callable[[int, Params], None]
"""Looks at the parameters that are measured, on the host and with the replicas first, at a step."""


@dataclasses.dataclass
class Progress:
    """What the host remembers; saved with each checkpoint.

    `seconds` is the time spent in updates alone, `wall_seconds` all since the command, and `compile_seconds` a part of
    that; each is summed over the processes that a run has had.
    """

    best_value: float | None = None
    best_step: int | None = None
    without_gain: int = 0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    compile_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: "completed", "stopped early", "interrupted" or "diverged", and in a sentence why.

    `skipped` and `diverged_R` hold one entry a replica: its skipped updates, and whether it came to stand still.
    """

    status: str
    message: str
    step: int
    skipped_R: list[int]
    diverged_R: list[bool]


class Loop:
    """Train from a state to the end of the settings' steps, logging, measuring and saving on the way.

    Every event happens at a step that depends on the settings alone, never on the clock or on where a run was resumed,
    and the sums of a training event live in the state: a resumed run writes the same lines as an uninterrupted one.
    A replica that diverges stands still while the others go on; when all have, training stops. `look` is called at the
    start, every `analyze_every` steps and at the end; `profiler` traces the updates that it wants.
    """

    def __init__(
        self,
        settings: Settings,
        programs: Programs,
        checkpoints: Checkpoints,
        logger: Logger,
        progress: Progress,
        look: Look | None = None,
        profiler: Profiler | None = None,
        began: float | None = None,
    ) -> None:
        self._settings, self._programs = settings, programs
        self._checkpoints, self._logger = checkpoints, logger
        self.progress = progress
        self._look, self._profiler = look, profiler
        self._began = (time.perf_counter() if began is None else began) - progress.wall_seconds
        # A run is the same to the bit whoever looks on: a stretch between two events may be cut anywhere.
        self._look_every = None if look is None else settings.analyze_every
        everys = settings.log_every, settings.eval_every, settings.save_every, self._look_every
        self._everys = [every for every in everys if every is not None]
        self._dispatch = 1
        self._updates, self._seconds, self._waited = 0, 0.0, 0.0  # since the last training event

    def run(self, state: State) -> Outcome:
        """Run to the end, or to the first reason to stop; the last state is saved in every case."""
        settings = self._settings
        step = _step(state)
        ending = self._reason_to_stop(state, step)
        if step == 0:
            self._show(state, step)
        try:
            with StopRequest() as stop:
                while ending is None and step < settings.steps:
                    state, step = self._advance(state, step)
                    at_end = step == settings.steps
                    diverged = all(self._diverged_R(state))
                    if step % settings.log_every == 0 or at_end or diverged:
                        state = self._log_training(state, step)
                    if (step % settings.eval_every == 0 or at_end) and not diverged:
                        self._evaluate(state, step)
                    ending = self._reason_to_stop(state, step)
                    asked = max(each_says(stop.signal))
                    if asked and ending is None and not at_end:
                        ending = "interrupted", f"{signal.Signals(asked).name} after step {step} of {settings.steps}"
                    at_end = at_end or (ending is not None and ending[0] != "interrupted")
                    if at_end or (self._look_every is not None and step % self._look_every == 0):
                        self._show(state, step)
                    if step % settings.save_every == 0 or at_end or ending is not None:
                        self._checkpoints.save_latest(step, state, self._remember())
        finally:
            if self._profiler is not None:
                self._profiler.close(step)
        self._checkpoints.wait()
        status, message = ending or ("completed", f"all {settings.steps} steps done")
        return Outcome(status, message, step, _per_replica(state.skipped), self._diverged_R(state))

    def _remember(self) -> dict[str, Any]:
        self.progress.wall_seconds = time.perf_counter() - self._began
        return dataclasses.asdict(self.progress)

    def _advance(self, state: State, step: int) -> tuple[State, int]:
        settings = self._settings
        ahead = min(every - step % every for every in self._everys)
        n_steps = min(self._dispatch, ahead, settings.steps - step)
        if self._profiler is not None:
            self._profiler.at(step)
            n_steps = min(n_steps, self._profiler.ahead(step) or n_steps)
        n_steps = first_says(lambda: n_steps)  # The length of a dispatch is the clock's, and clocks differ.
        began = time.perf_counter()
        with tell_compilations(step):
            state = self._programs.advance(state, n_steps)
        seconds = time.perf_counter() - began
        self._updates += n_steps
        self._seconds += seconds
        self.progress.seconds += seconds
        wanted = int(n_steps * DISPATCH_SECONDS / max(seconds, 1e-9))
        self._dispatch = max(1, min(wanted, 4 * self._dispatch))
        step = _step(state)
        self._logger.advance(step)
        return state, step

    def _log_training(self, state: State, step: int) -> State:
        values = {name: _per_replica(value) for name, value in finalise(fetch(state.sums)).items()}
        tokens = values.pop("tokens")
        values["learning_rate"] = _per_replica(state.learning_rate)
        values["skipped"] = _per_replica(state.skipped)
        rate = self._updates / self._seconds
        rates = {"steps_per_second": rate, "tokens_per_second": rate * float(np.nansum(tokens))}
        waiting = self._programs.waiting_seconds
        if waiting is not None:
            rates["share_of_time_waiting_for_data"] = (waiting - self._waited) / self._seconds
            self._waited = waiting
        self._updates, self._seconds = 0, 0.0
        self._logger.log(Event(step, "train", values, rates, time.time()))
        return self._programs.clear_sums(state)

    def _evaluate(self, state: State, step: int) -> None:
        monitored = math.nan
        split, metric = self._settings.monitor.split("/", 1)
        for name, sums in self._programs.evaluate(state.eval_params).items():
            values = {metric: _per_replica(value) for metric, value in finalise(sums).items()}
            self._logger.log(Event(step, name, values, {}, time.time()))
            if name == split:
                monitored = float(np.mean(values[metric]))
        progress = self.progress
        sign = 1.0 if self._settings.mode == "min" else -1.0
        if math.isfinite(monitored) and (progress.best_value is None or sign * monitored < sign * progress.best_value):
            progress.best_value, progress.best_step, progress.without_gain = monitored, step, 0
            self._checkpoints.save_best(step, state, self._remember())
        else:
            progress.without_gain += 1

    def _show(self, state: State, step: int) -> None:
        if self._look is not None:
            self._look(step, fetch(state.eval_params))

    def _diverged_R(self, state: State) -> list[bool]:
        return [run >= self._settings.max_nonfinite for run in _per_replica(state.skipped_run)]

    def _reason_to_stop(self, state: State, step: int) -> tuple[str, str] | None:
        settings, progress = self._settings, self.progress
        if all(self._diverged_R(state)):
            return "diverged", (
                f"the loss or a gradient was not finite in {settings.max_nonfinite} updates in a row, the last at step "
                f"{step}: try a lower optim.learning_rate or optim/clip=global_norm"
            )
        if settings.patience is not None and progress.without_gain >= settings.patience:
            return "stopped early", (
                f"{settings.monitor} has not improved in {settings.patience} evaluations, "
                f"the best was at step {progress.best_step}"
            )
        return None


def _step(state: State) -> int:
    return max(_per_replica(state.step))


def _per_replica(leaf_R: Any) -> list[Any]:
    return np.asarray(fetch(leaf_R)).tolist()
