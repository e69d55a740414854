"""A training step and a forward pass of RNN, LSTM and GRU against PyTorch and Flax, beside the limit of the machine.

    python benchmarks/recurrent.py [--rounds 7] [--json PATH]

A training step is forward, backward and Adam on the sum of squares of all outputs. Each competitor lives in a process
of its own, with the settings that are best for it: PyTorch and Flax on all cores, ours on the mesh that
`trainer.cpu_devices=auto` makes. They take turns, and every number is a median over the rounds. GRU is the reset-after
form, which all three compute. limit: the multiplications of the step at the rate of a large matrix product, measured
after them.
"""

import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from peers import Pass, run, take_turns, training_step

SHAPES = ((64, 50, 32, 32), (64, 100, 128, 256), (64, 400, 128, 128), (32, 784, 1, 128))
N_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
PEERS = ("ours", "flax", "torch")


def build_jax(peer: str, cell: str, B: int, T: int, D: int, H: int) -> tuple[Pass, Pass]:
    import seqlab  # noqa: F401  (sets XLA's flags)
    from seqlab.training.devices import make_mesh, start

    devices = start("auto" if peer == "ours" else 1)
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    from seqlab.nn.cells.gru import GRU
    from seqlab.nn.cells.lstm import LSTM
    from seqlab.nn.cells.rnn import RNN
    from seqlab.nn.recurrent import Recurrent

    x_BTD = jnp.asarray(np.random.default_rng(0).standard_normal((B, T, D), dtype=np.float32))
    layer: nn.Module
    if peer == "ours":
        cells: dict[str, Callable[..., Any]] = {"rnn": RNN, "lstm": LSTM, "gru": partial(GRU, reset="after")}
        layer = Recurrent(cells[cell], H)
        mesh = make_mesh(devices, 1, B)
    else:
        layer = nn.RNN({"rnn": nn.SimpleCell, "lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}[cell](H))
        mesh = make_mesh(devices[:1], 1, B)

    def outputs(params, x_BTD):
        return layer.apply(params, x_BTD, train=True).y_BTF if peer == "ours" else layer.apply(params, x_BTD)

    def loss(params, x_BTD):
        return (outputs(params, x_BTD) ** 2).sum()

    params = jax.jit(layer.init)(jax.random.key(0), x_BTD)
    train = training_step(loss, params, optax.adam(1e-3), mesh, x_BTD)
    x_BTD = jax.device_put(x_BTD, NamedSharding(mesh, P("data")))
    forward = jax.jit(outputs)
    return train, Pass(lambda: jax.block_until_ready(forward(params, x_BTD)))


def build_torch(cell: str, B: int, T: int, D: int, H: int) -> tuple[Pass, Pass]:
    import torch

    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](D, H, batch_first=True)
    x_BTD, optimiser = torch.randn(B, T, D), torch.optim.Adam(layer.parameters())

    def train() -> None:
        optimiser.zero_grad()
        (layer(x_BTD)[0] ** 2).sum().backward()
        optimiser.step()

    def forward() -> None:
        with torch.no_grad():
            layer(x_BTD)

    return Pass(train), Pass(forward)


def build_product(n: int) -> tuple[Pass]:
    import jax
    import jax.numpy as jnp

    import seqlab  # noqa: F401

    a_NN = jnp.ones((n, n))
    product = jax.jit(jnp.matmul)
    return (Pass(lambda: jax.block_until_ready(product(a_NN, a_NN))),)


def build(peer: str, name: str, *sizes: int) -> tuple[Pass, ...]:
    """The passes of a job: of a cell at (B, T, D, H), or of the product of two matrices of n rows."""
    if name == "product":
        return build_product(*sizes)
    return build_torch(name, *sizes) if peer == "torch" else build_jax(peer, name, *sizes)


def measure(n_rounds: int) -> list[dict[str, Any]]:
    """One row a shape and cell: milliseconds of each competitor, and the limit."""
    jobs = [(cell, *shape) for shape in SHAPES for cell in N_GATES]
    seconds = take_turns(PEERS, jobs, n_rounds)
    rate = 2 * 2048**3 / take_turns(("flax",), [("product", 2048)], n_rounds)[0]["flax"][0]
    rows = []
    for (cell, B, T, D, H), of_peers in zip(jobs, seconds, strict=True):
        flops = 2 * B * T * (D + H) * N_GATES[cell] * H
        row: dict[str, Any] = {"shape": [B, T, D, H], "cell": cell}
        for place, (name, n_passes) in enumerate((("training", 3), ("forward", 1))):
            row[name] = {peer: 1e3 * of_peers[peer][place] for peer in PEERS}
            row[name]["limit"] = 1e3 * n_passes * flops / rate
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in ("training", "forward"):
        title = (
            f"{name} {'step (forward, backward, Adam)' if name == 'training' else 'pass'}, ms, {os.cpu_count()} cores"
        )
        table = Table(title=title, box=box.SIMPLE_HEAD)
        for column in ("B, T, D, H", "cell", *PEERS, "limit", "better peer / ours"):
            table.add_column(column, justify="left" if column in ("B, T, D, H", "cell") else "right")
        ratios = []
        for row in rows:
            ms = row[name]
            ratios.append(min(ms["flax"], ms["torch"]) / ms["ours"])
            shape = ", ".join(map(str, row["shape"]))
            table.add_row(shape, row["cell"], *(f"{ms[k]:.1f}" for k in (*PEERS, "limit")), f"{ratios[-1]:.2f} ×")
        table.add_section()
        table.add_row("", "", "", "", "", "geometric mean", f"{statistics.geometric_mean(ratios):.2f} ×")
        console.print(table)


if __name__ == "__main__":
    run(__doc__, PEERS, build, measure, show)
