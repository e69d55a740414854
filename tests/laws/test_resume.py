"""The law of resuming: a run that was cut anywhere and gone on with is the uninterrupted run, bit for bit."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from seqlab.build import Parts, build
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.loggers.composite import Loggers
from seqlab.training.loggers.jsonl import JsonlLogger, read_events
from seqlab.training.loop import Loop, Outcome, Progress
from seqlab.training.programs import Programs
from seqlab.types import Event, Exhibit, Run, UserError

OVERRIDES = (
    "task=reverse",
    "model.encoder.features=5",
    "model.inputs.features=3",
    "model.dropout=0.3",
    "task.n_eval=7",
    "schedule=cosine",
    "schedule.warmup_steps=5",
    "optim.weight_decay=0.01",
    "trainer.batch_size=6",
    "trainer.accumulate=3",
    "trainer.steps=31",
    "trainer.log_every=4",
    "trainer.eval_every=10",
    "trainer.save_every=7",
    "trainer.ema=0.9",
)


@dataclasses.dataclass
class Cutter:
    """A logger that raises at event `at`, or sends this process `sends` there."""

    at: int
    sends: signal.Signals | None = None
    seen: int = 0

    def start(self, run: Run) -> None:
        pass

    def advance(self, step: int) -> None:
        pass

    def show(self, exhibit: Exhibit) -> None:
        pass

    def log(self, event: Event) -> None:
        self.seen += 1
        if self.seen != self.at:
            return
        if self.sends is None:
            raise UserError("cut")  # the one kind of error that the composite lets through
        os.kill(os.getpid(), self.sends)

    def finish(self, status: str, summary: dict) -> None:
        pass


@pytest.fixture(scope="module")
def parts(compose) -> Parts:
    return build(compose(*OVERRIDES))


@pytest.fixture(scope="module")
def programs(parts) -> Programs:
    programs = Programs(parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:2], [0, 1])
    programs.compile()
    return programs


def go(parts, programs, directory: Path, *others, settings=None, look=None) -> Outcome:
    """Start or go on with the run in `directory`, as `seqlab.train` does."""
    directory.mkdir(exist_ok=True)
    checkpoints = Checkpoints(directory / "checkpoints")
    state, progress, resumed_from = programs.init(), Progress(), checkpoints.latest_step()
    if resumed_from is not None:
        state, host = checkpoints.restore("latest", programs.state_like)
        progress = Progress(**host)
    logger = Loggers([JsonlLogger(), *others])
    settings = settings or parts.settings
    try:
        logger.start(Run(directory, "test", "test", (), "", {}, settings.steps, 2, resumed_from))
        return Loop(settings, programs, checkpoints, logger, progress, look).run(state)
    finally:
        checkpoints.close()
        logger.finish("", {})


def what_it_left(programs, directory: Path):
    checkpoints = Checkpoints(directory / "checkpoints")
    latest, host = checkpoints.restore("latest", programs.state_like)
    best, _ = checkpoints.restore("best", programs.state_like)
    checkpoints.close()
    lines = [(event.step, event.split, event.values) for event in read_events(directory / "metrics.jsonl")]
    return jax.device_get((latest, best)), {k: v for k, v in host.items() if "seconds" not in k}, lines


@pytest.fixture(scope="module")
def uninterrupted(parts, programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    outcome = go(parts, programs, directory)
    assert (outcome.status, outcome.step) == ("completed", 31)
    return what_it_left(programs, directory)


@pytest.mark.parametrize(
    "cuts", [(1, 2), pytest.param((3, 1), marks=pytest.mark.slow), pytest.param((6, 9), marks=pytest.mark.slow), (13,)]
)
def test_cut_anywhere_and_resumed(parts, programs, uninterrupted, tmp_path, cuts):
    for cut in cuts:
        with pytest.raises(UserError, match="cut"):
            go(parts, programs, tmp_path, Cutter(cut))
    assert go(parts, programs, tmp_path).status == "completed"
    assert_same(what_it_left(programs, tmp_path), uninterrupted)


@pytest.mark.parametrize(("every", "steps"), [(6, [0, 6, 12, 18, 24, 30, 31]), (None, [0, 31])])
@pytest.mark.slow
def test_who_looks_on_changes_nothing_and_sees_the_same_when_resumed(
    parts, programs, uninterrupted, tmp_path, every, steps
):
    settings = dataclasses.replace(parts.settings, analyze_every=every)

    def go_and_look(directory, *others):
        def look(step, params_R):
            seen.setdefault(step, []).append(params_R)

        go(parts, programs, directory, *others, settings=settings, look=look)

    seen = {}
    go_and_look(tmp_path / "whole")
    assert list(seen) == steps and all(len(looks) == 1 for looks in seen.values())
    assert {len(leaf) for leaf in jax.tree.leaves(seen)} == {2} and type(jax.tree.leaves(seen)[0]) is np.ndarray
    assert_same(what_it_left(programs, tmp_path / "whole"), uninterrupted)
    jax.tree.map(np.testing.assert_array_equal, seen[31][0], uninterrupted[0][0].eval_params)
    with pytest.raises(UserError, match="cut"):
        go_and_look(tmp_path / "cut", Cutter(8))
    go_and_look(tmp_path / "cut")
    assert sorted(seen) == steps
    for looks in seen.values():
        for again in looks[1:]:
            jax.tree.map(np.testing.assert_array_equal, looks[0], again)
    assert_same(what_it_left(programs, tmp_path / "cut"), uninterrupted)


@pytest.mark.slow
def test_the_seconds_of_a_run_are_those_of_all_its_processes(parts, programs, tmp_path):
    def seconds():
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        _, host = checkpoints.restore("latest", programs.state_like)
        checkpoints.close()
        return host["wall_seconds"]

    began = time.perf_counter()
    go(parts, programs, tmp_path, Cutter(4, signal.SIGTERM))
    first, asleep = seconds(), time.perf_counter()
    assert 0 < first < asleep - began
    time.sleep(1)
    again = time.perf_counter()
    go(parts, programs, tmp_path)
    # What lies between two processes is nobody's.
    assert first < seconds() < first + time.perf_counter() - again


@pytest.mark.parametrize("sends", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_asked_to_stop_saves_and_resumes(parts, programs, uninterrupted, tmp_path, sends):
    outcome = go(parts, programs, tmp_path, Cutter(4, sends))
    assert outcome.status == "interrupted"
    assert outcome.step < 31
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == outcome.step
    assert go(parts, programs, tmp_path).status == "completed"
    assert_same(what_it_left(programs, tmp_path), uninterrupted)


def test_applied_rates_are_the_schedule(parts, uninterrupted):
    _, _, lines = uninterrupted
    applied = {step: values["learning_rate"] for step, split, values in lines if split == "train"}
    assert list(applied) == [4, 8, 12, 16, 20, 24, 28, 31]
    for step, rates in applied.items():
        assert rates == pytest.approx([float(parts.optimiser.applied_learning_rate(step - 1))] * 2, rel=1e-6)
    assert len({rates[0] for rates in applied.values()}) == 8


def test_nothing_is_compiled_in_the_loop(parts, programs, uninterrupted, tmp_path):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    before = programs.n_compiled
    go(parts, programs, tmp_path)
    assert (programs.n_compiled, compiled) == (before, [])


def test_early_stopping(parts, programs, tmp_path):
    # The loss falls, so that with mode=max no evaluation after the first is better.
    settings = dataclasses.replace(parts.settings, patience=2, mode="max", eval_every=3)
    looked = []
    outcome = go(parts, programs, tmp_path, settings=settings, look=lambda step, _: looked.append(step))
    assert outcome.status == "stopped early"
    assert looked == [0, outcome.step]
    again = go(parts, programs, tmp_path, settings=settings)
    assert (again.status, again.step) == (outcome.status, outcome.step)


def assert_same(ours, theirs):
    (states, host, lines), (states_there, host_there, lines_there) = ours, theirs
    jax.tree.map(np.testing.assert_array_equal, states, states_there)
    assert host == host_there
    assert lines == lines_there
