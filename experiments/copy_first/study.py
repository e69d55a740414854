"""Why does an LSTM fail to copy a token over 50 steps, and which initialisation cures it?

    python experiments/copy_first/study.py

trains what has not been trained yet into runs/copy_first_study, prints the table, draws figure.png beside this file.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from seqlab.analysis.figures import COLOURS, read_curves
from seqlab.build import build
from seqlab.evaluation.interval import interval
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.initializers import chrono, forget_bias
from seqlab.nn.recurrence import Weights
from seqlab.tasks.copy_first import CopyFirst
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.programs import Programs
from seqlab.training.run_directory import read_config
from seqlab.types import Params

RUNS = Path("runs/copy_first_study")
FIGURE = Path(__file__).with_name("figure.png")

COMMON = (
    "task=copy_first model.inputs.features=32 model.encoder.features=32 "
    "trainer.steps=800 trainer.eval_every=50 seeds=10 logger=[]"
)
# What torch.nn draws: U(±1/√32) for the kernels, N(0, 1) for the embedding.
UNIFORM = "{_target_: jax.nn.initializers.variance_scaling, scale: 0.33333333, mode: fan_in, distribution: uniform}"
EMBEDDING = "+model.inputs.embedding_init={_target_: jax.nn.initializers.normal, stddev: 1.0}"
OPTIMISER = "optim.learning_rate=1e-2 optim/clip=none"
KERNELS = [f"+model.encoder.layer.cell.{name}={UNIFORM}" for name in ("kernel_init", "recurrent_init")]
SCRIPT = [*COMMON.split(), *OPTIMISER.split(), *KERNELS]
# The halves of chrono apart: `BiasedLSTM` below, with its b_f but another b_i.
BIASED = "model.encoder.layer.cell._target_=study.BiasedLSTM"
OURS = ["+experiment=copy_task", *COMMON.split()]

ROWS = {
    "script: RNN": [*SCRIPT, EMBEDDING, "model/cell=rnn"],
    "script: GRU": [*SCRIPT, EMBEDDING, "model/cell=gru_after"],
    "script: LSTM, b_f = 0": [*SCRIPT, EMBEDDING, "model.encoder.layer.cell.forget_bias=0"],
    "script: LSTM, b_f = 1": [*SCRIPT, EMBEDDING, "model.encoder.layer.cell.forget_bias=1"],
    "script: LSTM, b_f = 3": [*SCRIPT, EMBEDDING, "model.encoder.layer.cell.forget_bias=3"],
    "script: LSTM, chrono": [*SCRIPT, EMBEDDING, "model.encoder.layer.cell.chrono=50"],
    "script: LSTM, b_f = 3, b_i = −3": [
        *SCRIPT,
        EMBEDDING,
        "model.encoder.layer.cell.forget_bias=3",
        BIASED,
        "+model.encoder.layer.cell.input_bias=-3",
    ],
    "script: LSTM, chrono's b_f, b_i = 0": [
        *SCRIPT,
        EMBEDDING,
        "model.encoder.layer.cell.chrono=50",
        BIASED,
        "+model.encoder.layer.cell.input_bias=0",
    ],
    "script, small embedding: GRU": [*SCRIPT, "model/cell=gru_after"],
    "script, small embedding: LSTM, chrono": [*SCRIPT, "model.encoder.layer.cell.chrono=50"],
    "copy_task: RNN": [*OURS, "model/cell=rnn"],
    "copy_task: GRU": [*OURS, "model/cell=gru"],
    "copy_task: LSTM, b_f = 1": [*OURS, "model/cell=lstm"],
    "copy_task: LSTM, chrono (as it stands)": OURS,
}
CURVES = ("script: RNN", "script: GRU", "script: LSTM, b_f = 0", "script: LSTM, b_f = 3", "script: LSTM, chrono")


class BiasedLSTM(LSTM):
    """An LSTM whose b_i starts at `input_bias`, whatever b_f starts at."""

    input_bias: float = 0.0

    @nn.compact
    def weights(self, d_input: int) -> Weights:
        start = forget_bias(self.forget_bias) if self.chrono is None else chrono(self.chrono)

        def b(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
            return start(key, shape, dtype).reshape(4, -1).at[1].set(self.input_bias).reshape(shape)

        return Weights(*self.preactivation_weights("gates", d_input, 4, b))


def train(name: str) -> Path:
    """Train a row's ten replicas; a run that is complete is left as it is."""
    directory = RUNS / "".join(c if c.isalnum() else "_" for c in name)
    command = [sys.executable, "-m", "seqlab.train", *ROWS[name], f"hydra.run.dir={directory}"]
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | path)
    return directory


