"""What a run of the command line leaves in its directory, to be compared with what another one leaves."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from omegaconf import OmegaConf

from seqlab.build import build
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.loggers.jsonl import read_events
from seqlab.training.programs import Programs
from seqlab.training.run_directory import read_config


def what_it_left(directory: Path) -> tuple[Any, list[Any], dict[str, Any]]:
    """Both checkpoints, the lines of the record but for the rates, and the summary but for the seconds."""
    parts = build(OmegaConf.create(read_config(directory)))
    programs = Programs(
        parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:2], parts.seeds
    )
    checkpoints = Checkpoints(directory / "checkpoints")
    states = [checkpoints.restore(which, programs.state_like)[0] for which in ("latest", "best")]
    checkpoints.close()
    lines = [(event.step, event.split, event.values) for event in read_events(directory / "metrics.jsonl")]
    summary = json.loads((directory / "summary.json").read_text())
    return jax.device_get(states), lines, {key: summary[key] for key in ("status", "steps", "final", "best")}


def require_equal(there: Path, here: Path) -> None:
    """Two runs left the same, bit for bit."""
    states, lines, summary = what_it_left(there)
    states_here, lines_here, summary_here = what_it_left(here)
    jax.tree.map(np.testing.assert_array_equal, states, states_here)
    assert lines == lines_here
    assert summary == summary_here
