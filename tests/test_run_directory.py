"""Laws of the run directory: one process, one run, and nothing lost to a mistake."""

import concurrent.futures
import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

import seqlab
from seqlab.files import read_json, to_json, write_whole
from seqlab.training import run_directory
from seqlab.training.run_directory import open_run_directory, read_config
from seqlab.types import UserError

CONFIG = {
    "name": "é",
    "seed": 3,
    "tags": ["a", "b"],
    "notes": "",
    "resume": "auto",
    "task": {"_target_": "seqlab.tasks.x", "length": 7, "rate": 1e-5},
    "trainer": {"steps": 11, "patience": None, "save_every": 5, "log_every": 5, "cpu_devices": "auto", "ema": None},
    "logger": {"wandb": {"mode": None}},
}


def _changed(key, value):
    config = json.loads(json.dumps(CONFIG))
    node = config
    *parents, last = key.split(".")
    for parent in parents:
        node = node[parent]
    node[last] = value
    return config


def _open(path, config=CONFIG, resume="auto"):
    directory = open_run_directory(path, config, ["seed=3"], resume=resume)
    if not directory.is_completed:
        directory.record()
    return directory


def _contents(path):
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock"}


def _refuse(path, sentence, **options):
    """Opening is refused with the sentence, and every file stays as it was."""
    before = _contents(path) if path.is_dir() else None
    with pytest.raises(UserError) as refusal:
        _open(path, **options)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert before is None or _contents(path) == before


def test_a_new_directory_says_where_its_numbers_come_from(tmp_path):
    with _open(tmp_path / "made" / "run") as directory:
        path = directory.path
        assert read_config(path) == CONFIG
        assert yaml.safe_load((path / "overrides.yaml").read_text()) == ["seed=3"]
        [environment] = read_json(path / "environment.json")
        assert environment["seqlab"] == seqlab.__version__
        assert environment["jax"] == jax.__version__
        assert environment["devices"]["count"] == jax.device_count()
        assert environment["command"] == sys.argv
        assert not directory.has_checkpoint
        assert not directory.is_completed
        assert directory.summary is None


