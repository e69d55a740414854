"""Train: `python -m seqlab.train +experiment=copy_task`. See `--help`."""

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import jax
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seqlab.analysis.config_tree import print_config
from seqlab.analysis.examples import describe_examples, print_examples
from seqlab.analysis.figures import plot_learning_curves
from seqlab.analysis.findings import Analysis, Findings
from seqlab.analysis.samples import leave_samples
from seqlab.analysis.watch import Watch, look_first
from seqlab.build import Parts, build, build_analyses, build_loggers
from seqlab.cli import FAILED_OBJECTIVE, run_command
from seqlab.data.learned import keep_learned
from seqlab.evaluation.baseline import measure_baseline
from seqlab.evaluation.written import leave_written
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import start
from seqlab.training.hosts import (
    LostHosts,
    fetch,
    first_says,
    is_first,
    meet,
    require_same,
    telling_of_lost_hosts,
)
from seqlab.training.loggers.composite import Loggers
from seqlab.training.loggers.console import ConsoleLogger
from seqlab.training.loggers.jsonl import JsonlLogger, read_events
from seqlab.training.loop import Look, Loop, Outcome, Progress
from seqlab.training.memory import PeakMemory
from seqlab.training.profiler import Profiler
from seqlab.training.programs import Programs
from seqlab.training.run_directory import ENDED, RunDirectory, name_run, open_run_directory
from seqlab.training.state import State
from seqlab.training.summary import print_summary, summarise, write_summary
from seqlab.types import Exhibit, Logger, Params, Run, UserError, require


def train(config: DictConfig) -> float:
    """Train what the config says in the run directory that Hydra gives; returns the best value of the monitor.

    Whatever can be refused is refused before anything is compiled or written. A run that is complete is only shown.

    Raises   UserError for a mistake in the config, and once every replica has diverged;
             KeyboardInterrupt after a run that was asked to stop, with everything saved.
    """
    began = time.perf_counter()
    _require_one_job(config)
    devices = start(config.trainer.cpu_devices, config.trainer.hosts)
    memory = PeakMemory()
    parts = build(_without_place(config))
    require_same("The commands", yaml.safe_dump(parts.config).encode())
    analyses = build_analyses(parts.config)
    programs = Programs(parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, devices, parts.seeds)
    path = _agree_on_directory()
    # Where a host sits is this command's alone: whoever goes on with the run or measures it sits elsewhere.
    overrides = [told for told in HydraConfig.get().overrides.task if not told.startswith("trainer.hosts")]
    require(
        bool(analyses) or parts.settings.analyze_every is None,
        f"trainer.analyze_every is {parts.settings.analyze_every}, but nothing looks on: add analysis=[gradients]",
    )
    first = {}
    if analyses and not (path / "checkpoints").exists():
        first = _look_first(parts, analyses, programs.init())
    with open_run_directory(path, parts.config, overrides, resume=config.resume) as directory:
        summary = directory.summary
        if summary is None or not directory.is_completed:
            summary = _run(parts, programs, analyses, first, directory, began, memory)
        print_summary(summary, directory.path)
    meet()  # A host that left early would be missed.
    if summary["status"] == "diverged":
        raise UserError(f"{path}: {summary['message']}.")
    if summary["status"] == "interrupted":
        raise KeyboardInterrupt
    best = summary["best_value"]
    return FAILED_OBJECTIVE if best is None else best


def _require_one_job(config: DictConfig) -> None:
    hosts = config.trainer.hosts
    require(
        hosts is None or HydraConfig.get().mode != RunMode.MULTIRUN,
        f"trainer.hosts is {hosts}: several hosts train one run, and -m asks for many; leave one of them out",
    )


def _without_place(config: DictConfig) -> DictConfig:
    """The config without where this host sits, so that it is the same on all."""
    return OmegaConf.merge(config, {"trainer": {"hosts": None}})  # type: ignore[return-value]


def _agree_on_directory() -> Path:
    """The directory that Hydra made for the first host; another host's has another microsecond in its name."""
    own = HydraConfig.get().runtime.output_dir
    path = first_says(lambda: own)
    if path != own:
        with contextlib.suppress(OSError):  # It holds something.
            Path(own).rmdir()
    return Path(path)


