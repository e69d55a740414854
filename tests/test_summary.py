"""Laws of the summary: it says what the record says, and where a run's things lie."""

import io
import json
import math
import sys

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from seqlab.evaluation.interval import interval
from seqlab.files import read_json
from seqlab.training.memory import PeakMemory
from seqlab.training.summary import find_best, print_summary, summarise, write_summary
from seqlab.types import Event, UserError

LOSSES = {2: [7.0, 5.0, 3.0], 4: [2.0, 1.0, 3.0], 6: [1.0, 2.0, 3.0], 8: [math.nan, 0.0, 0.0], 10: [5.0, 7.0, 2.0]}


def _events(losses=LOSSES):
    for step, values in losses.items():
        rates = {"steps_per_second": 100.0 + step, "tokens_per_second": 7.0 * step}
        yield Event(step, "train", {"loss": [value / 2 for value in values], "learning_rate": [0.1] * 3}, rates, 0.0)
        yield Event(step, "validation", {"loss": values, "accuracy": [1 / step, 0.5, 0.0]}, {}, 0.0)
        yield Event(step, "longer", {"loss": values}, {}, 0.0)


def _summarise(events=None, **given):
    facts = {
        "status": "completed",
        "message": "all 10 steps done",
        "steps": 10,
        "monitor": "validation/loss",
        "mode": "min",
        "skipped_R": [0, 2, 1],
        "parameters": 394_240,
        "compile_seconds": 1.23456,
        "wall_seconds": 61.0,
    }
    return summarise(list(_events()) if events is None else events, **facts | given)


def _print(summary, directory, width=101):
    screen = io.StringIO()
    print_summary(summary, directory, Console(file=screen, width=width))
    return screen.getvalue()


def test_final_is_the_last_event_of_each_split_and_best_that_of_the_best_step():
    summary = _summarise()
    assert summary["best_step"] == 4
    assert summary["best_value"] == 2.0
    for when, step in (("final", 10), ("best", 4)):
        assert list(summary[when]) == ["train", "validation", "longer"]
        for split, scale in (("train", 0.5), ("validation", 1.0), ("longer", 1.0)):
            told = interval([scale * loss for loss in LOSSES[step]])
            measured = {"mean": told.mean, "half_width": told.half_width, "values": list(told.values)}
            assert summary[when][split]["loss"] == measured
    assert summary["final"]["validation"]["accuracy"]["values"] == [0.1, 0.5, 0.0]


def test_a_split_that_ended_early_keeps_its_last_event():
    events = [*_events(), Event(11, "train", {"loss": [0.0] * 3}, {}, 0.0)]
    assert _summarise(events)["final"]["validation"] == _summarise()["final"]["validation"]


def test_training_that_went_on_after_the_last_evaluation_says_its_own_step(tmp_path):
    assert "train/loss  " in _print(_summarise(), tmp_path)
    later = Event(11, "train", {"loss": [0.25] * 3}, {}, 0.0)
    shown = _print(_summarise([*_events(), later]), tmp_path)
    (row,) = [line for line in shown.splitlines() if "train/loss" in line]
    assert "train/loss (step 11)" in row and "0.25" in row and "final, step 10" in shown


def test_a_resumed_run_tells_its_seconds_in_all_and_those_before(tmp_path):
    summary = _summarise(wall_seconds=61.25, earlier_seconds=20.5)
    assert (summary["wall_seconds"], summary["earlier_seconds"]) == (61.25, 20.5)
    assert "61.2 s in all, 20.5 s of them before it was resumed" in _print(summary, tmp_path, 400)
    assert "earlier_seconds" not in _summarise() and "61.0 s since the command" in _print(_summarise(), tmp_path, 400)


def test_rates_are_medians_that_a_first_slow_event_does_not_move():
    summary = _summarise()
    assert (summary["steps_per_second"], summary["tokens_per_second"]) == (106.0, 42.0)


@pytest.mark.parametrize(
    ("monitor", "mode", "best"),
    [
        ("validation/loss", "min", (4, 2.0)),
        ("validation/loss", "max", (2, 5.0)),
        ("longer/loss", "min", (4, 2.0)),
        ("train/loss", "max", (2, 2.5)),
        ("validation/unknown", "min", (None, None)),
    ],
)
def test_the_best_step_is_the_first_of_the_best_finite_means(monitor, mode, best):
    assert find_best(list(_events()), monitor, mode) == best


def test_a_run_that_measured_nothing_has_a_summary(tmp_path):
    summary = _summarise([], status="interrupted", message="SIGTERM after step 0 of 10", steps=0)
    assert (summary["best_step"], summary["final"], summary["best"]) == (None, {}, {})
    assert "interrupted: SIGTERM after step 0 of 10" in _print(summary, tmp_path)
    assert "failed: no luck" in _print({"status": "failed", "message": "no luck"}, tmp_path)


def test_a_summary_is_valid_json_and_whole(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    path = tmp_path / "summary.json"
    summary = _summarise(list(_events({8: LOSSES[8]})))
    write_summary(path, summary)
    written = json.loads(path.read_text(), parse_constant=refuse)
    assert written["final"]["validation"]["loss"] == {"mean": "nan", "half_width": None, "values": ["nan", 0.0, 0.0]}
    assert _print(written, tmp_path) == _print(summary, tmp_path)
    assert "not finite in 1 of 3" in _print(written, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match=r"summary\.json cannot be read: it is damaged"):
        read_json(path)


def test_the_table_tells_what_the_summary_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("wandb/offline-run-1-x", "wandb/offline-run-2-y", "checkpoints/best/4"):
        (tmp_path / "run" / path).mkdir(parents=True)
    shown = _print(_summarise(), tmp_path / "run")
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "metric final, step 10 best, step 4" in rows
    assert f"validation/loss * {interval(LOSSES[10]).format()} {interval(LOSSES[4]).format()}" in rows
    assert "* picks the best (min); ±: 95 % interval over 3 replicas" in rows
    assert "learning_rate" not in shown, "what only training reports is in the record"
    assert (
        "394,240 parameters, 106 steps/s, 42 tokens/s, 9.43 ms a step, compiled in 1.2 s, 61.0 s since the command"
        in shown
        and "3 updates skipped" in shown
    )
    assert rows[-5:] == [
        "directory run",
        "learning curves run/figures/learning_curves.png",
        "record run/metrics.jsonl",
        "evaluate python -m seqlab.evaluate run=run",
        "upload to W&B wandb sync run/wandb/offline-run-*",
    ]


def test_the_peak_of_a_run_is_not_that_of_a_larger_one_before_it(tmp_path):
    """Told where the system knows it, and nothing elsewhere."""

    def run(mebibytes):
        memory = PeakMemory()
        jnp.ones(mebibytes * 2**18, jnp.float32).block_until_ready()
        return memory.mebibytes()

    large, small = run(307), run(67)
    assert (small is not None) == (sys.platform == "linux" and jax.default_backend() == "cpu")
    assert small is None or large - small > 199
    assert f", {large:,} MiB at most" in _print(_summarise(peak_memory_mib=large), tmp_path)
    assert "peak_memory_mib" not in _summarise() and "MiB" not in _print(_summarise(), tmp_path)


def test_a_run_that_was_stopped_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = [event for event in _events(LOSSES) if event.split == "train"]
    shown = _print({**_summarise(events), "status": "interrupted"}, tmp_path / "run")
    assert "go on           python -m seqlab.train resume=run" in shown
    assert "metric" not in shown.splitlines()[1] and "seqlab.evaluate" not in shown, "nothing was measured"
