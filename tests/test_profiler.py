"""A trace of some updates, and the warning where one compiles."""

import gzip
import json
import logging
import shutil
import time

import jax
import jax.numpy as jnp
import pytest

from seqlab.build import build
from seqlab.files import read_json
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.loggers.composite import Loggers
from seqlab.training.loop import Loop, Progress
from seqlab.training.profiler import Profiler
from seqlab.training.programs import Programs
from seqlab.training.recompiling import tell_compilations
from seqlab.types import UserError


@pytest.fixture(scope="module")
def made(compose):
    """The settings and programs of a run of seven updates, compiled once."""
    tiny = "+debug=tiny", "task=copy_first", "task.length=5", "model/cell=rnn", "trainer.log_every=7"
    parts = build(compose(*tiny, "trainer.steps=7", "trainer.eval_every=7", "trainer.save_every=7"))
    programs = Programs(
        parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:1], parts.seeds
    )
    programs.compile()
    return parts.settings, programs


@pytest.fixture
def train(made, tmp_path, monkeypatch):
    """Train with a trace of the updates from 2 to 5; `advance` takes the place of the program that advances."""

    settings, programs = made

    def train(advance):
        monkeypatch.setattr(programs, "advance", advance)
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        profiler = Profiler(tmp_path / "profile", 2, 5)
        try:
            Loop(settings, programs, checkpoints, Loggers([]), Progress(), None, profiler).run(programs.init())
        finally:
            checkpoints.close()

    return train


@pytest.mark.slow
def test_a_trace_holds_the_updates_that_were_asked_for_after_one_that_failed_too(made, train, tmp_path):
    advanced, advance = [], made[1].advance

    def failing(state, n_steps):
        if int(state.step[0]) >= 3:
            raise KeyboardInterrupt
        return advance(state, n_steps if int(state.step[0]) < 2 else 1)

    def watched(state, n_steps):
        advanced.append((int(state.step[0]), n_steps))
        with jax.profiler.TraceAnnotation(f"from {advanced[-1][0]}"):
            return advance(state, n_steps)

    with pytest.raises(KeyboardInterrupt):
        train(failing)
    told = read_json(tmp_path / "profile" / "operations.json")
    assert told["updates"] == 1
    shutil.rmtree(tmp_path / "profile")
    train(watched)
    assert {2, 5} <= {step for step, _ in advanced} and sum(n for _, n in advanced) == 7
    [trace] = (tmp_path / "profile").rglob("perfetto_trace.json.gz")
    names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    inside = {f"from {step}" for step, _ in advanced if 2 <= step < 5}
    assert inside <= names and not names & {f"from {step}" for step, _ in advanced if not 2 <= step < 5}
    told = read_json(tmp_path / "profile" / "operations.json")
    assert told["updates"] == 3 and told["ms_an_update"] and all(ms >= 0 for ms in told["ms_an_update"].values())


def test_a_second_trace_is_summed_up_alone(tmp_path):
    def trace(name):
        profiler = Profiler(tmp_path, 2, 5)
        profiler.at(2)
        with jax.profiler.TraceAnnotation(name):
            time.sleep(0.03)
        profiler.at(5)
        return read_json(tmp_path / "operations.json")

    assert trace("before")["ms_an_update"]["before"] >= 10
    # The profiler names a folder by the second: an earlier trace lies in another.
    [folder] = (tmp_path / "plugins" / "profile").iterdir()
    folder.rename(folder.with_name("earlier"))
    told = trace("after")
    assert told["ms_an_update"]["after"] >= 10 and "before" not in told["ms_an_update"]
    assert told["updates"] == 3 and "cores" in told["summed_over"]


@pytest.mark.parametrize(
    ("given", "steps", "profiled"),
    [
        ("true", 100, (10, 20)),
        ("true", 6, (3, 6)),
        ("false", 6, None),
        ("[4,9]", 9, (4, 9)),
        ("[7,1007]", 2000, (7, 1007)),
    ],
)
def test_the_updates_that_are_traced(compose, given, steps, profiled):
    parts = build(compose("task=copy_first", f"trainer.profile={given}", f"trainer.steps={steps}"))
    assert parts.settings.profiled == profiled


@pytest.mark.parametrize("given", ["[3]", "[5,5]", "[7,2000]", "[-1,4]", "7", "[a,b]"])
def test_updates_that_cannot_be_traced_are_refused(compose, given):
    with pytest.raises(Exception, match=r"trainer.profile is .*: expected true, false, or \[first, last\]") as error:
        build(compose("task=copy_first", f"trainer.profile={given}"))
    assert isinstance(error.value.__cause__, UserError)


def test_a_trace_that_memory_may_not_hold_is_refused(compose):
    told = r"trainer.profile is \[20000, 59000\], 39,000 updates: expected at most 1,000"
    with pytest.raises(Exception, match=told) as error:
        build(compose("task=copy_first", "trainer.profile=[20000,59000]", "trainer.steps=60000"))
    assert isinstance(error.value.__cause__, UserError)


def test_what_compiles_in_a_step_is_named_with_its_shapes(caplog, capfd):
    @jax.jit
    def multiply(x, y):
        return x @ y

    x, y, z = (jax.device_put(jnp.ones(shape)) for shape in ((3, 5), (5, 7), (2, 5)))
    multiply(x, y)
    with caplog.at_level(logging.WARNING), tell_compilations(11):
        multiply(x, y)
    assert not caplog.records
    with caplog.at_level(logging.WARNING), tell_compilations(13):
        multiply(z, y)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["step 13 compiled again: multiply of float32[2,5], float32[5,7]; this costs seconds each time"]
    multiply(z[:1], y)
    assert len(caplog.records) == 1
    assert "compil" not in capfd.readouterr().err.lower()
