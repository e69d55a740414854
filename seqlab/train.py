"""Train: `python -m seqlab.train +experiment=copy_task`. See `--help`."""

import time
from pathlib import Path
from typing import Any

import jax
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqlab.analysis.config_tree import print_config
from seqlab.analysis.examples import describe_examples, print_examples
from seqlab.analysis.figures import plot_learning_curves
from seqlab.build import Parts, build, build_loggers
from seqlab.cli import FAILED_OBJECTIVE, run_command
from seqlab.data.learned import keep_learned
from seqlab.evaluation.baseline import measure_baseline
from seqlab.evaluation.written import keep_written, measure_written, print_written, writes_texts
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import start
from seqlab.training.loggers.composite import Loggers
from seqlab.training.loggers.console import ConsoleLogger
from seqlab.training.loggers.jsonl import JsonlLogger, read_events
from seqlab.training.loop import Loop, Progress
from seqlab.training.programs import Programs
from seqlab.training.run_directory import ENDED, RunDirectory, open_run_directory
from seqlab.training.summary import print_summary, summarise, write_summary
from seqlab.types import Run, UserError, require


def train(config: DictConfig) -> float:
    """Train what the config says in the run directory that Hydra gives; returns the best value of the monitor.

    Whatever can be refused is refused before anything is compiled or written. A run that is complete is only shown.

    Raises   UserError for a mistake in the config, and once every replica has diverged;
             KeyboardInterrupt after a run that was asked to stop, with everything saved.
    """
    began = time.perf_counter()
    devices = start(config.trainer.cpu_devices)
    parts = build(config)
    programs = Programs(parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, devices, parts.seeds)
    path, overrides = Path(HydraConfig.get().runtime.output_dir), list(HydraConfig.get().overrides.task)
    with open_run_directory(path, parts.config, overrides, resume=config.resume) as directory:
        summary = directory.summary
        if summary is None or not directory.is_completed:
            summary = _run(parts, programs, directory, began)
        print_summary(summary, directory.path)
    if summary["status"] == "diverged":
        raise UserError(f"{path}: {summary['message']}.")
    if summary["status"] == "interrupted":
        raise KeyboardInterrupt
    best = summary["best_value"]
    return FAILED_OBJECTIVE if best is None else best


def _run(parts: Parts, programs: Programs, directory: RunDirectory, began: float) -> dict[str, Any]:
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
        read_events(directory.metrics_path)
    keep_learned(parts.task, directory.path)
    directory.record()
    print_config(parts.config)
    _print_decay(parts, programs)
    examples = describe_examples(parts.task, programs.buckets, programs.bounds, settings.batch_size)
    print_examples(examples)
    logger = Loggers([JsonlLogger(), ConsoleLogger(), *build_loggers(parts.config)])
    summary: dict[str, Any] = {"status": "failed"}
    try:
        logger.start(_describe(parts, directory, resumed_from))
        programs.compile()
        loop = Loop(settings, programs, checkpoints, logger, progress)
        outcome = loop.run(programs.init() if state is None else state)
        whole = outcome.status in ENDED and progress.best_step is not None
        written = _write(parts, checkpoints, directory) if whole else None
        summary = summarise(
            read_events(directory.metrics_path),
            status=outcome.status,
            message=outcome.message,
            steps=outcome.step,
            monitor=settings.monitor,
            mode=settings.mode,
            skipped_R=outcome.skipped_R,
            parameters=programs.n_parameters,
            compile_seconds=programs.compile_seconds,
            wall_seconds=time.perf_counter() - began,
            baseline=measure_baseline(parts.task, parts.sets, settings.eval_batch_size),
            examples=examples,
            written=written,
        )
        plot_learning_curves(directory.metrics_path, directory.figures_path)
    except BaseException as error:
        summary = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        raise
    finally:
        write_summary(directory.summary_path, summary)
        logger.finish(summary["status"], summary)
        checkpoints.close()
        programs.close()
    return summary


def _write(parts: Parts, checkpoints: Checkpoints, directory: RunDirectory) -> dict[str, Any] | None:
    """Let the best state write the texts that the task asks for, as `seqlab.evaluate` will; None of other tasks."""
    if not writes_texts(parts.task):
        return None
    params_R = checkpoints.restore_params("best")
    written = measure_written(parts.task, parts.sets, parts.model, params_R, parts.settings.eval_batch_size)
    keep_written(written.rows, directory.written_path)
    print_written(written.rows)
    return written.scores


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
        name=f"{config['name']}-{path.name}",
        group=f"{config['name']}-{path.parent.name}" if in_sweep else config["name"],
        tags=tuple(config["tags"]),
        notes=config["notes"],
        config=config,
        n_steps=parts.settings.steps,
        n_replicas=len(parts.seeds),
        resumed_from=resumed_from,
    )


def main() -> None:
    """The command line."""
    run_command(train)


if __name__ == "__main__":
    main()
