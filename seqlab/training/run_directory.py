"""A run's directory: claimed by one process, described before the first step, recognised when it is come back to."""

import errno
import fcntl
import fnmatch
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import yaml
from flax.traverse_util import flatten_dict

import seqlab
from seqlab.files import read_json, to_json, write_whole
from seqlab.training.hosts import first_says
from seqlab.training.onlookers import WORDS, is_onlooker
from seqlab.types import UserError, require

# What, besides who looks on, may differ when a run is gone on with, and why the numbers stay those of one
# uninterrupted run:
MAY_CHANGE = (
    *WORDS,
    # When to end. A schedule that depends on the steps holds them in its own node, which must not differ.
    # (An old end off the grid of log_every and eval_every leaves its own events in the record.)
    *("trainer.steps", "trainer.patience", "trainer.max_nonfinite"),
    # How often the state is saved: nothing but the checkpoints depends on it.
    "trainer.save_every",
    # How the same sums are spread: equal up to rounding, and a run may move to a machine with other cores.
    "trainer.cpu_devices",
    *("trainer.hosts", "trainer.hosts.*"),
)
ENDED = ("completed", "stopped early")
THE_END = ("trainer.steps", "trainer.patience")
# What may lie in a directory before a run begins in it: Hydra's, and what is left of a start that failed.
BEFORE_A_RUN = (".hydra", "*.log", ".lock", "overrides.yaml", "summary.json")
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class RunDirectory:
    """A directory that this process holds until `close`; of several hosts the first does, and writes.

    config.yaml  overrides.yaml   the resolved config and what the command line changed
    environment.json              versions, commit, devices and command line, one entry for each time it was started
    vocabulary.json               the tokens and their ids, of a task that reads text
    written.jsonl                 what the best state writes for the test set, of a task that is judged by texts
    samples.jsonl                 a few rows of the test set and what the best state says of them
    metrics.jsonl  summary.json  checkpoints/  figures/  evaluations/  analyses/
    """

    def __init__(self, path: Path, config: dict[str, Any], overrides: list[str]) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.summary_path = path / "summary.json"
        self.checkpoints_path = path / "checkpoints"
        self.figures_path = path / "figures"
        self.evaluations_path = path / "evaluations"
        self.profile_path = path / "profile"
        self.written_path = path / "written.jsonl"
        self.samples_path = path / "samples.jsonl"
        self.is_completed = False  # Whether an earlier process brought the run to the end that its config sets.
        self._lock = -1
        self._is_new = False  # Whether nothing but the claim is here.
        self._config, self._overrides = config, overrides
        self.environment: dict[str, Any] = {}  # What this process started with, once it is recorded.
        self._environments: list[dict[str, Any]] = []

    def record(self) -> None:
        """Write what this process starts with, and take away the summary of an end that will not be this run's.

        To be called once all that is there has been read: until then a refusal leaves a run as it was.
        """
        self._is_new = False
        self.environment = _describe_environment()
        environments = [*self._environments, self.environment]
        try:
            self.summary_path.unlink(missing_ok=True)
            write_whole(self.path / "config.yaml", _to_yaml(self._config))
            write_whole(self.path / "overrides.yaml", _to_yaml(self._overrides))
            write_whole(self.path / "environment.json", to_json(environments, indent=2) + "\n")
        except OSError as error:
            raise UserError(f"The run directory {self.path} cannot be written: {error.strerror}") from error

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on from."""
        return any(path.name.isdigit() for path in (self.checkpoints_path / "latest").glob("*"))

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary that an earlier process left; None if it was killed, or there was none."""
        return read_json(self.summary_path) if self.summary_path.exists() else None

    def claim(self, resume: str) -> bool:
        """Hold the directory for a new run, or for the run here if it is the one to go on with.

        Returns whether that run has come to the end that its config sets.
        """
        _require_room(self.path)
        self._lock = _lock(self.path)
        try:
            return self._claim(resume)
        except OSError as error:
            self.close()
            raise UserError(f"The run directory {self.path} cannot be written: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def _claim(self, resume: str) -> bool:
        path, config = self.path, self._config
        if not (path / "config.yaml").exists():
            try:
                # Exclusive, so that even on a file system without locks only one process can begin a run here.
                with (path / "config.yaml").open("x", encoding="utf-8") as file:
                    file.write(_to_yaml(config))
            except FileExistsError as error:
                raise UserError(f"The run directory {path} is in use by another process") from error
            self._is_new = True
            return False
        require(resume != "never", f"{path} already holds a run, and resume=never starts only new ones")
        stored = read_config(path)
        _require_same(path, stored, config)
        was, now = flatten_dict(stored, sep="."), flatten_dict(config, sep=".")
        ended = (self.summary or {}).get("status") in ENDED
        if (path / "environment.json").exists():
            self._environments = read_json(path / "environment.json")
        return ended and all(was.get(key) == now.get(key) for key in THE_END)

    def close(self) -> None:
        """Let go of the directory; where nothing has been recorded, take the claim back."""
        if self._is_new:
            for entry in self.path.iterdir():
                if entry.is_dir() and not _matches(entry.name, BEFORE_A_RUN):
                    shutil.rmtree(entry)
                elif entry.name == ".lock" or not _matches(entry.name, BEFORE_A_RUN):
                    entry.unlink()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_run_directory(path: Path, config: dict[str, Any], overrides: list[str], *, resume: str) -> RunDirectory:
    """Claim `path` for a new run, or go on with the run that it holds.

    `resume` is "auto" (go on if there is a run of the same config), "never", or the directory of a run to go on with
    in place of `path`. `config` holds plain values alone. A new directory gets its config, which is the claim; in
    that of a run nothing is written before `record`.

    Raises   UserError for a directory that cannot be written, is in use, holds something else, holds another run, or
             holds a run where there should be none.
    """
    if resume not in ("auto", "never"):
        path = Path(resume)
        require(
            (path / "config.yaml").is_file(), f'resume={resume}: expected "auto", "never" or the directory of a run'
        )
    directory = RunDirectory(path.absolute(), _to_plain(config), overrides)
    directory.is_completed = first_says(lambda: directory.claim(resume))
    return directory


def name_run(config_name: str, path: Path) -> str:
    """What the run in a directory is called wherever it is shown."""
    return f"{config_name}-{path.resolve().name}"


def read_config(path: Path) -> dict[str, Any]:
    """Read the config that a run directory keeps."""
    try:
        config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} holds no run: its config.yaml cannot be read") from error
    require(isinstance(config, dict), f"{path} holds no run: its config.yaml is not a config")
    return config


