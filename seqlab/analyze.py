"""Look inside a run: `python -m seqlab.analyze run=DIR analysis=gradients [checkpoint=init …]`. See `--help`."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from seqlab.analysis.findings import pick
from seqlab.cli import run_command
from seqlab.files import to_json, write_whole
from seqlab.restore import restore
from seqlab.training.devices import start


def analyze(config: DictConfig) -> float:
    """Restore a run's parameters, look at them with one analysis, and write what it finds.

    `numbers.json` and the figures go to `analyses/NAME/` in the run's directory, `analyses/NAME_latest/` or
    `NAME_init/` for another checkpoint than the best.

    Raises   UserError for a directory that holds no run or no checkpoint, a set that the task does not have, and a
             model that the analysis does not fit.
    """
    analysis = instantiate(config.analysis)
    parts, _, state = restore(config, start(config.trainer.cpu_devices))
    batch = pick("split", config.split, parts.sets)
    # On the host, and so without the replicas' devices: an analysis goes through them one by one.
    findings = analysis(parts.model, jax.device_get(state.eval_params), parts.task, batch)
    name, checkpoint = HydraConfig.get().runtime.choices["analysis"], config.checkpoint
    directory = Path(config.run) / "analyses" / (name if checkpoint == "best" else f"{name}_{checkpoint}")
    directory.mkdir(parents=True, exist_ok=True)
    step = max(state.step.tolist())
    record = {
        "analysis": name,
        "checkpoint": checkpoint,
        "step": step,
        "seeds": parts.seeds,
        "split": config.split,
        "overrides": list(HydraConfig.get().overrides.task),
        "numbers": plain(findings.numbers),
    }
    write_whole(directory / "numbers.json", to_json(record, indent=1) + "\n")
    for file, figure in findings.figures.items():
        title = f"{config.name}, {checkpoint} (step {step}), {config.split} set"
        figure.suptitle(title, x=0.005, ha="left", fontsize=9)
        figure.savefig(directory / f"{file}.png", dpi=150)
        print(directory / f"{file}.png")
    print(directory / "numbers.json")
    return 0.0


def plain(node: Any) -> Any:
    """The same tree with lists for arrays."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    return node.tolist() if isinstance(node, np.ndarray | np.generic | jax.Array) else node


def main() -> None:
    """The command line."""
    run_command(analyze, config_name="analyze", run_key="run")


if __name__ == "__main__":
    main()
