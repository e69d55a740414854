"""Measure a trained run: `python -m seqlab.evaluate run=DIR [task.length=200 …]`. See `--help`."""

import datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from seqlab.analysis.examples import describe_examples, print_changes, print_examples
from seqlab.cli import run_command
from seqlab.evaluation.baseline import measure_baseline
from seqlab.evaluation.evaluate import finalise
from seqlab.evaluation.written import leave_written
from seqlab.files import to_json, write_whole
from seqlab.restore import restore
from seqlab.training.devices import start
from seqlab.training.summary import Measured, format_baseline, format_measured, measure_values, tabulate_written


def evaluate(config: DictConfig) -> float:
    """Restore a run's best (or latest) parameters, measure them on the task's sets, and write what was measured.

    The config is the run's, with the command line's overrides: `task.length=200` measures on longer sequences. The
    result goes to `evaluations/` in the run's directory, with a file of the texts that are written, if the task is
    judged by such; nothing else there is touched.

    Raises   UserError for a directory that holds no run or no checkpoint, and for parameters that do not fit.
    """
    parts, programs, state = restore(config, start(config.trainer.cpu_devices))
    batch_size = parts.settings.batch_size
    examples = describe_examples(parts.task, programs.buckets, programs.bounds, batch_size)
    print_examples(examples)
    print_changes(Path(config.run), examples)
    programs.compile_evaluation()
    measured: Measured = {
        name: {metric: measure_values(values.tolist()) for metric, values in finalise(sums).items()}
        for name, sums in programs.evaluate(state.eval_params).items()
    }
    now = datetime.datetime.now()
    path = Path(config.run) / "evaluations" / f"{now:%Y-%m-%d_%H-%M-%S-%f}.json"
    path.parent.mkdir(exist_ok=True)
    record: dict[str, Any] = {
        "checkpoint": config.checkpoint,
        "step": max(state.step.tolist()),
        "overrides": list(HydraConfig.get().overrides.task),
        "seeds": parts.seeds,
        "measured": measured,
    }
    eval_batch_size = parts.settings.eval_batch_size
    if (baseline := measure_baseline(parts.task, parts.sets, eval_batch_size)) is not None:
        record["baseline"] = baseline
    given = parts.task, parts.sets, parts.model, state.eval_params, eval_batch_size
    if (written := leave_written(*given, path.with_suffix(".written.jsonl"))) is not None:
        record["written"] = written.scores
    write_whole(path, to_json(record, indent=2) + "\n")
    _print(record, path)
    split, metric = parts.settings.monitor.split("/", 1)
    return measured[split][metric]["mean"]


def _print(record: dict[str, Any], path: Path) -> None:
    state = f"{record['checkpoint']}, step {record['step']}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    table.add_column(state, justify="right")
    if "baseline" in record:
        table.add_column(record["baseline"]["name"], justify="right")
    for split, named in record["measured"].items():
        for name, value in named.items():
            told = [format_baseline(record["baseline"], split, name)] if "baseline" in record else []
            table.add_row(f"{split}/{name}", format_measured(value), *told)
    console = Console()
    console.print(table)
    if "written" in record:
        console.print(tabulate_written(record["written"], state))
    console.print(f"written to {path}", soft_wrap=True, markup=False, highlight=False)


def main() -> None:
    """The command line."""
    run_command(evaluate, config_name="evaluate", run_key="run")


if __name__ == "__main__":
    main()
