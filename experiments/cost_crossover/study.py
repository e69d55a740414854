"""From which length on self-attention costs more than recurrence: operations and time of one layer, on one core.

    python experiments/cost_crossover/study.py

checks the formulas against the programs, measures, prints both tables and draws figure.png beside this file.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if hasattr(os, "sched_setaffinity"):  # one core, before JAX makes its threads
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import seqlab  # noqa: F401 (before JAX, so that its log is quiet)

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from seqlab.analysis.figures import COLOURS
from seqlab.analysis.flops import count_operations
from seqlab.evaluation.interval import interval
from seqlab.nn.cells.gru import GRU
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.cells.rnn import RNN
from seqlab.nn.recurrent import Recurrent
from seqlab.nn.self_attention import SelfAttention

FIGURE = Path(__file__).with_name("figure.png")
WIDTHS, LENGTHS = (64, 128), tuple(2**k for k in range(4, 12))
B, ROUNDS, LEAST_SECONDS = 4, 5, 0.02
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ATTENTION = "self-attention"
LAYERS: dict[str, Callable[[int], Any]] = {
    ATTENTION: lambda d: SelfAttention(features=d, causal=False),
    "RNN": partial(Recurrent, RNN),
    "GRU": partial(Recurrent, GRU),
    "LSTM": partial(Recurrent, LSTM),
}
PASSES = ("forward", "gradient")
TITLES = {"forward": "forward pass", "gradient": "gradient, forward pass included"}


def formula(name: str, n: int | np.ndarray, d: int) -> Any:
    """Operations in the products of a forward pass, a row and step: 8 d² + 4 n d, or 4 G d²."""
    return 8 * d**2 + 4 * n * d if name == ATTENTION else 4 * GATES[name] * d**2 + 0 * n


def crossover(name: str, d: int) -> int:
    """n* of 8 d² + 4 n d = 4 G d²; not above 0 where the projections of attention alone cost as much."""
    return (GATES[name] - 2) * d


def build(name: str, n: int, d: int) -> dict[str, Callable[[], Any]]:
    """The passes of one layer, compiled and warm; the products of both are checked against the formula."""
    layer = LAYERS[name](d)
    x_BTD = jnp.asarray(np.random.default_rng(0).standard_normal((B, n, d), np.float32))
    params = jax.jit(layer.init)(jax.random.key(0), x_BTD)

    def forward(params: Any, x_BTD: jax.Array) -> jax.Array:
        return layer.apply(params, x_BTD).y_BTF

    def loss(params: Any, x_BTD: jax.Array) -> jax.Array:
        return (forward(params, x_BTD) ** 2).sum()

    ready: dict[str, Callable[[], Any]] = {}
    for times, (kind, function) in zip(
        (1, 3), (("forward", forward), ("gradient", jax.grad(loss, (0, 1)))), strict=True
    ):
        traced = jax.jit(function).trace(params, x_BTD)
        products = count_operations(traced.jaxpr).products
        # Biases are one more column of a recurrent kernel, in the forward pass.
        expected = times * B * n * formula(name, n, d) + 2 * B * n * d * GATES.get(name, 0)
        # Chunks of queries compute their scores again for the gradient.
        again = 2 * B * n * n * d if name == ATTENTION and kind == "gradient" and n * n > 1024**2 else 0
        assert products in (expected, expected + again, expected + 2 * again), (name, kind, n, products / expected)
        compiled = traced.lower().compile()
        ready[kind] = partial(compiled, params, x_BTD)
        jax.block_until_ready(ready[kind]())
    return ready


def seconds(run: Callable[[], Any]) -> float:
    """Seconds of the core in a run, the mean of as many as fill a moment; other processes' turns do not count."""
    n_runs, began = 0, time.process_time()
    while time.process_time() - began < LEAST_SECONDS:
        jax.block_until_ready(run())
        n_runs += 1
    return (time.process_time() - began) / n_runs


def measure(d: int) -> dict[str, dict[str, np.ndarray]]:
    """Nanoseconds a row and step, _NE of N lengths and E rounds, by pass and layer; in a round all take turns."""
    built = {(n, name): build(name, n, d) for n in LENGTHS for name in LAYERS}
    found = {kind: {name: np.zeros((len(LENGTHS), ROUNDS)) for name in LAYERS} for kind in PASSES}
    for e in range(ROUNDS):
        for kind in PASSES:
            for k, n in enumerate(LENGTHS):
                for name in LAYERS:
                    found[kind][name][k, e] = 1e9 * seconds(built[n, name][kind]) / (B * n)
    return found


