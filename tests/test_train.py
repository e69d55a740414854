"""The command lines on a run that is there: what is refused leaves it as it was."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TINY = ("+debug=tiny", "task.length=5", "model/cell=rnn", "trainer.cpu_devices=1", "logger=[]", "trainer.steps=6")


def run(*arguments: str, command: str = "seqlab.train") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", command, *arguments], capture_output=True, text=True, timeout=300)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "overrides", "told"),
    [
        (damage_record, ["trainer.steps=9"], "is not an event"),
        (lambda directory: (directory / "metrics.jsonl").unlink(), ["trainer.steps=9"], "is gone"),
        (damage_checkpoint, ["trainer.steps=9"], "is damaged"),
        (lambda directory: None, ["trainer.steps=4"], "is at step 6 already"),
        (
            lambda directory: None,
            ["trainer.steps=9", "analysis=[attention]", "trainer.analyze_every=2"],
            "analysis=attention: Classifier has no attention",
        ),
        (
            lambda directory: (directory / "overrides.yaml").write_text("a: [b"),
            ["trainer.steps=9"],
            "overrides.yaml cannot be read",
        ),
    ],
)
def test_what_cannot_be_gone_on_with_is_left_as_it_was(trained, tmp_path, damage, overrides, told):
    directory = tmp_path / "run"
    shutil.copytree(trained, directory)
    damage(directory)
    before = contents(directory)
    refused = run(f"resume={directory}", *overrides)
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr and "Traceback" not in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert contents(directory) == before


@pytest.mark.slow
def test_a_language_model_writes_after_its_prompt(tmp_path):
    """And refuses, in one sentence each, what it cannot write."""
    directory, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("ab cd. " * 53)
    transformer = ("model/encoder=transformer", "model.encoder.mixer.max_length=41", "task.length=5", "logger=[]")
    trained = run("+debug=tiny", *transformer, "task=char_lm", f"task.path={text}", f"hydra.run.dir={directory}")
    assert trained.returncode == 0, trained.stderr
    options = (f"run={directory}", "prompt=ab", "n_tokens=37")
    one, again, other = (run(*options, f"draw_seed={seed}", command="seqlab.generate").stdout for seed in (0, 0, 1))
    tokens = one.replace("<unk>", "?")
    assert tokens.startswith("ab") and len(tokens) == 2 + 37 + 1 and set(tokens) <= set("abcd. ?\n")
    assert one == again != other
    several = run(*options, "n=3", command="seqlab.generate").stdout.split("--- ")[1:]
    assert len(several) == 3 and len({answer.partition("\n")[2] for answer in several}) > 1
    best, next_best = run(*options, "beam_width=3", "n=2", command="seqlab.generate").stdout.split("--- ")[1:]
    assert best.startswith("1 of 2, score -") and next_best.startswith("2 of 2, score -")
    assert best.partition("\n")[2] != next_best.partition("\n")[2]
    for override, told in (
        ("n_tokens=40", "40 tokens are to follow 2, but the model has room for 39 there"),
        ("prompt=''", "prompt is empty"),
        ("temperature=-1", "temperature is -1"),
        ("replica=1", "replica is 1, but the run has 1"),
    ):
        refused = run(*options, override, command="seqlab.generate")
        assert refused.returncode == 2 and told in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
        assert refused.stdout == ""


@pytest.mark.slow
def test_a_run_is_not_gone_on_with_on_a_text_with_another_vocabulary(tmp_path):
    """But measured on one, whose characters it reads as its own or as unknown."""
    directory, text, other = tmp_path / "run", tmp_path / "text.txt", tmp_path / "other.txt"
    text.write_text("ab cd. " * 53)
    other.write_text("ef cd. " * 53)
    trained = run(*TINY, "task=char_lm", f"task.path={text}", f"hydra.run.dir={directory}")
    assert trained.returncode == 0, trained.stderr
    measured = run(f"run={directory}", f"task.path={other}", command="seqlab.evaluate")
    assert measured.returncode == 0, measured.stderr
    before = contents(directory)
    text.write_text(other.read_text())
    refused = run(f"resume={directory}", "trainer.steps=9")
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("The data of this task have another vocabulary than ")
    assert refused.stderr.count("\n") == 1
    assert contents(directory) == before


@pytest.mark.slow
def test_analyses_look_on_and_others_look_afterwards(tmp_path):
    """And what does not fit the model is refused before anything is written, in one sentence."""
    directory, refused = tmp_path / "run", tmp_path / "refused"
    fields = ("analysis=[gradients]", "analysis.gradients.rows=2", "analysis.gradients.n_lags=2")
    done = run(*TINY, *fields, "trainer.analyze_every=4", f"hydra.run.dir={directory}")
    assert done.returncode == 0, done.stderr
    assert " MiB at most" in done.stdout
    looks = sorted(path.name for path in (directory / "analyses" / "gradients").iterdir())
    assert looks == ["step_000000", "step_000004", "step_000006"]
    assert all(f"  gradients  in {directory}/analyses/gradients/{look}" in done.stdout for look in looks)
    assert (directory / "samples.jsonl").read_text().count("\n") == 8
    done = run(f"run={directory}", "analysis=gates", "analysis.gates.n_units=2", command="seqlab.analyze")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (directory / "analyses").iterdir()) == ["gates", "gradients"]
    # Who looks on may change where a run is gone on with.
    done = run(f"resume={directory}", "trainer.steps=9", "analysis=[gates]", "analysis.gates.n_units=2")
    assert done.returncode == 0, done.stderr
    looks = sorted(path.name for path in (directory / "analyses" / "gates").glob("step_*"))
    assert looks == ["step_000008", "step_000009"]
    done = run(*TINY, "analysis=[gradients,attention]", f"hydra.run.dir={refused}")
    assert done.returncode == 2 and done.stderr.startswith("analysis=attention: Classifier has"), done.stderr
    assert done.stderr.count("\n") == 1 and not refused.exists()
