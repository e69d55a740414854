"""Laws of the dashboard: it shows what the run directories hold, as they grow, and nothing of it outlives Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqlab.analysis.findings import Findings
from seqlab.analysis.keep import keep_findings
from seqlab.analysis.samples import keep_samples
from seqlab.dashboard import Mirrors, show
from seqlab.training.loggers.jsonl import JsonlLogger
from seqlab.training.summary import summarise, write_summary
from seqlab.types import Event, Run, Table, UserError


def begin(path):
    """A run directory whose record is open."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump({"seed": 3, "optim": {"learning_rate": 0.125}}))
    (path / "environment.json").write_text('[{"commit": null}, {"commit": {"hash": "abc", "dirty": true}}]')
    logger = JsonlLogger()
    logger.start(Run(path, "", "", (), "", {}, 13, 2, None))
    return logger


def events(*steps):
    for step in steps:
        yield Event(step, "train", {"loss": [1 / step, float("nan")]}, {"steps_per_second": 101.0 + step}, 0.5)
        yield Event(step, "validation", {"loss": [1 / step, step / 7]}, {}, 0.5)


def look(path, step):
    findings = Findings({"a": np.ones(3)}, {"fig": Figure(figsize=(1, 1))}, followed={"x/y": np.array([0.1, 1 / 3])})
    told = {"analysis": "look", "step": step}
    keep_findings(findings, path / "analyses" / "look" / f"step_{step:06d}", "title", told)


def end(path, all_events):
    summary = summarise(
        all_events,
        status="completed",
        message="",
        steps=13,
        monitor="validation/loss",
        mode="min",
        skipped_R=[0, 0],
        parameters=5,
        compile_seconds=0.0,
        wall_seconds=0.0,
    )
    write_summary(path / "summary.json", summary)


def read(path):
    found = EventAccumulator(str(path / "tensorboard"), {"images": 0, "scalars": 0, "tensors": 0})
    found.Reload()
    return found, {tag: {p.step: p.value for p in found.Scalars(tag)} for tag in found.Tags()["scalars"]}


def expect(path):
    """The curves that a record tells, in TensorBoard's float32; what is not finite has no point."""
    curves = {}
    for line in (path / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, values in record["values"].items():
            a, b = map(float, values)
            tag = f"{record['split']}/{name}"
            for key, value in ((tag, (a + b) / 2), (f"{tag}/replica_0", a), (f"{tag}/replica_1", b)):
                if np.isfinite(value):
                    curves.setdefault(key, {})[record["step"]] = np.float32(value)
        for name, rate in record["rates"].items():
            curves.setdefault(f"rates/{name}", {})[record["step"]] = np.float32(rate)
    return curves


def test_every_value_of_the_records_is_shown_as_they_grow(tmp_path, capsys):
    runs, into = tmp_path / "runs", tmp_path / "into"
    one, other, damaged = runs / "a" / "1", runs / "b", runs / "c"
    records = {path: begin(path) for path in (one, other, damaged)}
    for event in events(2, 3):
        records[one].log(event)
        records[other].log(event)
    (damaged / "metrics.jsonl").write_text("garbage\n")
    look(one, 0)
    mirrors = Mirrors(runs, into)
    mirrors.update()
    assert re.fullmatch(rf"{damaged} is left out: Line 1 of .* is not an event: .*\n", capsys.readouterr().err)
    for event in events(5, 7):
        records[one].log(event)
    look(one, 7)
    late = begin(runs / "late")
    for event in events(11):
        late.log(event)
    mirrors.update()
    table = Table(("input", "prediction"), [("a", "b"), ("c", "d")])
    keep_samples({"predictions": table}, one / "samples.jsonl", 7, 3)
    end(one, list(events(2, 3, 5, 7)))
    mirrors.update()
    mirrors.update()
    mirrors.close()
    assert capsys.readouterr().err == ""
    for path in (one, other, runs / "late"):
        found, curves = read(into / path.relative_to(runs))
        expected = expect(path)
        if path == one:
            looks = {"": (0.1 + 1 / 3) / 2, "/replica_0": 0.1, "/replica_1": 1 / 3}
            expected |= {f"look/x/y{tag}": dict.fromkeys((0, 7), np.float32(v)) for tag, v in looks.items()}
            best = json.loads((one / "summary.json").read_text())
            assert best["best_step"] == 3
            expected["best/validation/loss"] = {3: np.float32(best["best"]["validation"]["loss"]["mean"])}
        assert curves == expected
    found, _ = read(into / "a" / "1")
    assert [image.step for image in found.Images("look/fig")] == [0, 7]
    [shown] = found.Tensors("samples/predictions/text_summary")
    assert shown.step == 7 and "| `c` | `d` |" in shown.tensor_proto.string_val[0].decode()
    assert b"optim.learning_rate" in found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert '"hash": "abc"' in found.Tensors("environment/text_summary")[0].tensor_proto.string_val[0].decode()


def test_a_run_that_is_gone_on_with_is_followed(tmp_path):
    path = tmp_path / "run"
    record = begin(path)
    for event in events(2, 3):
        record.log(event)
    end(path, list(events(2, 3)))
    mirrors = Mirrors(path, tmp_path / "into")
    mirrors.update()
    (path / "summary.json").unlink()
    for event in events(5):
        record.log(event)
    mirrors.update()
    mirrors.close()
    _, curves = read(tmp_path / "into" / "run")
    assert {name: curve for name, curve in curves.items() if not name.startswith("best/")} == expect(path)


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        Mirrors(tmp_path, tmp_path).update()


def test_what_cannot_be_shown_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for directory, told in (
        ("runs", r"There are no runs here yet: train one, or say which directory"),
        ("empty", "empty holds no run: "),
        ("file", "file is not a directory; there are empty"),
        ("empti", "empti is not a directory; did you mean empty"),
    ):
        with pytest.raises(UserError, match=f"^{told}"):
            show(Path(directory))


def test_a_server_that_does_not_stay_is_told(tmp_path, monkeypatch):
    begin(tmp_path / "runs" / "one")
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").touch()
    (tmp_path / "tensorboard" / "main.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("seqlab.dashboard.EVERY_SECONDS", 0.1)
    with pytest.raises(UserError, match="TensorBoard has ended by itself, with exit code 3"):
        show(tmp_path / "runs")


@pytest.mark.slow
def test_the_server_has_every_value_and_ends_with_ctrl_c(tmp_path):
    record = begin(tmp_path / "runs" / "one")
    for event in events(2, 3, 5):
        record.log(event)
    # As a shell starts it in the background: with Ctrl-C ignored.
    shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*shell, sys.executable, "-m", "seqlab.dashboard", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = next(found[1] for line in process.stderr if (found := re.search(r"at (http://127\.0\.0\.1:\d+)/", line)))

    def get(path):
        with urllib.request.urlopen(f"{url}/data/{path}", timeout=10) as answer:
            return json.load(answer)

    try:
        while not (there := get("runs")):  # It has just begun to read.
            time.sleep(0.2)
        assert there == ["one/tensorboard"]
        for tag, curve in expect(tmp_path / "runs" / "one").items():
            points = get(f"plugin/scalars/scalars?run=one/tensorboard&tag={tag}")
            assert {step: np.float32(value) for _, step, value in points} == curve
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in process.stderr.read()
    with pytest.raises(OSError):
        get("runs")
