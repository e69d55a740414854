"""Over how many steps does a trained recurrent network still remember one token?

    python experiments/memory_horizon/study.py

trains what has not been trained yet into runs/memory_horizon_study, prints the table, draws figure.png beside this
file.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from seqlab.analysis.figures import COLOURS
from seqlab.evaluation.interval import interval
from seqlab.files import read_json

RUNS = Path("runs/memory_horizon_study")
FIGURE = Path(__file__).with_name("figure.png")
LAGS = (5, 10, 20, 50, 100, 200, 400)
SEEDS, SOLVED = 5, 0.95
RATES = ("1e-3", "5e-3")
COMMON = [
    *("+experiment=copy_task", f"seeds={SEEDS}", "trainer.steps=800", "trainer.batch_size=32", "logger=[]"),
    *("model.encoder.features=32", "model.inputs.features=32", "trainer.eval_every=100", "trainer.save_every=800"),
]
# A model may be told of the lag, as chrono initialisation is.
MODELS = {
    "RNN": ["model/cell=rnn"],
    "GRU": ["model/cell=gru"],
    "LSTM, b_f = 1": ["model/cell=lstm"],
    "LSTM, chrono for the lag": ["model.encoder.layer.cell.chrono={lag}"],
}


def train(model: str, lag: int, rate: str) -> dict[str, Any]:
    """The summary of a run; one that is complete is left as it is. The token is `lag` steps before the question."""
    directory = RUNS / f"{model.split(',')[0].lower()}_{list(MODELS).index(model)}_{lag}_{rate}"
    own = [override.format(lag=lag) for override in MODELS[model]]
    what = [*COMMON, *own, f"task.length={lag + 1}", f"optim.learning_rate={rate}", f"hydra.run.dir={directory}"]
    summary = directory / "summary.json"
    if not summary.exists() or read_json(summary)["status"] != "completed":
        subprocess.run([sys.executable, "-m", "seqlab.train", *what], check=True, stdout=subprocess.DEVNULL)
    return read_json(summary)


def main() -> None:
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axis = figure.subplots()
    print("| model | " + " | ".join(f"lag {lag}" for lag in LAGS) + " | horizon of each seed |")
    print("|---" * (2 + len(LAGS)) + "|")
    for colour, marker, model in zip(COLOURS, "osD^", MODELS, strict=False):
        accuracy_LR = []
        for lag in LAGS:
            of_rates = [train(model, lag, rate)["final"]["test"]["accuracy"]["values"] for rate in RATES]
            accuracy_LR.append(max(of_rates, key=np.mean))
        solved_LR = np.cumprod(np.array(accuracy_LR) >= SOLVED, axis=0)
        horizons = [max((lag for lag, ok in zip(LAGS, solved, strict=True) if ok), default=0) for solved in solved_LR.T]
        cells = [interval(values).format() for values in accuracy_LR]
        print(f"| {model} | " + " | ".join(cells) + f" | {', '.join(map(str, sorted(horizons)))} |", flush=True)
        mean_L = np.mean(accuracy_LR, 1)
        axis.plot(LAGS, mean_L, marker=marker, markersize=5, color=colour, label=model)
        axis.fill_between(LAGS, np.min(accuracy_LR, 1), np.max(accuracy_LR, 1), color=colour, alpha=0.15, linewidth=0)
    axis.axhline(1 / 9, color="0.5", linewidth=1, linestyle=":")
    axis.text(LAGS[0], 1 / 9 + 0.015, "guessing", fontsize=8, color="0.4")
    axis.set_xscale("log")
    axis.set_xticks(LAGS, map(str, LAGS))
    axis.minorticks_off()
    axis.set(xlabel="lag: steps from the token to the question", ylabel="test accuracy", ylim=(0, 1.03))
    axis.set_title(f"one token recalled; lines: mean of {SEEDS} seeds, bands: all of them", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main()
