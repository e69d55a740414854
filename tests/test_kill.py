"""The law of resuming at the command line: kill -9 at any moment, twice, changes nothing that the run leaves."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from outcome import require_equal

TRAIN = [sys.executable, "-m", "seqlab.train"]
OVERRIDES = (
    *("task=copy_first", "task.length=11", "task.n_eval=61", "model/cell=rnn", "model.dropout=0.1", "seeds=2"),
    *("model.encoder.features=5", "model.inputs.features=3", "trainer.batch_size=6", "trainer.cpu_devices=2"),
    *("trainer.steps=12000", "trainer.log_every=300", "trainer.eval_every=700", "trainer.save_every=500"),
    "logger=[]",
)


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([*TRAIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def read_errors(process: subprocess.Popen) -> str:
    assert process.stderr is not None
    return process.stderr.read()


def kill_after(process: subprocess.Popen, directory: Path, n_lines: int) -> None:
    """Kill -9 as soon as the record has `n_lines` lines."""
    record, until = directory / "metrics.jsonl", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if record.exists() and record.read_bytes().count(b"\n") >= n_lines:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    assert process.wait() == -signal.SIGKILL, read_errors(process)


@pytest.mark.slow
def test_killed_twice_equals_uninterrupted(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    uninterrupted = start(*OVERRIDES, f"hydra.run.dir={whole}")
    assert uninterrupted.wait() == 0, read_errors(uninterrupted)

    kill_after(start(*OVERRIDES, f"hydra.run.dir={cut}"), cut, n_lines=7)
    n_lines = (cut / "metrics.jsonl").read_bytes().count(b"\n")
    kill_after(start(f"resume={cut}"), cut, n_lines=n_lines + 5)
    last = start(f"resume={cut}")
    assert last.wait() == 0, read_errors(last)

    require_equal(cut, whole)
    assert json.loads((cut / "summary.json").read_text())["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_it_compiles_says_how_to_go_on_and_does(tmp_path, asked):
    directory = tmp_path / "run"
    command = [*TRAIN, "+experiment=copy_task", "+debug=tiny", "logger=[]", f"hydra.run.dir={directory}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("copy_first-run: 6 steps"):  # said before anything is compiled
                break
        process.send_signal(asked)
        told, complaints = process.communicate(timeout=120)
    assert (process.returncode, complaints) == (130, "Interrupted.\n")
    assert f"python -m seqlab.train resume={directory}" in told
    assert json.loads((directory / "summary.json").read_text())["status"] == "interrupted"
    last = start(f"resume={directory}")
    assert last.wait() == 0, read_errors(last)
    assert json.loads((directory / "summary.json").read_text())["status"] == "completed"
