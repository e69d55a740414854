"""Laws of the loggers: the record is whole whatever happens, a dashboard mirrors it and stops nothing."""

import http.server
import io
import json
import logging
import math
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import wandb
from matplotlib.figure import Figure
from matplotlib.image import imread
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqlab.build import build_loggers
from seqlab.training.loggers.composite import Loggers
from seqlab.training.loggers.console import ConsoleLogger
from seqlab.training.loggers.jsonl import JsonlLogger, read_events, truncate_after
from seqlab.training.loggers.tensorboard import TensorBoardLogger
from seqlab.training.loggers.wandb import WandbLogger
from seqlab.types import Event, Exhibit, Run, Table, UserError

STEPS = 11


def _run(directory, n_replicas=1, resumed_from=None, **fields):
    directory.mkdir(parents=True, exist_ok=True)
    config = {"seed": 3, "model": {"cell": {"features": 5, "bias": True}}, "tags": ["a", "b"], "patience": None}
    given = {"name": "run-x", "group": "group-x", "tags": ("a", "b"), "notes": "some notes", "config": config}
    sizes = {"n_steps": STEPS, "n_replicas": n_replicas, "resumed_from": resumed_from}
    return Run(directory, **given | sizes | fields, environment={"commit": {"hash": "abc", "dirty": True}})


def _train(step, *losses):
    rates = {"steps_per_second": 101.0, "tokens_per_second": 5003.0}
    return Event(step, "train", {"loss": list(losses or [1 / step]), "skipped": [0] * max(len(losses), 1)}, rates, 0.5)


def _validation(step, *accuracies):
    return Event(step, "validation", {"accuracy": list(accuracies or [step / STEPS])}, {}, 0.5)


def _exhibit(directory, step, *values):
    """An analysis with a figure and a page, and a table with all that upsets one: marks, line ends, a picture."""
    figure, page = directory / f"f{step}.png", directory / f"p{step}.html"
    Figure(figsize=(1.3, 0.7)).savefig(figure, dpi=100)
    page.write_text("<p>näher</p>", encoding="utf-8")
    picture = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7, 1)
    table = Table(("input", "prediction"), [(picture, "a|b\n`c`"), (picture, "")])
    return Exhibit(
        step, "look", directory, {"layer_1/h": list(values)}, {"fig": figure}, {"page": page}, {"rows": table}
    )


def _live(logger, run, told, status="completed", summary=None):
    logger.start(run)
    for each in told:
        logger.advance(each.step)
        if isinstance(each, Exhibit):
            logger.show(each)
        else:
            logger.log(each)
    logger.finish(status, summary or {})


# The record


def test_the_record_comes_back_to_the_bit(tmp_path):
    events = [_train(1, 0.1 + 0.2, 1e-45, -0.0), _validation(1, 1 / 3, 2 / 3, 1.0), _train(2, 5.0, 7.0, 11.0)]
    _live(JsonlLogger(), _run(tmp_path), events)
    assert read_events(tmp_path / "metrics.jsonl") == events


