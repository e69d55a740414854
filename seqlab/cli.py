"""The door of the command lines: from `sys.argv` to a job, and from whatever ends it to a sentence and an exit code.

Exit codes: 0 done, 1 a failure of ours (with its traceback) or of a job of a sweep, 2 a mistake of the user's (one
sentence), 130 interrupted.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import jax
import platformdirs
import yaml
from hydra._internal.utils import get_args
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import (
    InterpolationKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from seqlab.analysis.run_table import collect, print_run_table
from seqlab.files import to_json
from seqlab.overrides import (
    CONF,
    explain_absent,
    explain_key,
    explain_missing,
    explain_unfit,
    groups,
    merge_overrides,
    require_known_fields,
    require_of_use,
    require_wellformed,
    stored_overrides,
)
from seqlab.training.stopping import hear_signals
from seqlab.types import UserError, require

Job = Callable[[DictConfig], float]
"""A command's work on one composed config; it returns what a sweeper optimises."""

FAILED_OBJECTIVE = 1e30
"""What a failed job returns to the sweeper: worse than any loss, and finite, since Optuna stops at a NaN."""


def run_command(job: Job, config_name: str = "config", run_key: str = "resume") -> None:
    """Run `job` on the config that the command line asks for, once or once a job of a sweep.

    `run_key=RUN_DIR` goes back to a run: its own overrides come first, those of the command line win, and the working
    directory of the job is RUN_DIR.
    """
    # Hydra then raises its errors instead of printing them and exiting.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    SweepTable.directory = None
    overrides = get_args(sys.argv[1:]).overrides
    try:
        hear_signals()
        require_wellformed(overrides)
        # A debug choice shrinks whatever else is chosen, wherever it stands.
        sys.argv[1:] = sorted(_go_back(sys.argv[1:], run_key), key=lambda told: told.startswith("+debug="))
        overrides = get_args(sys.argv[1:]).overrides
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(_at_the_door(job))()
    except KeyboardInterrupt:
        if SweepTable.directory is not None:
            print_run_table(collect(SweepTable.directory))
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read what we print has had enough; at the exit Python would complain of what is still to be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (UserError, HydraException, OmegaConfBaseException, OSError) as error:
        sentence = _explain(error) or _explain_composition(error, config_name, overrides)
        if sentence is None:
            raise
        if SweepTable.directory is not None:
            _remove_unused(SweepTable.directory)
        print(sentence, file=sys.stderr)
        sys.exit(2)


class SweepTable(Callback):
    """At the end of a sweep: one table over its jobs, and a non-zero exit when one of them failed."""

    directory: Path | None = None
    """That of the sweep that goes on."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepTable.directory = Path(config.hydra.sweep.dir).absolute()
        for file in Path(config.hydra.sweep.dir).glob("failed_*.txt"):
            file.unlink()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        sweep_dir, SweepTable.directory = Path(config.hydra.sweep.dir), None
        rows = collect(sweep_dir)
        n_not_done = print_run_table(rows)
        # A job that was refused because its directory holds another run is known by its note alone.
        n_failed = max(n_not_done, len(list(sweep_dir.glob("failed_*.txt"))))
        if n_failed:
            print(f"{n_failed} of {len(rows)} jobs failed.", file=sys.stderr)
            sys.exit(1)


def use_compilation_cache() -> None:
    """Keep what XLA compiles in the user's cache directory, or where JAX_COMPILATION_CACHE_DIR says.

    Each kind of processor has a folder of its own: a home may be shared, and a program compiled for one kind can end
    the process on another.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        directory = platformdirs.user_cache_path("seqlab") / "jax" / _name_processor()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            return
        jax.config.update("jax_compilation_cache_dir", str(directory))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX's own 1 s would leave out all but the training step.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _name_processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    abilities = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(abilities.encode()).hexdigest()[:8]}"


def _at_the_door(job: Job) -> Job:
    @functools.wraps(job)
    def guarded(config: DictConfig) -> float:
        run = HydraConfig.get()
        in_sweep = run.mode == RunMode.MULTIRUN
        directory = Path(run.runtime.output_dir)
        if in_sweep:
            print(f"\njob {run.job.num}: {' '.join(run.overrides.task)}", flush=True)
        try:
            use_compilation_cache()
            require_known_fields(config)
            return job(config)
        except Exception as error:
            sentence = _explain(error)
            message = sentence or traceback.format_exc()
            if in_sweep:
                print(f"job {run.job.num} failed: {message}", file=sys.stderr)
                _write_failure(run.job.num, Path(run.sweep.dir), directory, list(run.overrides.task), message)
                return FAILED_OBJECTIVE
            print(message, file=sys.stderr)
            sys.exit(1 if sentence is None else 2)
        finally:
            if not in_sweep:
                _remove_empty(directory)

    return guarded