def _require_room(path: Path) -> None:
    """Refuse a directory that holds something else than a run."""
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    others = [name for name in names if not _matches(name, BEFORE_A_RUN)]
    require(not others or "config.yaml" in others, f"{path} holds something else than a run: {', '.join(others[:3])}")


def _lock(path: Path) -> int:
    """Hold the directory for this process: the kernel lets go of it however the process ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"The run directory {path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(lock)
            raise UserError(f"The run directory {path} is in use by another process") from error
    return lock


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _require_same(path: Path, stored: dict[str, Any], config: dict[str, Any]) -> None:
    here, there = flatten_dict(stored, sep="."), flatten_dict(config, sep=".")
    for key in [*there, *(key for key in here if key not in there)]:
        if is_onlooker(key) or _matches(key, MAY_CHANGE):
            continue
        was, now = (values.get(key, "absent") for values in (here, there))
        require(
            was == now or repr(was) == repr(now),  # NaN equals nothing but is written alike.
            f"{path} holds a run with another config: {key} is {was} there and {now} here; {key}={was} keeps it",
        )


def _to_plain(config: dict[str, Any]) -> dict[str, Any]:
    """The config as its file will give it back, tuples as lists."""
    return yaml.safe_load(_to_yaml(config))


def _to_yaml(node: Any) -> str:
    return yaml.safe_dump(node, sort_keys=False, allow_unicode=True)


def _describe_environment() -> dict[str, Any]:
    versions = {
        name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
    }
    devices = jax.devices()
    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        **versions,
        "commit": _describe_commit(),
        "devices": {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)},
        "hosts": jax.process_count(),
        "command": sys.argv,
    }


def _describe_commit() -> dict[str, Any] | None:
    """The commit of seqlab's own checkout and whether files differ from it; None for an installed package."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(seqlab.__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed package may lie inside somebody else's checkout, which does not track it.
        git("ls-files", "--error-unmatch", "__init__.py")
        return {"hash": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None
