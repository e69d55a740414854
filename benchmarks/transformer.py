"""A training step and the writing of a decoder-only Transformer against the same model in PyTorch.

    python benchmarks/transformer.py [--rounds 5] [--json PATH]

The model is that of `+experiment=char_lm`: 4 layers, 4 heads, width 128, 65 characters, here with learned positions,
GELU, no dropout. A training step is forward, backward and AdamW; PyTorch attends with scaled_dot_product_attention on
all cores, ours runs on the mesh that `trainer.cpu_devices=auto` makes. Writing draws 128 greedy tokens after a prompt
of 64, with a cache of keys and values on both sides, and a loop over tokens in PyTorch. They take turns, each in a
process of its own, and every number is a median over the rounds.
"""

import os
import sys
from functools import partial
from typing import Any

from peers import Pass, run, take_turns, training_step

V, D, N, H, ROOM = 65, 128, 4, 4, 256
PROMPT, WRITTEN = 64, 128
JOBS = [("training", 12, 64), ("training", 16, 256), ("writing", 1, PROMPT), ("writing", 16, PROMPT)]
PEERS = ("ours", "torch")


def build_ours(job: str, B: int, T: int) -> list[Pass]:
    import seqlab  # noqa: F401  (sets XLA's flags)
    from seqlab.training.devices import make_mesh, start

    devices = start("auto")
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from seqlab.decoding.generate import generate
    from seqlab.decoding.sampling import Sampling
    from seqlab.models.tagger import Tagger
    from seqlab.nn.inputs import TokenInputs
    from seqlab.nn.positions import Learned
    from seqlab.nn.self_attention import SelfAttention
    from seqlab.nn.transformer import Transformer

    mixer = partial(SelfAttention, n_heads=H, max_length=ROOM)
    transformer = Transformer(mixer, D, N, positions=partial(Learned, max_length=ROOM), unroll=True)
    model = Tagger(TokenInputs(V, D), transformer, V)
    ids_BT = jnp.asarray(np.random.default_rng(0).integers(0, V, (B, T + 1)))
    params = jax.jit(partial(model.init, train=False))(jax.random.key(0), ids_BT[:, :-1])["params"]

    def loss(params, ids_BT):
        logits_BTV = model.apply({"params": params}, ids_BT[:, :-1], train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BTV, ids_BT[:, 1:]).mean(1).sum() / B

    if job == "training":
        return [training_step(loss, params, optax.adamw(1e-3), make_mesh(devices, 1, B), ids_BT)]
    prompts = list(np.asarray(ids_BT[:, :-1]))

    def write() -> None:
        for _ in generate(model, params, prompts, WRITTEN, Sampling(temperature=0)):
            pass

    return [Pass(write)]


def build_torch(job: str, B: int, T: int) -> list[Pass]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.W_qkv, self.W_o = nn.Linear(D, 3 * D), nn.Linear(D, D)
            self.W_1, self.W_2 = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

        def forward(self, x, cache=None, start=0):
            B, T, _ = x.shape
            q, k, v = self.W_qkv(self.norm_1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
            if cache is not None:
                for kept, new in zip(cache, (k, v), strict=True):
                    kept[:, :, start : start + T] = new
                k, v = (kept[:, :, : start + T] for kept in cache)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
            x = x + self.W_o(y.transpose(1, 2).reshape(B, T, D))
            return x + self.W_2(F.gelu(self.W_1(self.norm_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(V, D), nn.Embedding(ROOM, D)
            self.blocks = nn.ModuleList(Block() for _ in range(N))
            self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

        def forward(self, ids, caches=(None,) * N, start=0):
            x = self.token(ids) + self.position(torch.arange(start, start + ids.shape[1]))
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache, start)
            return self.head(self.norm(x))

    model, ids = Model(), torch.randint(0, V, (B, T + 1))
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)

    def train() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimiser.step()

    @torch.inference_mode()
    def write() -> None:
        caches = [torch.zeros(2, B, H, ROOM, D // H) for _ in range(N)]
        chosen = model(ids[:, :-1], caches)[:, -1].argmax(-1)
        for t in range(T, T + WRITTEN - 1):
            chosen = model(chosen[:, None], caches, t)[:, -1].argmax(-1)

    return [Pass(train if job == "training" else write)]


def build(peer: str, job: str, *sizes: int) -> list[Pass]:
    """The pass of a job."""
    return build_torch(job, *sizes) if peer == "torch" else build_ours(job, *sizes)


def measure(n_rounds: int) -> list[dict[str, Any]]:
    """One row a job: seconds of each competitor."""
    seconds = take_turns(PEERS, JOBS, n_rounds)
    return [
        {"job": job, **{peer: of_peers[peer][0] for peer in PEERS}} for job, of_peers in zip(JOBS, seconds, strict=True)
    ]


def show(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"decoder-only Transformer, {os.cpu_count()} cores", box=box.SIMPLE_HEAD)
    for column in ("", "batch", "length", "unit", *PEERS, "ours is faster by"):
        table.add_column(column, justify="left" if column in ("", "unit") else "right")
    for row in rows:
        name, B, T = row["job"]
        told = [1e3 * row[peer] if name == "training" else B * WRITTEN / row[peer] for peer in PEERS]
        unit = "ms a step" if name == "training" else "tokens/s"
        table.add_row(
            name, str(B), str(T), unit, *(f"{value:,.0f}" for value in told), f"{row['torch'] / row['ours']:.2f} ×"
        )
    console.print(table)


if __name__ == "__main__":
    run(__doc__, PEERS, build, measure, show)
