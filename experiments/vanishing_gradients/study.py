"""How fast do gradients vanish or explode through time, at the start and after training, and what does clipping do?

    python experiments/vanishing_gradients/study.py

makes what is not there yet in runs/vanishing_gradients_study, prints the tables, draws bound.png, cells.png and
clipping.png beside this file.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from seqlab.analysis.figures import COLOURS, read_curves
from seqlab.analysis.findings import draw_band, dress
from seqlab.evaluation.interval import interval
from seqlab.files import read_json

RUNS = Path("runs/vanishing_gradients_study")
HERE = Path(__file__).parent
SEEDS, T = 5, 100
COMMON = [f"seeds={SEEDS}", "logger=[]", "model.inputs.features=32", "model.encoder.features=32", "task=copy_first"]
GAIN = "+model.encoder.layer.cell.recurrent_init={{_target_: jax.nn.initializers.orthogonal, scale: {gain}}}"
# All singular values of an orthogonal kernel times g are g; σ′ ≤ ¼, tanh′ ≤ 1.
BOUNDS = [("sigmoid", 0.5, 0.25), ("sigmoid", 4.0, 0.25), ("tanh", 0.5, 1.0), ("tanh", 1.0, 1.0), ("tanh", 2.0, 1.0)]
CELLS = {"RNN": "rnn", "GRU": "gru", "LSTM, b_f = 1": "lstm", "LSTM, chrono": "lstm_chrono"}
CLIPS = {"no clipping": "none", "by norm, at 1": "global_norm", "by value, at 5": "value"}


def train(name: str, *overrides: str) -> Path:
    """Train replicas; a run that is complete is left as it is, and one that diverges has said so."""
    directory = RUNS / name
    command = [sys.executable, "-m", "seqlab.train", *COMMON, *overrides, f"hydra.run.dir={directory}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert (directory / "summary.json").exists(), done.stderr
    return directory


def look(run: Path, checkpoint: str) -> dict[str, Any]:
    """The numbers of `analysis=gradients`."""
    name = "gradients" if checkpoint == "best" else f"gradients_{checkpoint}"
    path = run / "analyses" / name / "numbers.json"
    if not path.exists():
        fields = ["analysis.gradients.n_lags=99", f"checkpoint={checkpoint}"]
        command = [sys.executable, "-m", "seqlab.analyze", f"run={run}", "analysis=gradients", *fields]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_json(path)["numbers"]


def array(values: Any) -> np.ndarray:
    return np.array(values, np.float64)


def compare_bounds() -> None:
    """An RNN at its start: the largest singular value of ∂h_T/∂h_t and the bound (g · max φ′)^(T−t)."""
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axis = figure.subplots()
    print("| φ | spectral norm g | bound after 99 steps | largest singular value after 99 | a step |")
    print("|---|---|---|---|---|")
    for colour, (activation, gain, slope) in zip(COLOURS, BOUNDS, strict=False):
        cell = ["model/cell=rnn", f"model.encoder.layer.cell.activation={activation}", GAIN.format(gain=gain)]
        run = train(f"{activation}_{gain}", f"task.length={T}", "trainer.steps=1", *cell)
        of_layer = look(run, "init")["jacobians"]["layer 1"]["h"]
        lag, σ_RT = array(of_layer["lag"]), array(of_layer["largest"])
        label = f"{'σ' if activation == 'sigmoid' else 'tanh'}, g = {gain:g}"
        draw_band(axis, -lag, σ_RT, label, colour)
        axis.plot(-lag, (gain * slope) ** lag, "--", color=colour, linewidth=1)
        log10_R = np.log10(σ_RT[:, -1])
        told, step = interval(log10_R.tolist()).format(), 10 ** (log10_R.mean() / lag[-1])
        bound = lag[-1] * np.log10(gain * slope)
        print(f"| {label.split(',')[0]} | {gain:g} | 10^{bound:.1f} | 10^({told}) | {step:.3f} |", flush=True)
    axis.plot([], [], "--", color="0.4", linewidth=1, label="bound: (g · max φ′) a step")
    axis.set_yscale("log")
    dress(
        axis,
        f"An RNN before training, {SEEDS} seeds",
        "$t - T$",
        r"largest singular value of $\partial h_T/\partial h_t$",
    )
    axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(HERE / "bound.png", dpi=150)


def compare_cells() -> None:
    """Cells before and after training: ‖∂L_T/∂h_t‖, of an LSTM ‖∂L_T/∂C_t‖ beside it."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    print("\n| cell | test accuracy | start: first over last gradient | trained: first over last |\n|---|---|---|---|")
    for colour, (name, cell) in zip(COLOURS, CELLS.items(), strict=False):
        run = train(f"trained_{cell}", "+experiment=copy_task", f"model/cell={cell}", "trainer.steps=800")
        cells = [name, interval(read_json(run / "summary.json")["final"]["test"]["accuracy"]["values"]).format()]
        for axis, checkpoint in zip(axes, ("init", "latest"), strict=True):
            norms = look(run, checkpoint)["gradients"]["layer 1"]
            for state, norm in norms.items():
                norm_RT = array(norm)
                label = f"{name}: ${state}_t$"
                draw_band(
                    axis, np.arange(1 - norm_RT.shape[1], 1), norm_RT, label, colour, "--" if state == "C" else "-"
                )
            h_RT = array(norms["h"])
            cells.append(f"10^({interval(np.log10(h_RT[:, 0] / h_RT[:, -1]).tolist()).format()})")
        print("| " + " | ".join(cells) + " |", flush=True)
    for axis, title in zip(axes, ("before training", "after 800 updates"), strict=True):
        axis.set_yscale("log")
        dress(
            axis,
            f"Copying the first of 50 tokens, {title}",
            "$t - T$",
            r"$\|\partial L_T / \partial\,\cdot\,\|$, mean over rows",
        )
    axes[1].legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(HERE / "cells.png", dpi=150)


