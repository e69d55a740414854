"""Laws of the table over a sweep: every job has its line, however it ended."""

import io

import pytest
import yaml
from rich.console import Console

from seqlab.analysis.run_table import collect, print_run_table
from seqlab.training.summary import write_summary


def _measured(*values):
    return {"mean": sum(values) / len(values), "half_width": None, "values": list(values)}


def _summary(loss, *accuracies, status="completed"):
    final = {
        "train": {"loss": _measured(9.0), "accuracy": _measured(0.9)},
        "validation": {"loss": _measured(loss), "accuracy": _measured(*accuracies)},
    }
    best = {"validation": {"loss": _measured(loss / 2), "accuracy": _measured(*accuracies)}}
    summary = {"status": status, "message": "", "monitor": "validation/loss", "steps": 11, "best_step": 7}
    return summary | {"final": final, "best": best, "steps_per_second": 1234.5}


def _add_job(sweep_dir, job, overrides, summary):
    (sweep_dir / job).mkdir(parents=True)
    if overrides is not None:
        (sweep_dir / job / "overrides.yaml").write_text(yaml.safe_dump(overrides))
    if summary is not None:
        write_summary(sweep_dir / job / "summary.json", summary)


@pytest.fixture
def sweep_dir(tmp_path):
    """Eleven jobs, so that 10 must come after 2; the last three failed, died, and died at once."""
    for job in range(8):
        cell = ("rnn", "lstm", "gru")[job % 3]
        overrides = ["+experiment=x", f"model/cell={cell}", f"optim.learning_rate=0.{job}", "seeds=3"]
        summary = _summary(job + 1.0, 0.25, 0.5, 0.75, status="stopped early" if job == 3 else "completed")
        _add_job(tmp_path, str(job), overrides, summary)
    _add_job(
        tmp_path, "8", ["+experiment=x", "model/cell=gru", "seeds=3"], {"status": "failed", "message": "[too] bad"}
    )
    _add_job(tmp_path, "9", ["+experiment=x", "model/cell=gru", "seeds=3"], None)
    _add_job(tmp_path, "10", None, None)
    (tmp_path / "multirun.yaml").write_text("")
    (tmp_path / ".submitit").mkdir()
    return tmp_path


def _print(rows, width=131):
    screen = io.StringIO()
    n_not_completed = print_run_table(rows, Console(file=screen, width=width))
    return n_not_completed, [" ".join(line.split()) for line in screen.getvalue().splitlines() if line.strip()]


def test_jobs_are_read_in_their_order(sweep_dir):
    rows = collect(sweep_dir)
    assert [row.job for row in rows] == [str(job) for job in range(11)]
    assert [row.status for row in rows[-4:]] == ["completed", "failed", "lost", "lost"]
    assert rows[4].overrides == {
        "experiment": "x",
        "model/cell": "lstm",
        "optim.learning_rate": "0.4",
        "seeds": "3",
    }


def test_the_table_shows_what_differs_and_how_it_went(sweep_dir):
    n_not_completed, lines = _print(collect(sweep_dir))
    assert n_not_completed == 3
    header = next(line for line in lines if line.startswith("job "))
    assert header == "job cell learning_rate status step loss accuracy steps/s"
    at = lines.index("4 lstm 0.4 completed final 11 5.000 0.500 ± 0.621 1,234")
    assert lines[at + 1] == "best 7 2.500 0.500 ± 0.621"
    assert "3 rnn 0.3 stopped early final 11 4.000 0.500 ± 0.621 1,234" in lines
    assert "8 gru – failed" in lines
    assert "10 – – lost" in lines
    assert lines[-3] == "job 8 failed: [too] bad"
    assert lines[-2].startswith("job 9 lost: it ended without a summary, see ")


def test_a_damaged_summary_is_a_lost_job(sweep_dir):
    (sweep_dir / "5" / "summary.json").write_text('{"status": ')
    assert [row.job for row in collect(sweep_dir) if row.status == "lost"] == ["5", "9", "10"]


def test_what_is_not_finite_is_told(tmp_path):
    _add_job(tmp_path, "0", ["seed=1"], _summary(float("nan"), 1.0, status="diverged"))
    n_not_completed, lines = _print(collect(tmp_path))
    assert n_not_completed == 1
    assert any("not finite in 1 of 1" in line for line in lines)


def test_keys_that_end_alike_are_told_in_full(tmp_path):
    for job in range(2):
        _add_job(tmp_path, str(job), [f"optim.steps={job}", f"trainer.steps={job}"], _summary(1.0, 1.0))
    _, lines = _print(collect(tmp_path))
    assert any("optim.steps trainer.steps" in line for line in lines)


def test_lists_are_told_as_they_were_given(tmp_path):
    for job, loggers in enumerate(("[]", "[wandb]")):
        _add_job(tmp_path, str(job), [f"logger={loggers}"], _summary(1.0, 1.0))
    _, lines = _print(collect(tmp_path))
    assert "1 [wandb] completed final 11 1.000 1.000 1,234" in lines


def test_an_empty_sweep_prints_an_empty_table(tmp_path):
    assert _print(collect(tmp_path))[0] == 0


def test_scores_of_what_was_written_stand_at_the_best_step(tmp_path):
    for job, score in enumerate((13.0, 29.0)):
        written = {"measured": {"test": {"bleu": _measured(score - 1, score + 1)}}}
        _add_job(tmp_path, str(job), [f"seed={job}"], _summary(1.0, 0.5) | {"written": written})
    _, lines = _print(collect(tmp_path))
    assert "job seed status step loss accuracy bleu steps/s" in lines
    assert "1 1 completed final 11 1.000 0.500 – 1,234" in lines
    assert "best 7 0.500 0.500 29.000 ± 12.706" in lines