def test_what_is_not_finite_is_valid_json(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    _live(JsonlLogger(), _run(tmp_path), [_train(1, math.nan, math.inf, -math.inf)])
    path = tmp_path / "metrics.jsonl"
    assert json.loads(path.read_text(), parse_constant=refuse)["values"]["loss"] == ["nan", "inf", "-inf"]
    nan, *infinite = read_events(path)[0].values["loss"]
    assert math.isnan(nan)
    assert infinite == [math.inf, -math.inf]


def test_a_line_is_on_disk_when_log_returns(tmp_path):
    logger = JsonlLogger()
    logger.start(_run(tmp_path))
    for n_lines, event in enumerate([_train(1), _validation(1), _train(2)], start=1):
        logger.log(event)
        assert (tmp_path / "metrics.jsonl").read_text().count("\n") == n_lines
    logger.finish("completed", {})


def test_a_resumed_record_is_that_of_an_uninterrupted_run(tmp_path):
    """A kill after step 5, in the middle of a line, with the checkpoint at step 3; then from the beginning again."""
    path = tmp_path / "metrics.jsonl"
    events = [event for step in range(1, STEPS + 1) for event in (_train(step), _validation(step))]
    _live(JsonlLogger(), _run(tmp_path), events)
    whole = path.read_bytes()

    lines = whole.splitlines(keepends=True)
    for torn in (lines[10][:1], lines[10][:23], lines[10][:-1]):
        path.write_bytes(b"".join([*lines[:10], torn]))
        assert read_events(path) == events[:10]
        _live(JsonlLogger(), _run(tmp_path, resumed_from=3), events[6:])
        assert path.read_bytes() == whole
    _live(JsonlLogger(), _run(tmp_path), events)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_truncating_leaves_a_whole_file_at_every_moment(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    _live(JsonlLogger(), _run(tmp_path), [_train(step) for step in range(1, 8)])
    whole = path.read_bytes()

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", die)
        truncate_after(path, 3)
    assert path.read_bytes() == whole
    truncate_after(path, 3)
    assert [event.step for event in read_events(path)] == [1, 2, 3]


@pytest.mark.parametrize("line", ["{", "[]", "{}", "5", '{"step": 1}'])
def test_a_line_that_is_no_event_is_told(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    _live(JsonlLogger(), _run(tmp_path), [_train(1), _train(2)])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(UserError, match=r"Line 2 of .* is not an event"):
        read_events(path)


# Several loggers


class Recording:
    """What it was told; `failing` names the method that raises."""

    def __init__(self, failing=None):
        self.failing, self.told = failing, []

    def _hear(self, what):
        self.told.append(what)
        if what == self.failing:
            raise RuntimeError("the service\nis gone")

    def start(self, run):
        self._hear("start")

    def advance(self, step):
        self._hear("advance")

    def log(self, event):
        self._hear("log")

    def show(self, exhibit):
        self._hear("show")

    def finish(self, status, summary):
        self._hear("finish")


@pytest.mark.parametrize("failing", ["start", "advance", "log", "show", "finish"])
def test_a_logger_that_fails_is_dropped_and_the_record_is_whole(tmp_path, caplog, failing):
    failed, sound = Recording(failing), Recording()
    events = [_train(1), _train(2), _train(3)]
    _live(Loggers([failed, JsonlLogger(), sound]), _run(tmp_path), [*events[:2], Exhibit(2, "x", tmp_path), events[2]])
    assert sound.told == ["start", *["advance", "log"] * 2, "advance", "show", "advance", "log", "finish"]
    assert failed.told.count(failing) == 1
    assert failed.told[-1] == "finish"
    assert read_events(tmp_path / "metrics.jsonl") == events
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert warning.getMessage() == (
        f"Recording failed in {failing} and is dropped; the run goes on (RuntimeError: the service)"
    )


def test_finish_reaches_every_logger_once(tmp_path):
    first, second = Recording("finish"), Recording()
    loggers = Loggers([first, second])
    loggers.start(_run(tmp_path))
    loggers.finish("failed", {})
    loggers.finish("failed", {})
    assert first.told == second.told == ["start", "finish"]


def test_a_mistake_is_told_and_a_lost_record_stops_the_run(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"metrics.jsonl cannot be written: "):
        Loggers([JsonlLogger()]).start(_run(tmp_path))


@pytest.mark.parametrize(
    ("override", "loggers"),
    [
        ([], [WandbLogger]),
        (["logger=[wandb,tensorboard]"], [WandbLogger, TensorBoardLogger]),
        (["logger=tensorboard"], [TensorBoardLogger]),
        (["logger=[]"], []),
    ],
)
def test_loggers_are_chosen_by_a_list(compose, override, loggers):
    assert [type(logger) for logger in build_loggers(compose(*override))] == loggers


# The console


def _show(run, events, **options):
    screen = io.StringIO()
    _live(ConsoleLogger(Console(file=screen, **options)), run, events)
    return screen.getvalue()


def test_without_a_terminal_an_event_is_a_plain_line(tmp_path):
    events = [_train(2, 0.5), _validation(2, 0.25), _train(STEPS, 0.125)]
    head, *lines = _show(_run(tmp_path), events, width=23).splitlines()
    assert head == f"run-x: 11 steps, in {tmp_path}"
    assert [" ".join(line.split()) for line in lines] == [
        "step 2/11 train loss 0.500 skipped 0 101 steps/s 00:00:00 left",
        "step 2/11 validation accuracy 0.250",
        "step 11/11 train loss 0.125 skipped 0 101 steps/s 00:00:00 left",
    ]


def test_what_can_be_looked_at_is_told_by_its_place(tmp_path):
    shown = _show(_run(tmp_path), [_exhibit(tmp_path, 2, 0.5)])
    assert shown.splitlines()[1:] == [f"step  2/11  look  in {tmp_path}"]


def test_replicas_are_shown_with_their_interval(tmp_path):
    shown = _show(_run(tmp_path, n_replicas=2), [_train(2, 1.0, 3.0), _validation(2, 1.0, 1.0)])
    assert "2 replicas" in shown
    assert "loss 2.000 ± 12.706 " in shown
    assert "accuracy 1.000\n" in shown


@pytest.mark.parametrize("width", [29, 61, 113])
def test_on_a_terminal_a_bar_fits_its_width(tmp_path, monkeypatch, width):
    monkeypatch.setenv("NO_COLOR", "1")
    events = [event for step in range(1, STEPS + 1) for event in (_train(step, 0.1, 0.3), _validation(step))]
    options = {"force_terminal": True, "force_interactive": True, "width": width}
    shown = _show(_run(tmp_path, n_replicas=2, resumed_from=2), events, **options)
    assert "from step 2" in shown
    bars = [part for part in shown.replace("\r", "\n").split("\n") if "━" in part]
    assert "11/11" in bars[-1]
    assert "\x1b[3" not in shown, "no colour"
    printable = "".join(char for char in bars[-1].split("\x1b[2K")[-1] if char.isprintable())
    assert len(printable) <= width
    assert (width < 100) or ("101 steps/s" in printable and "loss 0.200 ± 1.271" in printable)


# TensorBoard


def _read_tensorboard(run_dir):
    events = EventAccumulator(str(run_dir / "tensorboard"))
    events.Reload()
    return events


@pytest.mark.slow
def test_tensorboard_mirrors_the_record(tmp_path):
    run = _run(tmp_path, n_replicas=2)
    measured = {"validation": {"accuracy": {"mean": 0.75, "half_width": None, "values": [0.5, 1.0]}}}
    look = _exhibit(tmp_path, 4, 0.25, 0.75)
    _live(
        TensorBoardLogger(),
        run,
        [_train(2, 1.0, 3.0), _validation(2, 0.5, 1.0), _train(4, 1.0, math.nan), look],
        summary={"final": measured, "best": measured, "best_step": 2},
    )
    found = _read_tensorboard(tmp_path)
    scalars = {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {
        "train/loss": [(2, 2.0)],
        "train/loss/replica_0": [(2, 1.0), (4, 1.0)],
        "train/loss/replica_1": [(2, 3.0)],
        "train/skipped": [(2, 0.0), (4, 0.0)],
        "train/skipped/replica_0": [(2, 0.0), (4, 0.0)],
        "train/skipped/replica_1": [(2, 0.0), (4, 0.0)],
        "validation/accuracy": [(2, 0.75)],
        "validation/accuracy/replica_0": [(2, 0.5)],
        "validation/accuracy/replica_1": [(2, 1.0)],
        "rates/steps_per_second": [(2, 101.0), (4, 101.0)],
        "rates/tokens_per_second": [(2, 5003.0), (4, 5003.0)],
        "best/validation/accuracy": [(2, 0.75)],
        "look/layer_1/h": [(4, 0.5)],
        "look/layer_1/h/replica_0": [(4, 0.25)],
        "look/layer_1/h/replica_1": [(4, 0.75)],
    }
    [image] = found.Images("look/fig")
    assert (image.step, image.width, image.height) == (4, 130, 70)
    assert image.encoded_image_string == look.figures["fig"].read_bytes()
    [table] = found.Tensors("look/rows/text_summary")
    assert table.step == 4
    assert table.tensor_proto.string_val[0].decode() == (
        "| input | prediction |\n| --- | --- |\n| `picture, 5 × 7` | `a¦b↵ˋcˋ` |\n| `picture, 5 × 7` |  |"
    )
    assert '"features": 5' in found.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    hparams = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"model.cell.features" in hparams and b"tags" not in hparams
    assert '"hash": "abc"' in found.Tensors("environment/text_summary")[0].tensor_proto.string_val[0].decode()
    metrics = found.SummaryMetadata("_hparams_/experiment").plugin_data.content
    assert b"validation/accuracy" in metrics and b"best/validation/accuracy" in metrics
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


def test_tensorboard_forgets_what_lies_beyond_the_checkpoint(tmp_path, monkeypatch):
    """Also where a run is gone on with within the second in which it began."""
    monkeypatch.setattr("tensorboardX.event_file_writer.time.time", lambda: 1.5e9)
    _live(TensorBoardLogger(), _run(tmp_path), [_train(step, float(step)) for step in (1, 2, 3, 4)])
    _live(TensorBoardLogger(), _run(tmp_path, resumed_from=2), [_train(step, 10.0 * step) for step in (3, 4)])
    points = _read_tensorboard(tmp_path).Scalars("train/loss")
    assert [(point.step, point.value) for point in points] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


# W&B


@pytest.fixture
def no_account(tmp_path, monkeypatch):
    """Nobody is logged in, and nothing of a developer's own W&B is read or written."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    yield
    wandb.teardown()


def _inspect(path):
    command = [Path(sys.executable).parent / "wandb", "leet", "inspect", "--summary", "--json", path]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _records(path):
    command = [Path(sys.executable).parent / "wandb", "leet", "inspect", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _history(records):
    """What was logged by name, as (step, value)."""
    curves: dict = {}
    for record in records:
        item = record.get("history", {}).get("item", {})
        for name, value in item.items():
            if not name.startswith("_"):
                curves.setdefault(name, []).append((item["_step"], value))
    return curves


def test_every_value_of_the_record_is_in_the_dashboards(tmp_path, no_account):
    """And nothing but what is there: the curves are read back from W&B's and TensorBoard's files."""
    run = _run(tmp_path, n_replicas=2)
    events = [
        event
        for step in range(1, STEPS + 1)
        for event in (_train(step, 1 / step, 0.1 * step), _validation(step, 1 / 3, step / 7))
    ]
    look = _exhibit(tmp_path, 5, 0.25, 1 / 3)
    told = [*events[:10], look, *events[10:]]
    _live(Loggers([JsonlLogger(), TensorBoardLogger(), WandbLogger("offline")]), run, told)
    recorded: dict = {}
    for event in read_events(tmp_path / "metrics.jsonl"):
        for name, (a, b) in event.values.items():
            for tag, value in (("", (a + b) / 2), ("/replica_0", a), ("/replica_1", b)):
                recorded.setdefault(f"{event.split}/{name}{tag}", []).append((event.step, value))
        for name, rate in event.rates.items():
            recorded.setdefault(f"rates/{name}", []).append((event.step, rate))
    shown = {f"look/layer_1/h{tag}": [(5, v)] for tag, v in (("", (0.25 + 1 / 3) / 2), ("/replica_0", 0.25))}
    recorded |= shown | {"look/layer_1/h/replica_1": [(5, 1 / 3)]}
    [path] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    curves = _history(_records(path))
    assert {name: curve for name, curve in curves.items() if name in recorded} == recorded
    others = {name for name in curves if name not in recorded}
    assert all(name == "step" or name.startswith(("look/fig.", "look/page.", "look/rows.")) for name in others)
    assert curves["step"] == [(step, step) for step in range(1, STEPS + 1)]
    found = _read_tensorboard(tmp_path)
    scalars = {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {name: [(step, np.float32(v)) for step, v in curve] for name, curve in recorded.items()}


@pytest.mark.slow
def test_wandb_offline_carries_what_can_be_looked_at(tmp_path, no_account):
    """All of it lies in the run's directory: figures and pages to the byte, tables with their pictures, checkpoints."""
    for which, step in (("best", 3), ("best", 5), ("latest", 7)):
        (tmp_path / "checkpoints" / which / str(step)).mkdir(parents=True)
        (tmp_path / "checkpoints" / which / str(step) / "state").write_text(f"{which} {step}")
    measured = {"loss": {"mean": 0.5, "half_width": 0.25, "values": [0.25, 0.75]}}
    summary = {"final": {"test": measured}, "best": {"test": measured}}
    look = _exhibit(tmp_path, 2, 0.5)
    _live(WandbLogger("offline", artifact=True), _run(tmp_path), [_train(2), look], summary=summary)
    [offline] = (tmp_path / "wandb").glob("offline-run-*")
    records = _records(next(offline.glob("*.wandb")))
    item = {name: value for name, [(_, value)] in _history(records).items()}
    media = {
        kind: (offline / "files" / item[f"look/{name}.path"]).read_bytes()
        for kind, name in (("figure", "fig"), ("page", "page"), ("table", "rows"))
    }
    assert media["figure"] == look.figures["fig"].read_bytes() and media["page"] == look.pages["page"].read_bytes()
    table = json.loads(media["table"])
    assert table["columns"] == ["input", "prediction"]
    assert [said for _, said in table["data"]] == ["a|b\n`c`", ""]
    [pictured] = [record["artifact"] for record in records if record.get("artifact", {}).get("type") == "run_table"]
    pictures = [Path(file["local_path"]) for file in pictured["manifest"]["contents"] if file["path"].endswith(".png")]
    assert [(file.is_relative_to(tmp_path), *imread(file).shape[:2]) for file in pictures] == [(True, 5, 7)]
    metrics = [record["metric"] for record in records if "metric" in record]
    assert any(metric.get("glob_name") == "*" and metric["step_metric"] == "step" for metric in metrics)
    best, latest = (record["artifact"] for record in records if record.get("artifact", {}).get("type") == "model")
    # W&B names the last one `latest` in any case.
    assert "best" in best["aliases"] and latest["aliases"] == ["latest"]
    assert best["name"] == latest["name"] == "run-x-checkpoint"
    for artifact, text in ((best, "best 5"), (latest, "latest 7")):
        [file] = artifact["manifest"]["contents"]
        assert file["path"] == "state" and Path(file["local_path"]).read_text() == text
        assert Path(file["local_path"]).is_relative_to(tmp_path)
    told = _inspect(next(offline.glob("*.wandb")))
    assert told["summary"]["final/test"] == told["summary"]["best/test"] == measured


@pytest.mark.slow
@pytest.mark.parametrize(("artifact", "n_steps", "n"), [("auto", 4999, 0), ("auto", 5000, 1), (False, 5000, 0)])
def test_checkpoints_of_tiny_runs_are_not_kept(tmp_path, no_account, artifact, n_steps, n):
    for which in ("best", "latest"):
        (tmp_path / "checkpoints" / which / "7").mkdir(parents=True)
        (tmp_path / "checkpoints" / which / "7" / "state").write_text(which)
    _live(WandbLogger("offline", artifact=artifact), _run(tmp_path, n_steps=n_steps), [_train(7)])
    [path] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    artifacts = [record["artifact"] for record in _records(path) if "artifact" in record]
    assert [sorted(artifact["aliases"]) for artifact in artifacts] == [["best", "latest"]] * n


def test_wandb_runs_of_one_process_are_runs_of_their_own(tmp_path, no_account, capfd):
    """Without a key it is offline and asks nothing; a run that fails does not spill into the next."""
    first, second = _run(tmp_path / "1", n_replicas=2, name="one"), _run(tmp_path / "2", name="two")
    _live(
        WandbLogger(), first, [_train(1, 1.0, 3.0), _validation(1, 0.5, 1.0), _train(2, 2.0, math.nan)], status="failed"
    )
    _live(WandbLogger(), second, [_train(1, 7.0), _train(3, 5.0)], summary={"best": {"validation": {"x": {"mean": 1}}}})
    assert capfd.readouterr() == ("W&B is offline: no key is configured (`wandb login`)\n" * 2, "")
    [one], [two] = ([*(tmp_path / name / "wandb").glob("offline-run-*/*.wandb")] for name in "12")
    told = _inspect(one)
    assert (told["name"], told["notes"], told["tags"]) == ("one", "some notes", ["a", "b"])
    assert (told["project"], told["state"], told["exit_code"], told["step"]) == ("seqlab", "failed", 1, 2)
    assert told["config"] == {**first.config, "environment": first.environment}
    assert told["summary"]["train/loss/replica_0"] == 2.0
    assert told["summary"]["validation/accuracy"] == 0.75
    assert told["summary"]["status"] == "failed"
    told = _inspect(two)
    assert (told["name"], told["state"], told["exit_code"], told["step"]) == ("two", "finished", 0, 3)
    assert told["summary"]["train/loss"] == 5.0
    assert told["summary"]["best/validation"] == {"x": {"mean": 1}}
    assert "validation/accuracy" not in told["summary"]


def test_wandb_goes_on_under_the_same_id(tmp_path, no_account):
    for resumed_from in (None, 1):
        _live(WandbLogger("offline"), _run(tmp_path, resumed_from=resumed_from), [_train(2)])
    names = [path.name for path in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    assert len(names) == 2
    assert len(set(names)) == 1


@pytest.mark.slow
def test_wandb_does_not_wait_for_a_service_that_is_silent(tmp_path, no_account, monkeypatch, capfd):
    """A key is configured, but the service takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("WANDB_BASE_URL", url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        _live(WandbLogger(), _run(tmp_path), [_train(1, 7.0)])
    assert capfd.readouterr() == (f"W&B is offline: {url} does not answer\n", "")
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_wandb_does_not_insist_on_a_service_that_refuses(tmp_path, no_account, monkeypatch, capfd):
    """A key is configured, but the service does not accept it."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(401)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        _live(WandbLogger(), _run(tmp_path), [_train(1, 7.0)])
        server.shutdown()
    out, err = capfd.readouterr()
    assert out.startswith("W&B is offline: ")
    assert "401" in out
    assert out.count("\n") == 1
    assert err == ""
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_wandb_online_without_a_key_is_a_mistake(tmp_path, no_account):
    with pytest.raises(UserError, match=r"logger\.wandb\.mode is online, but W&B cannot be: no key is configured"):
        Loggers([WandbLogger("online")]).start(_run(tmp_path))


def test_wandb_disabled_leaves_nothing(tmp_path, no_account):
    _live(WandbLogger("disabled"), _run(tmp_path), [_train(1)])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_mode_is_a_mistake(no_account):
    with pytest.raises(UserError, match=r"logger\.wandb\.mode is 'on': expected null, online, offline, disabled"):
        WandbLogger("on")
    with pytest.raises(UserError, match=r"logger\.wandb\.artifact is 'yes': expected true, false or auto"):
        WandbLogger(artifact="yes")


def test_what_is_heavy_is_not_imported_at_start_up():
    names = (
        "checkpoint",
        "loggers.composite",
        "loggers.console",
        "loggers.jsonl",
        "loggers.tensorboard",
        "loggers.wandb",
    )
    modules = ", ".join(f"seqlab.training.{name}" for name in names)
    program = (
        f"import sys, {modules}; print(sorted({{'orbax', 'wandb', 'tensorboardX', 'tensorboard'}} & {{*sys.modules}}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
