"""How well do a Transformer and an LSTM of as many parameters model Shakespeare by characters in 2,000 small updates?

    make data
    python experiments/char_lm/study.py

trains what has not been trained yet into runs/char_lm_study, prints the table and a sample of each, and draws
figure.png beside this file.
"""

import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure

from seqlab.analysis.figures import COLOURS, read_curves
from seqlab.evaluation.interval import interval
from seqlab.files import read_json

RUNS = Path("runs/char_lm_study")
FIGURE = Path(__file__).with_name("figure.png")
SEEDS = 3
ROWS = {"Transformer": "char_lm", "LSTM": "char_lm_lstm"}


def train(name: str) -> Path:
    """Train a row's replicas; a run that is complete is left as it is."""
    directory = RUNS / name.lower()
    command = [sys.executable, "-m", "seqlab.train", f"+experiment={ROWS[name]}", f"seeds={SEEDS}", "logger=[]"]
    subprocess.run([*command, f"hydra.run.dir={directory}"], check=True, stdout=subprocess.DEVNULL)
    return directory


def write(directory: Path) -> str:
    """A sample of a run's first replica."""
    command = [sys.executable, "-m", "seqlab.generate", f"run={directory}", "prompt=KING", "n_tokens=300"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axis = figure.subplots()
    samples = []
    print("| model | parameters | validation loss | test loss | test perplexity | bits a character | steps/s |")
    print("|---" * 7 + "|")
    for colour, name in zip(COLOURS, ROWS, strict=False):
        directory = train(name)
        summary, curves = read_json(directory / "summary.json"), read_curves(directory / "metrics.jsonl")
        last = {
            metric: interval(curves[metric][split][1][-1].tolist()).format()
            for metric, split in (("loss", "test"), ("perplexity", "test"), ("bits_per_character", "test"))
        }
        validation = interval(curves["loss"]["validation"][1][-1].tolist()).format()
        print(
            f"| {name} | {summary['parameters']:,} | {validation} | {last['loss']} | {last['perplexity']} "
            f"| {last['bits_per_character']} | {summary['steps_per_second']:.1f} |",
            flush=True,
        )
        samples.append(f"\n{name}\n\n{write(directory)}")
        for split, style in (("train", "-"), ("validation", "o")):
            steps_E, values_ER = curves["loss"][split]
            axis.plot(steps_E, values_ER.mean(1), style, color=colour, label=f"{name}, {split}")
            if split == "train":
                axis.fill_between(steps_E, values_ER.min(1), values_ER.max(1), color=colour, alpha=0.2, linewidth=0)
    axis.set(xlabel="update", ylabel="loss, nats a character", xlim=(0, None))
    axis.set_title(f"lines: mean of {SEEDS} seeds, bands: all of them", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(FIGURE, dpi=150)
    print("\n".join(samples))


if __name__ == "__main__":
    main()
