"""Laws of several hosts: two processes train the run that one with two devices trains, and none outlives the other."""

import contextlib
import dataclasses
import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from outcome import require_equal
from small_data import write_labelled_text

from seqlab.tasks.text_classification import TextClassification
from seqlab.training.devices import make_mesh, start
from seqlab.types import UserError

BOUND = 240
"""Seconds after which a process that should have ended is held to hang."""

TINY = (
    *("+debug=tiny", "model/cell=rnn", "model.dropout=0.2", "logger=[]", "trainer.batch_size=6"),
    *("trainer.steps=13", "trainer.log_every=2", "trainer.eval_every=5", "trainer.save_every=4"),
)
COPY = ("task=copy_first", "task.length=5", "trainer.accumulate=3", "trainer.ema=0.9")
RUNS = {
    "drawn": COPY,
    "replicas, one a host": ("task=copy_first", "task.length=5", "seeds=2", "trainer.batch_size=5"),
    "in memory": ("task=sentiment", "task/source=labelled_text", "task.n_buckets=2"),
    "streamed": ("task=sentiment", "task/source=labelled_text", "task.in_memory=false", "trainer.steps=45"),
    "going on": ("task=char_stream", "task.length=5"),
}


@contextlib.contextmanager
def processes(place: Path, commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen]]:
    running = [
        subprocess.Popen(
            [sys.executable, *command], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def two_hosts(place: Path, *overrides: str) -> contextlib.AbstractContextManager[list[subprocess.Popen]]:
    """Two processes with a device each, at work in a directory."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    hosts = [f"trainer.hosts={{address:{address},count:2,index:{index}}}" for index in (0, 1)]
    return processes(place, [["-m", "seqlab.train", *overrides, "trainer.cpu_devices=1", told] for told in hosts])


def ends(process: subprocess.Popen) -> tuple[int, str, str]:
    told, complaints = process.communicate(timeout=BOUND)
    return process.returncode, told, complaints


def finish(running: list[subprocess.Popen]) -> None:
    """Both come to a good end, of which the first alone tells."""
    (first, told, complaints), (second, silence, others) = map(ends, running)
    assert (first, second) == (0, 0), complaints + others
    assert "completed: all" in told
    assert [line for line in silence.splitlines() if not line.startswith("[Gloo]")] == []


def train_in_one(directory: Path, *overrides: str) -> None:
    command = ["-m", "seqlab.train", *overrides, "trainer.cpu_devices=2", f"hydra.run.dir={directory}"]
    with processes(directory.parent, [command]) as (process,):
        code, _, complaints = ends(process)
    assert code == 0, complaints


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_hosts_train_the_run_of_two_devices(name, text_path, tmp_path):
    overrides = [*TINY, *RUNS[name]]
    if "task=sentiment" in overrides:
        write_labelled_text(tmp_path / "small.csv")
        overrides.append(f"task.source.path={tmp_path / 'small.csv'}")
    if "task=char_stream" in overrides:
        overrides.append(f"task.path={text_path}")
    train_in_one(tmp_path / "one", *overrides)
    # Without a name of its own each process is given a directory by the clock.
    with two_hosts(tmp_path, *overrides, "name=two") as running:
        finish(running)
    (directory,) = (tmp_path / "runs" / "two").iterdir()
    require_equal(tmp_path / "one", directory)


LONG = ("trainer.steps=100000", "trainer.log_every=50", "trainer.eval_every=70", "trainer.save_every=100")


def wait_for_record(process: subprocess.Popen, directory: Path, n_lines: int) -> None:
    record, until = directory / "metrics.jsonl", time.monotonic() + BOUND
    while not (record.exists() and record.read_bytes().count(b"\n") >= n_lines):
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_who_is_left_alone_ends_and_both_go_on(killed, tmp_path):
    overrides, cut = [*TINY, *COPY, *LONG], tmp_path / "cut"
    with two_hosts(tmp_path, *overrides, f"hydra.run.dir={cut}") as running:
        wait_for_record(running[0], cut, n_lines=11)
        running[killed].kill()
        code, _, complaints = ends(running[1 - killed])
    if killed == 0:  # Then JAX ends the others itself.
        assert code != 0
    else:
        sentence = f"Another host of this run has ended: start all of them again with resume={cut}"
        assert code == 2 and complaints.splitlines()[-1].startswith(sentence)
        summary = json.loads((cut / "summary.json").read_text())
        assert summary["status"] == "failed" and summary["message"].startswith(sentence)
    last = max(int(path.name) for path in (cut / "checkpoints" / "latest").iterdir() if path.name.isdigit())
    end = f"trainer.steps={last + 137}"
    with two_hosts(tmp_path, f"resume={cut}", end) as running:
        finish(running)
    train_in_one(tmp_path / "one", *overrides, end)
    require_equal(tmp_path / "one", cut)


@pytest.mark.slow
def test_all_stop_where_one_is_asked_to(tmp_path):
    """And the other commands, of one process, read what several have left."""
    cut = tmp_path / "cut"
    with two_hosts(tmp_path, *TINY, *COPY, *LONG, f"hydra.run.dir={cut}") as running:
        wait_for_record(running[0], cut, n_lines=7)
        running[1].send_signal(signal.SIGTERM)
        assert [ends(process)[0] for process in running] == [130, 130]
    summary = json.loads((cut / "summary.json").read_text())
    assert summary["status"] == "interrupted" and summary["message"].startswith("SIGTERM after step ")
    with processes(tmp_path, [["-m", "seqlab.evaluate", f"run={cut}", "checkpoint=latest"]]) as (process,):
        code, told, complaints = ends(process)
    assert code == 0, complaints
    assert f"latest, step {summary['steps']}" in told


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_for_hosts_and_is_asked_to_end_leaves_nothing(asked, tmp_path):
    command = ["-m", "seqlab.train", *TINY, "trainer.hosts={address:localhost:9,count:2,index:1}"]
    with processes(tmp_path, [command]) as (process,):
        assert process.stderr.readline().startswith("waiting for the other hosts")
        process.send_signal(asked)
        code, _, complaints = ends(process)
    assert code == 130 and complaints == "Interrupted.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ("auto", "trainer.hosts is auto, but nothing can be joined from Slurm"),
        ("{address:localhost:9,count:2,index:1}", "not all hosts have come together within 2 s"),
        ("{address:localhost,count:2,index:0}", "trainer.hosts.address is 'localhost': expected HOST:PORT"),
    ],
)
def test_hosts_that_do_not_meet_leave_nothing(hosts, told, tmp_path):
    impatient = "import seqlab.training.hosts as hosts; hosts.JOIN_SECONDS = 2; from seqlab.train import main; main()"
    with processes(tmp_path, [["-c", impatient, *TINY, f"trainer.hosts={hosts}"]]) as (process,):
        code, _, complaints = ends(process)
    *waited, sentence = complaints.splitlines()
    assert code == 2 and told in sentence and all(line.startswith("waiting for the other hosts") for line in waited)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ("all", "trainer.hosts is all: expected null, auto, or {address"),
        ({"address": "here:1"}, "expected null, auto, or {address"),
        ({"address": "here", "count": 2, "index": 0}, "address is 'here': expected HOST:PORT"),
        ({"address": "here:x", "count": 2, "index": 0}, "address is 'here:x': expected HOST:PORT"),
        ({"address": "here:70000", "count": 2, "index": 0}, "address is 'here:70000': expected HOST:PORT"),
        ({"address": "here:1", "count": 0, "index": 0}, "count is 0: expected a whole number from 1"),
        ({"address": "here:1", "count": 2, "index": 2}, "index is 2: expected a whole number from 0 to 1"),
        ({"address": "here:1", "count": 2, "index": -1}, "index is -1: expected a whole number from 0 to 1"),
    ],
)
def test_mistakes_are_told_before_anybody_is_called(hosts, told):
    with pytest.raises(UserError) as refused:
        start(1, hosts)
    assert told in str(refused.value)


@dataclasses.dataclass(frozen=True)
class Device:
    """What a mesh looks at of a device."""

    id: int
    process_index: int
    platform: str = "cpu"


@pytest.mark.parametrize(("n_hosts", "each"), [(2, 1), (2, 3), (3, 2)])
def test_each_host_has_as_many_devices_of_the_mesh(n_hosts, each):
    # Not in the order of hosts, as on a TPU.
    devices: list = [Device(host + n_hosts * i, host) for i in range(each) for host in range(n_hosts)]
    for n_replicas, rows in itertools.product((1, 2, 3), range(1, 13)):
        try:
            mesh = make_mesh(devices, n_replicas, rows)
        except UserError as error:
            assert f"{n_hosts} hosts cannot share {rows} rows" in str(error)
            assert n_replicas % n_hosts and rows % n_hosts
            continue
        hosts = [device.process_index for device in mesh.devices.flat]
        assert hosts == sorted(hosts)
        assert {hosts.count(host) for host in range(n_hosts)} == {len(hosts) // n_hosts}


class Given:
    def __init__(self, n: int) -> None:
        self.train = [{"text": f"w{i} " * (i % 5 + 1), "label": i % 2} for i in range(n)]

    def records(self) -> dict:
        return {"train": self.train, "validation": self.train[:2], "test": self.train[:2]}


@pytest.mark.parametrize("n_hosts", [2, 3, 6])
def test_the_rows_of_hosts_are_those_of_one(n_hosts):
    """At each step, in their places, from any step on, also where an epoch ends before a host's rows."""
    task = TextClassification(Given(17), in_memory=False, max_length=3)
    share = 6 // n_hosts
    for step in (0, 2, 4):
        whole = task.stream(5, step, 6)
        parts = [task.stream(5, step, 6, slice(i * share, (i + 1) * share)) for i in range(n_hosts)]
        for batch, *own in itertools.islice(zip(whole, *parts, strict=True), 5):
            joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *own)
            jax.tree.map(np.testing.assert_array_equal, joined, batch)
