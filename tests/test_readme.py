"""The README's commands run when pasted, in their order, in a copy of the project.

A comment before a fenced block says how: "quick" or "slow" (make test-all); "with ARGUMENTS" appends them, so that the
test does not take an hour; "exits with N"; "file PATH" writes the block there; "skip, WHY".
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"<!-- tests: (.*?) -->\n```(\w+)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
COMMANDS = [
    pytest.param(how, command, id=command, marks=[] if how.startswith("quick") else pytest.mark.slow)
    for how, language, text in BLOCKS
    if not how.startswith(("skip", "file")) and "in a clone" not in how
    for command in (text.splitlines() if language == "bash" else [shlex.join(["python", "-c", text])])
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the files that the README adds."""
    copy = tmp_path_factory.mktemp("readme")
    for name in ("seqlab", "conf", "tests", "pyproject.toml"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
    for how, _, text in BLOCKS:
        if how.startswith("file "):
            (copy / how.removeprefix("file ")).write_text(text, encoding="utf-8")
    return copy


def test_every_block_with_commands_says_how_it_is_tested():
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.count("\n```bash\n") == sum(language == "bash" for _, language, _ in BLOCKS)
    assert all(how.split(",")[0].split()[0] in ("quick", "slow", "skip", "file") for how, _, _ in BLOCKS)


@pytest.mark.parametrize(("how", "command"), COMMANDS)
def test_command_runs(project, how, command):
    arguments = shlex.split(command)
    assert arguments[0] == "python"
    arguments[0] = sys.executable
    declared = re.search(r"with (.*)", how)
    if declared and "exits" not in how:
        arguments += shlex.split(declared[1])
    expected = re.search(r"exits with (\d)", how)
    environment = {**os.environ, "WANDB_MODE": "offline"}
    done = subprocess.run(arguments, cwd=project, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == (int(expected[1]) if expected else 0), done.stdout[-3000:] + done.stderr[-3000:]
    if expected:
        assert f"```\n{done.stderr}```" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_fresh_clone_trains_with_one_command(tmp_path):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XLA_", "NPROC"))}
    command = next(text.strip() for how, _, text in BLOCKS if "in a clone" in how)
    done = subprocess.run(
        shlex.split(command), cwd=tmp_path / "clone", env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "test/accuracy" in done.stdout and "1.000" in done.stdout
    assert list((tmp_path / "clone" / "runs").glob("*/*/figures/*.png"))