def _remove_unused(sweep_dir: Path) -> None:
    """Take away the directory of a sweep of which no job has begun: Hydra's record of it is all that it holds."""
    record = sweep_dir / "multirun.yaml"
    if list(sweep_dir.glob("*")) == [record]:
        record.unlink()
        _remove_empty(sweep_dir)


def _remove_empty(directory: Path) -> None:
    """Take away the directory that Hydra made, if nothing came to lie in it, and what is empty then above it."""
    with contextlib.suppress(OSError):  # It is not empty.
        directory.rmdir()
        for parent in directory.parents:
            if parent == Path.cwd() or not parent.is_relative_to(Path.cwd()):
                break
            parent.rmdir()


def _go_back(arguments: list[str], run_key: str) -> list[str]:
    run_dirs = [argument.removeprefix(f"{run_key}=") for argument in arguments if argument.startswith(f"{run_key}=")]
    given = run_dirs[-1].strip("'\"") if run_dirs else None
    if run_key == "resume" and given in (None, "auto", "never"):
        return arguments
    told = f"{run_key}={given or 'DIR'}"
    require(not {"-m", "--multirun"} & set(arguments), f"{told}: a sweep cannot go back to a run, leave out -m.")
    if given is None:
        return arguments  # It is asked for once the rest is known, and --help without it.
    if run_key != "resume":
        require_of_use(arguments, given)
    run_dir = Path(given)
    return [f"hydra.run.dir='{run_dir}'", *merge_overrides(stored_overrides(run_dir), arguments)]


def _write_failure(job: int, sweep_dir: Path, directory: Path, overrides: list[str], message: str) -> None:
    """Leave a note in the sweep's directory; in the job's its overrides and a summary, unless they are there."""
    (sweep_dir / f"failed_{job}.txt").write_text(message, encoding="utf-8")
    summary = to_json({"status": "failed", "message": message.splitlines()[-1]}, indent=2)
    for name, text in (("overrides.yaml", yaml.safe_dump(overrides)), ("summary.json", summary)):
        with contextlib.suppress(FileExistsError), (directory / name).open("x", encoding="utf-8") as file:
            file.write(text)


def _explain(error: BaseException) -> str | None:
    """The sentence of the UserError that Hydra or OmegaConf may have wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return str(cause)
        if not isinstance(cause, HydraException | OmegaConfBaseException):
            return None
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value: write {error.full_key}=..."
    if isinstance(error, UnsupportedInterpolationType):
        return (
            f"{error.full_key}: {str(error).splitlines()[0]}; there are ${{epochs:N}}, ${{task_size:NAME}} and ${{KEY}}"
        )
    return str(error).splitlines()[0] if isinstance(error, InterpolationKeyError) else None


def _explain_composition(error: Exception, config_name: str, overrides: list[str]) -> str | None:
    if isinstance(error, MissingConfigException):
        return explain_missing(error)
    if isinstance(error, OverrideParseException):
        key = str(error.override).partition("=")[0]
        return f"{error.override}: not an override that can be read; quote a text twice, {key}='\"...\"'."
    if isinstance(error, ConfigCompositionException):
        message = " ".join(str(error).split())
        if message.startswith("Ambiguous value"):
            override = message.split(chr(39))[1]
            key = override.partition("=")[0]
            return (
                f"{override}: add -m to sweep over the values, write [...] for a list, "
                f"or quote a text twice, {key}='\"...\"'."
            )
        if message.startswith("You must specify"):
            group = message.split("'")[1]
            return f"{group} is not chosen: write {group}=..., one of {', '.join(groups()[group])}."
        if message.startswith("Multiple values for"):
            return f"{message.split()[3].rstrip('.')} is chosen more than once: leave one out."
        absent = re.match(r"(?:In '(?P<by>\S+)': )?Could not override '(?P<group>[\w/]+)", message)
        if absent and absent["by"]:
            return explain_unfit(absent["by"], absent["group"], overrides)
        told = explain_absent(absent["group"]) if absent else None
        return told or explain_key(config_name, overrides) or message
    if isinstance(error, OSError):
        return f"{error.filename}: the run directory cannot be made ({error.strerror})."
    return None