def load(directory: Path) -> tuple[nn.Module, Params, Params]:
    """A run's model, and its parameters before the first and after the last update, a leading axis over the seeds."""
    parts = build(OmegaConf.create(read_config(directory)))
    programs = Programs(
        parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices(), parts.seeds
    )
    checkpoints = Checkpoints(directory / "checkpoints")
    state, _ = checkpoints.restore("latest", programs.state_like)
    checkpoints.close()
    return parts.model, programs.init().params, state.params


def measure_memory(model: nn.Module, params_R: Params) -> tuple[float, float, float]:
    """What a model still holds of the first token after the blanks.

    The states that the nine tokens lead to differ by Δ_t = ‖s_t − mean over tokens‖. Returned are Δ_T/Δ_1 of the cell
    C and of the output h, geometric means over the seeds, and the mean |C_T|. Without a cell, C is h.
    """
    task = CopyFirst()
    inputs_BT = jnp.zeros((task.vocab_size - 1, task.length), jnp.int32).at[:, 0].set(jnp.arange(1, task.vocab_size))

    def spread(state_BF: jax.Array) -> jax.Array:
        return jnp.linalg.norm(state_BF - state_BF.mean(0))

    @jax.jit
    @jax.vmap
    def measure(params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        bound = model.bind({"params": params})

        def read(n_steps: int) -> list[jax.Array]:
            x_BTD = bound.inputs(inputs_BT[:, :n_steps], train=False)
            return jax.tree.leaves(bound.encoder(x_BTD, train=False).state)

        first, last = read(1), read(task.length)
        return spread(last[0]) / spread(first[0]), spread(last[-1]) / spread(first[-1]), jnp.abs(last[0]).mean()

    in_C, in_h, size = measure(params_R)
    return float(jnp.exp(jnp.log(in_C).mean())), float(jnp.exp(jnp.log(in_h).mean())), float(size.mean())


def draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], finals: dict[str, list[float]]) -> Figure:
    """Left: validation accuracy over the updates. Right: the test accuracy of every replica."""
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    for colour, name in zip(COLOURS, CURVES, strict=False):
        steps_E, values_ER = curves[name]
        left.plot(steps_E, values_ER, color=colour, linewidth=0.5, alpha=0.35)
        left.plot(steps_E, values_ER.mean(1), color=colour, linewidth=2.2, label=name)
    left.axhline(1 / 9, color="grey", linestyle=":", linewidth=1)
    left.set(xlabel="update", ylabel="validation accuracy", ylim=(0, 1.03), xlim=(0, None))
    left.set_title("thick: mean of ten seeds, thin: each, dotted: guessing", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    for row, values in enumerate(finals.values()):
        jitter = np.linspace(-0.25, 0.25, len(values))
        right.plot(values, row + jitter, "o", color=COLOURS[0], markersize=4, alpha=0.6)
        right.plot(np.mean(values), row, "|", color=COLOURS[1], markersize=18, markeredgewidth=2.5)
    right.axvline(1 / 9, color="grey", linestyle=":", linewidth=1)
    right.set_yticks(range(len(finals)), finals, fontsize=9)
    right.invert_yaxis()
    right.set(xlabel="test accuracy after 800 updates", xlim=(0, 1.05))
    right.set_title("dots: ten seeds, bar: their mean, dotted: guessing", loc="left", fontsize=10)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return figure


def main() -> None:
    curves, finals, memories = {}, {}, []
    print("| setting | test accuracy | the ten values |\n|---|---|---|")
    for name in ROWS:
        directory = train(name)
        accuracy = read_curves(directory / "metrics.jsonl")["accuracy"]
        curves[name], finals[name] = accuracy["validation"], accuracy["test"][1][-1].tolist()
        values = " ".join(f"{value:.2f}" for value in finals[name])
        print(f"| {name} | {interval(finals[name]).format()} | {values} |", flush=True)
        model, start, end = load(directory)
        failed_R = np.array(finals[name]) < 0.9
        if failed_R.any():
            end = jax.tree.map(lambda leaf_R: leaf_R[failed_R], end)  # noqa: B023  (mapped at once)
        shares = [*measure_memory(model, start), *measure_memory(model, end)]
        cells = [f"{value:.0e}" if value < 0.01 else f"{value:.2f}" for value in shares]
        memories.append(f"| {name} | {' | '.join(cells)} |")
    print("\n| setting | start: left in C | left in h | mean abs C | end: left in C | left in h | mean abs C |")
    print("\n".join(["|---" * 7 + "|", *memories]))
    draw(curves, finals).savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main()
