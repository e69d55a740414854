"""The command lines on a run that is there: what is refused leaves it as it was."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TINY = ("+debug=tiny", "task.length=5", "model/cell=rnn", "trainer.cpu_devices=1", "logger=[]", "trainer.steps=6")


def run(*arguments: str, command: str = "seqlab.train") -> subprocess.CompletedProcess[str]:
    # JAX, imported before seqlab by the tests, has put its own log level into the environment.
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", command, *arguments], capture_output=True, text=True, timeout=300, env=environment
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    done = run(*TINY, f"hydra.run.dir={directory}")
    assert done.returncode == 0, done.stderr
    return directory


def damage_record(directory: Path) -> None:
    path = directory / "metrics.jsonl"
    first, _, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, "garbage\n", *rest]))


def damage_checkpoint(directory: Path) -> None:
    for path in (directory / "checkpoints" / "latest" / "6" / "state").rglob("d/*"):
        path.write_bytes(b"garbage")


@pytest.mark.parametrize(
    ("damage", "steps", "told"),
    [
        (damage_record, 9, "is not an event"),
        (damage_checkpoint, 9, "is damaged"),
        (lambda directory: None, 4, "is at step 6 already"),
        (lambda directory: (directory / "overrides.yaml").write_text("a: [b"), 9, "overrides.yaml cannot be read"),
    ],
)
def test_what_cannot_be_gone_on_with_is_left_as_it_was(trained, tmp_path, damage, steps, told):
    directory = tmp_path / "run"
    shutil.copytree(trained, directory)
    damage(directory)
    before = contents(directory)
    refused = run(f"resume={directory}", f"trainer.steps={steps}")
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr and "Traceback" not in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert contents(directory) == before


@pytest.mark.slow
def test_a_run_is_not_gone_on_with_on_a_text_with_another_vocabulary(tmp_path):
    directory, text, other = tmp_path / "run", tmp_path / "text.txt", tmp_path / "other.txt"
    text.write_text("ab cd. " * 53)
    other.write_text("ef cd. " * 53)
    trained = run(*TINY, "task=char_lm", f"task.path={text}", f"hydra.run.dir={directory}")
    assert trained.returncode == 0, trained.stderr
    before = contents(directory)
    refused = run(f"run={directory}", f"task.path={other}", command="seqlab.evaluate")
    text.write_text(other.read_text())
    for answer in (refused, run(f"resume={directory}", "trainer.steps=9")):
        assert answer.returncode == 2, answer.stderr
        assert answer.stderr.startswith("The text of this task has another vocabulary than ")
        assert answer.stderr.count("\n") == 1
    assert contents(directory) == before