def _run(
    parts: Parts,
    programs: Programs,
    analyses: dict[str, Analysis],
    first: dict[str, Findings],
    directory: RunDirectory,
    began: float,
    memory: PeakMemory,
) -> dict[str, Any]:
    settings = parts.settings
    checkpoints = Checkpoints(directory.checkpoints_path)
    state, progress, resumed_from = None, Progress(), checkpoints.latest_step()
    if resumed_from is not None:
        state, host = checkpoints.restore("latest", programs.state_like)
        progress = Progress(**host)
        require(
            resumed_from <= settings.steps,
            f"{directory.path} is at step {resumed_from} already: trainer.steps={settings.steps} would go back.",
        )
        require(
            directory.metrics_path.is_file(),
            f"{directory.metrics_path} is gone, but its run is at step {resumed_from}: put it back, or train anew in "
            "another directory.",
        )
        read_events(directory.metrics_path)
    earlier_seconds = progress.wall_seconds
    if analyses and not first:
        first = _look_first(parts, analyses, programs.init() if state is None else state)
    first_says(lambda: keep_learned(parts.task, directory.path))
    first_says(directory.record)
    print_config(parts.config)
    _print_decay(parts, programs)
    examples = describe_examples(parts.task, programs.buckets, programs.bounds, settings.batch_size)
    print_examples(examples)
    loggers: list[Logger] = [JsonlLogger(), ConsoleLogger(), *build_loggers(parts.config)]
    logger = Loggers(loggers if is_first() else [])
    run = _describe(parts, directory, resumed_from)
    summary: dict[str, Any] = {"status": "failed"}
    try:
        first_says(lambda: logger.start(run))
        programs.compile()
        progress.compile_seconds += programs.compile_seconds
        look = _watch(parts, analyses, first, run, logger) if analyses else None
        profiler = Profiler(directory.profile_path, *settings.profiled) if settings.profiled and is_first() else None
        loop = Loop(settings, programs, checkpoints, logger, progress, look, profiler, began)

        def sum_up(outcome: Outcome, params_R: Params | None) -> dict[str, Any]:
            written = None
            if params_R is not None:
                given = parts.task, parts.sets, parts.model, params_R
                written = leave_written(*given, settings.eval_batch_size, directory.written_path)
                said_by = progress.best_step, parts.seeds[0]
                tables = leave_samples(*given, written and written.rows, directory.samples_path, *said_by)
                if tables is not None:
                    logger.show(Exhibit(outcome.step, "samples", directory.samples_path, tables=tables))
            summary = summarise(
                read_events(directory.metrics_path),
                status=outcome.status,
                message=outcome.message,
                steps=outcome.step,
                monitor=settings.monitor,
                mode=settings.mode,
                skipped_R=outcome.skipped_R,
                parameters=programs.n_parameters,
                compile_seconds=progress.compile_seconds,
                wall_seconds=earlier_seconds + time.perf_counter() - began,
                earlier_seconds=earlier_seconds,
                peak_memory_mib=memory.mebibytes(),
                baseline=measure_baseline(parts.task, parts.sets, settings.eval_batch_size),
                examples=examples,
                written=written and written.scores,
            )
            plot_learning_curves(directory.metrics_path, directory.figures_path)
            return summary

        with telling_of_lost_hosts(directory.path):
            outcome = loop.run(programs.init() if state is None else state)
            whole = outcome.status in ENDED and progress.best_step is not None
            params_R = checkpoints.restore_params("best") if whole else None
            summary = first_says(lambda: sum_up(outcome, params_R))
    except KeyboardInterrupt:
        summary = {"status": "interrupted", "message": "before the first step, or after the last"}
        print_summary(summary, directory.path)
        raise
    except BaseException as error:
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        summary = {"status": "failed", "message": told}
        raise
    finally:
        if is_first():
            write_summary(directory.summary_path, summary)
        logger.finish(summary["status"], summary)
        if not isinstance(sys.exception(), LostHosts):  # for whom a checkpoint in the making would wait
            checkpoints.close()
        programs.close()
    return summary


def _watched_set(parts: Parts) -> str:
    """The set by which the best state is picked."""
    return parts.settings.monitor.split("/", 1)[0]


def _look_first(parts: Parts, analyses: dict[str, Analysis], state: State) -> dict[str, Findings]:
    """What analyses find at the state that training begins with: one that does not fit is refused."""
    params_R = fetch(state.eval_params)
    return look_first(analyses, parts.model, params_R, parts.task, parts.sets[_watched_set(parts)])


def _watch(parts: Parts, analyses: dict[str, Analysis], first: dict[str, Findings], run: Run, logger: Loggers) -> Look:
    """What looks at the model while it is trained."""
    if not is_first():
        return lambda step, params_R: None
    split, directory = _watched_set(parts), run.directory / "analyses"
    told = parts.seeds, run.name, directory, logger.show
    return Watch(analyses, parts.model, parts.task, parts.sets, split, *told, first)


def _print_decay(parts: Parts, programs: Programs) -> None:
    if parts.optimiser.weight_decay:
        one_replica = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), programs.state_like.params
        )
        lines = parts.optimiser.describe_decay(one_replica)
        print(f"weight decay {parts.optimiser.weight_decay}:", *lines, sep="\n  ")


def _describe(parts: Parts, directory: RunDirectory, resumed_from: int | None) -> Run:
    config, path = parts.config, directory.path
    in_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    return Run(
        directory=path,
        name=name_run(config["name"], path),
        group=f"{config['name']}-{path.parent.name}" if in_sweep else config["name"],
        tags=tuple(config["tags"]),
        notes=config["notes"],
        config=config,
        n_steps=parts.settings.steps,
        n_replicas=len(parts.seeds),
        resumed_from=resumed_from,
        environment=directory.environment,
    )


def main() -> None:
    """The command line."""
    run_command(train)


if __name__ == "__main__":
    main()
