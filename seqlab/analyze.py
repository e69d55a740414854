"""Look inside a run: `python -m seqlab.analyze run=DIR analysis=gradients [checkpoint=init …]`. See `--help`."""

from pathlib import Path

import jax
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seqlab.analysis.findings import pick
from seqlab.analysis.keep import keep_findings
from seqlab.build import build_analyses
from seqlab.cli import run_command
from seqlab.overrides import groups
from seqlab.restore import restore
from seqlab.training.devices import start
from seqlab.training.run_directory import name_run
from seqlab.types import UserError, require


def analyze(config: DictConfig) -> float:
    """Restore a run's parameters, look at them with one analysis after the other, and write what they find.

    `numbers.json`, figures and pages go to `analyses/NAME/` in the run's directory, `analyses/NAME_latest/` or
    `NAME_init/` for another checkpoint than the best.

    Raises   UserError for no analysis, a directory that holds no run or no checkpoint, a set that the task does not
             have, and a model that an analysis does not fit, after the other analyses.
    """
    require(
        bool(config.get("analysis")),
        f"analysis is not given: expected one of {', '.join(groups()['analysis'])}, as in analysis=gradients",
    )
    parts, _, state = restore(config, start(config.trainer.cpu_devices))
    batch = pick("split", config.split, parts.sets)
    checkpoint, step = config.checkpoint, max(state.step.tolist())
    # On the host, and so without the replicas' devices: an analysis goes through them one by one.
    params_R = jax.device_get(state.eval_params)
    refused = []
    for name, analysis in build_analyses(parts.config).items():
        try:
            findings = analysis(parts.model, params_R, parts.task, batch)
        except UserError as error:
            refused.append(f"{name}: {error}")
            continue
        told = {
            "analysis": name,
            "checkpoint": checkpoint,
            "step": step,
            "seeds": parts.seeds,
            "split": config.split,
            "overrides": list(HydraConfig.get().overrides.task),
        }
        directory = Path(config.run) / "analyses" / (name if checkpoint == "best" else f"{name}_{checkpoint}")
        title = f"{name_run(config.name, Path(config.run))}, {checkpoint} (step {step}), {config.split} set"
        print(*keep_findings(findings, directory, title, told), sep="\n")
    require(not refused, "; ".join(refused))
    return 0.0


def main() -> None:
    """The command line."""
    run_command(analyze, config_name="analyze", run_key="run")


if __name__ == "__main__":
    main()