def compare_clipping() -> None:
    """An RNN of linear rectifiers that explodes, with and without clipping, on one and the same task."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    print("\n| clipping | ended | updates skipped of each seed | largest gradient norm | test accuracy |")
    print("|---|---|---|---|---|")
    cell = ["model/cell=rnn", "model.encoder.layer.cell.activation=relu", GAIN.format(gain=1.5)]
    steps = ["task.length=20", "trainer.steps=600", "trainer.log_every=10", "optim=sgd", "optim.learning_rate=0.05"]
    for colour, (name, clip) in zip(COLOURS, CLIPS.items(), strict=False):
        run = train(f"clip_{clip}", *cell, *steps, f"optim/clip={clip}")
        summary, curves = read_json(run / "summary.json"), read_curves(run / "metrics.jsonl")
        norm, loss = curves["gradient_norm"]["train"], curves["loss"]["train"]
        for axis, (steps_E, values_ER) in zip(axes, (norm, loss), strict=True):
            # A line a seed: one that diverges ends where it stood still.
            lines = axis.plot(steps_E, values_ER, color=colour, marker=".", markersize=2, linewidth=1, alpha=0.7)
            lines[0].set_label(name)
        final = summary["final"].get("test", {}).get("accuracy", {}).get("values")
        accuracy = interval(final).format() if final else "–"
        skipped = ", ".join(map(str, summary["skipped_updates"]))
        largest = np.nanmax(norm[1])
        print(f"| {name} | {summary['status']} | {skipped} | {largest:.3g} | {accuracy} |", flush=True)
    for axis, y in zip(axes, ("gradient norm before clipping", "training loss"), strict=True):
        axis.set_yscale("log")
        dress(axis, "ReLU network of spectral norm 1.5, a line a seed", "update", y)
    axes[1].legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(HERE / "clipping.png", dpi=150)


if __name__ == "__main__":
    compare_bounds()
    compare_cells()
    compare_clipping()