def crossings(attention_NE: np.ndarray, recurrence_NE: np.ndarray) -> list[float]:
    """The length from which on attention takes longer, of each round; between two lengths by a line of logarithms.

    Rounds in which it never does, or always, give none.
    """
    found = []
    for ratio_N in np.log(attention_NE / recurrence_NE).T:
        below = np.flatnonzero(ratio_N < 0)
        if len(below) and below[-1] < len(ratio_N) - 1:
            k = below[-1]
            share = -ratio_N[k] / (ratio_N[k + 1] - ratio_N[k])
            found.append(float(2 ** (np.log2(LENGTHS[k]) + share)))
    return found


def tell(values_E: np.ndarray) -> str:
    """The median of the rounds, and the least and the greatest."""
    return f"{np.median(values_E):.1f} ({values_E.min():.1f}–{values_E.max():.1f})"


def tell_crossing(lengths: list[float]) -> str:
    """The mean over the rounds with its interval, or in how many rounds there is a crossover."""
    if len(lengths) < ROUNDS:
        return f"in {len(lengths)} of {ROUNDS} rounds"
    found = interval(lengths)
    return f"{found.mean:.0f} ± {found.half_width:.0f}"


def draw(axis: Axes, lines: dict[str, np.ndarray], d: int, title: str, unit: str) -> None:
    """The lines of all layers against n, with the crossovers by formula as dotted lines."""
    for colour, marker, (name, values_NE) in zip(COLOURS, "os^D", lines.items(), strict=False):
        middle_N = np.median(values_NE, 1)
        axis.plot(LENGTHS, middle_N, marker=marker, markersize=4, color=colour, linewidth=1.6, label=name)
        axis.fill_between(LENGTHS, values_NE.min(1), values_NE.max(1), color=colour, alpha=0.2, linewidth=0)
        if name != ATTENTION and crossover(name, d) > 0:
            axis.axvline(crossover(name, d), color=colour, linestyle=":", linewidth=1.4)
        if name != ATTENTION and len(where := crossings(lines[ATTENTION], values_NE)) == values_NE.shape[1]:
            n = np.median(where)
            height = np.exp(np.interp(np.log(n), np.log(LENGTHS), np.log(middle_N)))
            axis.plot(n, height, "o", markersize=11, markerfacecolor="none", color="black", markeredgewidth=1.3)
    axis.set(xscale="log", yscale="log", xlabel="length n", ylabel=unit)
    axis.set_xscale("log", base=2)
    axis.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)


def main() -> None:
    figure = Figure(figsize=(13, 7.6), layout="constrained")
    axes = figure.subplots(len(WIDTHS), 3)
    for panels, d in zip(axes, WIDTHS, strict=True):
        measured = measure(d)
        n_N = np.array(LENGTHS)
        counted = {name: np.repeat(np.asarray(formula(name, n_N, d))[:, None], ROUNDS, 1) for name in LAYERS}
        draw(panels[0], counted, d, f"d = {d}: operations of a forward pass", "operations, a row and step")
        for axis, kind in zip(panels[1:], PASSES, strict=True):
            draw(axis, measured[kind], d, f"d = {d}: time of a {TITLES[kind]}", "nanoseconds, a row and step")
        for kind in PASSES:
            print(f"\n| d = {d}, {kind} | {' | '.join(map(str, LENGTHS))} |\n{'|---' * (1 + len(LENGTHS))}|")
            for name, values_NE in measured[kind].items():
                print(f"| {name} | {' | '.join(map(tell, values_NE / 1e3))} |")
        print(f"\n| d = {d} | by formula | forward | gradient |\n|---|---|---|---|")
        for name in GATES:
            told = [crossings(measured[kind][ATTENTION], measured[kind][name]) for kind in PASSES]
            cells = [tell_crossing(each) for each in told]
            print(f"| {name} | {max(crossover(name, d), 0) or 'always dearer'} | {' | '.join(cells)} |", flush=True)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    figure.supxlabel(
        f"{B} rows on one CPU core; median of {ROUNDS} rounds, band: all of them; dotted: crossover by formula, "
        "n* = (G − 2) d; circles: where the lines cross",
        fontsize=8,
        x=0.005,
        ha="left",
        color="0.35",
    )
    figure.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()
