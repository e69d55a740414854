"""How long a row can be passed through one vector, and what attention changes: writing up to 20 symbols backwards.

    python experiments/seq2seq_attention/study.py

trains what has not been trained yet into runs/seq2seq_attention_study, measures each decoder on rows of every length,
prints the table and draws figure.png beside this file.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import seqlab  # noqa: F401 (before JAX, so that its log is quiet)

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from seqlab.analysis.figures import COLOURS
from seqlab.evaluation.evaluate import finalise
from seqlab.evaluation.interval import interval
from seqlab.files import read_json
from seqlab.restore import open_run
from seqlab.training.step import make_measure

RUNS = Path("runs/seq2seq_attention_study")
FIGURE = Path(__file__).with_name("figure.png")
SEEDS, STEPS, N_ROWS = 3, 1500, 1024
LENGTHS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
TOLD = (4, 8, 12, 16, 20)
ROWS = {
    "final state": ["+experiment=seq2seq_attention", "model/decoder=fixed"],
    "context at each step": ["+experiment=seq2seq_attention", "model/decoder=context"],
    "hard attention": ["+experiment=seq2seq_attention", "model/decoder=hard"],
    "additive attention": ["+experiment=seq2seq_attention", "model/decoder=soft"],
    "Transformer": ["+experiment=seq2seq_transformer"],
}


def train(name: str) -> Path:
    """Train a row's replicas; a run that is complete is left as it is."""
    directory = RUNS / name.lower().replace(" ", "_")
    command = [sys.executable, "-m", "seqlab.train", *ROWS[name], f"seeds={SEEDS}", f"trainer.steps={STEPS}"]
    subprocess.run([*command, "logger=[]", f"hydra.run.dir={directory}"], check=True, stdout=subprocess.DEVNULL)
    return directory


def measure(directory: Path) -> np.ndarray:
    """The share of rows of each length that are right at every step, for each replica."""
    parts, _, state = open_run(directory, "latest")
    accuracy_LR = []
    for length in LENGTHS:
        task = dataclasses.replace(parts.task, min_symbols=length, n_symbols=length, n_eval=N_ROWS)  # type: ignore
        per_replica = jax.jit(jax.vmap(make_measure(parts.model, task, jnp.float32), (0, None)))
        sums, _ = per_replica(state.eval_params, task.evaluation_sets()["test"])
        accuracy_LR.append(finalise(jax.device_get(sums))["sequence_accuracy"])
    return np.array(accuracy_LR)


def main() -> None:
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axis = figure.subplots()
    print("| decoder | parameters | " + " | ".join(f"{length} symbols" for length in TOLD) + " | updates/s |")
    print("|---" * (3 + len(TOLD)) + "|")
    for colour, marker, name in zip(COLOURS, "osD^v", ROWS, strict=False):
        directory = train(name)
        summary, accuracy_LR = read_json(directory / "summary.json"), measure(directory)
        told = [interval(accuracy_LR[LENGTHS.index(length)].tolist()).format() for length in TOLD]
        rate = f"{summary['steps_per_second']:.1f}"
        print(f"| {name} | {summary['parameters']:,} | " + " | ".join(told) + f" | {rate} |", flush=True)
        axis.plot(LENGTHS, accuracy_LR.mean(1), marker=marker, markersize=5, color=colour, label=name)
        axis.fill_between(LENGTHS, accuracy_LR.min(1), accuracy_LR.max(1), color=colour, alpha=0.2, linewidth=0)
    axis.set(xlabel="symbols in the row", ylabel="share of rows without a mistake", xlim=(0, 21), ylim=(-0.03, 1.03))
    axis.set_xticks(range(0, 21, 4))
    axis.set_title(f"rows written backwards; lines: mean of {SEEDS} seeds, bands: all of them", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=9, loc="lower left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main()