def test_the_commit_is_that_of_the_checkout(monkeypatch, tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x", *arguments], check=True)

    module = tmp_path / "seqlab" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.setattr(seqlab, "__file__", str(module))
    assert run_directory._describe_commit() is None
    git("init", "-q")
    assert run_directory._describe_commit() is None, "an installed package in somebody else's checkout"
    git("add", ".")
    git("commit", "-q", "-m", "one")
    commit = run_directory._describe_commit()
    assert len(commit["hash"]) == 40
    assert not commit["dirty"]
    module.write_text("changed")
    assert run_directory._describe_commit() == {"hash": commit["hash"], "dirty": True}


def test_hydras_own_files_may_be_there_before(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "train.log").write_text("")
    _open(tmp_path).close()


def test_what_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    _refuse(tmp_path, f"{tmp_path} holds something else than a run: thesis.tex")


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_path_that_cannot_be_is_one_sentence(tmp_path, place):
    (tmp_path / "file").write_text("")
    _refuse(tmp_path / place, f"The run directory {tmp_path / place} cannot be written: ")


def test_a_system_that_will_not_write_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(run_directory, "write_whole", refuse)
    _refuse(tmp_path / "run", "cannot be written: Permission denied")


def test_a_run_is_gone_on_with(tmp_path):
    _open(tmp_path).close()
    (tmp_path / "checkpoints" / "latest" / "5").mkdir(parents=True)
    with _open(tmp_path) as directory:
        assert directory.has_checkpoint
        assert len(read_json(tmp_path / "environment.json")) == 2
    with _open(tmp_path / "elsewhere", resume=str(tmp_path)) as directory:
        assert directory.path == tmp_path
    assert not (tmp_path / "elsewhere").exists()


def test_a_half_written_checkpoint_is_none(tmp_path):
    (tmp_path / "checkpoints" / "latest" / "5.orbax-checkpoint-tmp").mkdir(parents=True)
    write_whole(tmp_path / "config.yaml", yaml.safe_dump(CONFIG))
    with _open(tmp_path) as directory:
        assert not directory.has_checkpoint


def test_resume_must_name_a_run_or_a_policy(tmp_path):
    _refuse(tmp_path, f'resume={tmp_path / "none"}: expected "auto", "never" or', resume=str(tmp_path / "none"))


def test_never_means_never(tmp_path):
    _open(tmp_path, resume="never").close()
    _refuse(tmp_path, f"{tmp_path} already holds a run", resume="never")


MAY: dict[str, Any] = {
    "resume": "never",
    "name": "other",
    "tags": ["c"],
    "notes": "n",
    "logger": {},
    "logger.wandb.mode": "offline",
}
MAY |= {"trainer.steps": 13, "trainer.patience": 2, "trainer.save_every": 7, "trainer.cpu_devices": 1}
MAY_NOT = {"seed": 4, "task.length": 8, "task": {"length": 7}, "trainer.log_every": 7, "trainer.ema": 0.9, "new": 1}


@pytest.mark.parametrize("key", MAY)
def test_what_changes_no_number_may_change(tmp_path, key):
    _open(tmp_path).close()
    changed = _changed(key, MAY[key])
    _open(tmp_path, changed).close()
    assert read_config(tmp_path) == changed


@pytest.mark.parametrize("key", MAY_NOT)
def test_another_config_is_refused_by_its_key(tmp_path, key):
    _open(tmp_path).close()
    _refuse(tmp_path, f"{tmp_path} holds a run with another config: {key}", config=_changed(key, MAY_NOT[key]))


def test_both_values_are_told(tmp_path):
    _open(tmp_path).close()
    _refuse(tmp_path, "config: task.length is 7 there and 8 here", config=_changed("task.length", 8))
    _refuse(tmp_path, "config: new is absent there and 1 here", config=_changed("new", 1))


def test_a_config_is_compared_as_its_file_gives_it_back(tmp_path):
    config = _changed("task.rate", float("nan")) | {"tags": ("a", "b")}
    _open(tmp_path, config).close()
    _open(tmp_path, config).close()


@pytest.mark.parametrize(
    ("status", "change", "is_completed"),
    [
        ("completed", {}, True),
        ("stopped early", {}, True),
        ("interrupted", {}, False),
        ("completed", {"trainer.steps": 13}, False),
        ("stopped early", {"trainer.patience": 5}, False),
        ("completed", {"notes": "more"}, True),
    ],
)
def test_a_completed_run_is_recognised_unless_its_end_is_moved(tmp_path, status, change, is_completed):
    _open(tmp_path).close()
    write_whole(tmp_path / "summary.json", to_json({"status": status}))
    [(key, value)] = change.items() or [("seed", CONFIG["seed"])]
    for _ in range(2):  # The second time the new end is the stored one, but it has not been reached.
        with _open(tmp_path, _changed(key, value)) as directory:
            assert directory.is_completed == is_completed
            assert directory.summary == ({"status": status} if is_completed else None)


def test_damage_is_one_sentence(tmp_path):
    _open(tmp_path).close()
    (tmp_path / "summary.json").write_text('{"status": "compl')
    _refuse(tmp_path, "summary.json cannot be read: it is damaged")
    (tmp_path / "config.yaml").write_text("seed: [")
    _refuse(tmp_path, f"{tmp_path} holds no run: its config.yaml cannot be read")


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
def test_a_directory_is_never_shared(tmp_path, monkeypatch, locks):
    """Of jobs that start at the same moment one gets the directory, on a file system without locks too."""
    if not locks:

        def refuse(*_):
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(run_directory.fcntl, "flock", refuse)

    def try_to_open(path):
        try:
            return _open(path, resume="never")
        except UserError as error:
            assert "is in use by another process" in str(error) or "already holds a run" in str(error)

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for trial in range(7):
            opened = [found for found in pool.map(try_to_open, [tmp_path / str(trial)] * 5) if found]
            assert len(opened) == 1
            opened[0].close()


def test_a_claim_of_which_nothing_came_is_taken_back(tmp_path):
    with open_run_directory(tmp_path / "run", CONFIG, [], resume="auto") as directory:
        (directory.checkpoints_path / "latest").mkdir(parents=True)
        (directory.path / "vocabulary.json").touch()
        (directory.path / "job.log").touch()  # Hydra's
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["job.log"]
    with open_run_directory(tmp_path / "run", CONFIG, [], resume="auto") as directory:
        directory.record()
    assert (tmp_path / "run/overrides.yaml").exists() and (tmp_path / "run/config.yaml").exists()


def test_a_second_live_process_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from seqlab.training.run_directory import open_run_directory\n"
        "held = open_run_directory(Path(sys.argv[1]), {'seed': 3}, [], resume='auto')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], **pipes) as process:
        assert process.stdout.readline() == "held\n"
        _refuse(tmp_path, f"The run directory {tmp_path} is in use by another process", config={"seed": 3})
        process.kill()
    _open(tmp_path, {"seed": 3}).close()
