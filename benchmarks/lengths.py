"""An epoch over rows of many lengths: padded to the cap, in buckets, streamed, and packed by PyTorch.

    python benchmarks/lengths.py [--rounds 3] [--json PATH]

The rows have the lengths of film reviews, words in IMDB: log-normal with the median 176 and the mean 230, cut at 400.
The model says one of two classes after an LSTM of width 128 over an embedding of 64; an update is forward, backward
and Adam on 64 rows. PyTorch draws its rows at random and packs them (`pack_padded_sequence`), the fastest of its ways
that needs no sorting by hand. "drawing alone" finds the rows of every batch of the epoch in 4 buckets, inside a
compiled loop as training does, and does nothing with them.
"""

import os
import sys
from typing import Any

from peers import Pass, run, take_turns

PEERS = ("ours", "torch")
N_ROWS, BATCH, CAP, VOCAB, EMBEDDING, WIDTH = 1024, 64, 400, 5000, 64, 128
N_BUCKETS = {"padded": 1, "4 buckets": 4, "8 buckets": 8}


def draw_rows() -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(np.log(176), 0.73, N_ROWS).astype(int) + 1, CAP)
    return [rng.integers(1, VOCAB, length) for length in lengths]


def build_ours(way: str) -> Pass:
    import seqlab  # noqa: F401  (sets XLA's flags)
    from seqlab.training.devices import start

    devices = start("auto")
    import dataclasses
    from functools import partial

    import jax
    import jax.numpy as jnp
    from jax import lax

    from seqlab.models.classifier import Classifier
    from seqlab.nn.cells.lstm import LSTM
    from seqlab.nn.inputs import TokenInputs
    from seqlab.nn.pooling import LastPool
    from seqlab.nn.recurrent import Recurrent, Stack
    from seqlab.tasks.text_classification import TextClassification
    from seqlab.training.batches import hold_examples, make_draw, make_epoch
    from seqlab.training.gradients import adam
    from seqlab.training.optimiser import Optimiser
    from seqlab.training.programs import Programs
    from seqlab.training.schedule import constant
    from seqlab.training.settings import Settings

    @dataclasses.dataclass(frozen=True)
    class Reviews:
        def records(self) -> dict[str, Any]:
            every = [{"text": " ".join(map(str, row)), "label": i % 2} for i, row in enumerate(draw_rows())]
            return {"train": every, "validation": every[:2], "test": every[:2]}

    task = TextClassification(Reviews(), n_buckets=N_BUCKETS.get(way, 4), in_memory=way != "streamed", max_length=CAP)
    model = Classifier(
        TokenInputs(task.vocab_size, EMBEDDING), Stack(partial(Recurrent, LSTM), WIDTH), LastPool(), task.n_outputs
    )
    settings = Settings(
        steps=10**6,
        batch_size=BATCH,
        accumulate=1,
        eval_batch_size=2,
        log_every=10**6,
        eval_every=10**6,
        save_every=10**6,
        analyze_every=None,
        monitor="validation/loss",
        mode="min",
        patience=None,
        ema=None,
        dtype="float32",
        max_nonfinite=10,
        profile=False,
        cpu_devices="auto",
    )
    optimiser = Optimiser(1e-3, adam(0.9, 0.999, 1e-8), constant())
    programs = Programs(task, task.evaluation_sets(), model, optimiser, settings, devices, [0])
    programs.compile()
    buckets, _ = hold_examples(task)
    n_steps = make_epoch(task, buckets, BATCH).n_steps
    if way == "drawing alone":
        draw = make_draw(task, BATCH, buckets)

        @jax.jit
        def draw_all(buckets: Any) -> Any:
            def add(step: Any, sofar: Any) -> Any:
                return sofar + draw(
                    lambda batch: batch.inputs.sum() + batch.targets.sum(), jnp.uint32(0), step, buckets
                )

            return lax.fori_loop(0, n_steps, add, 0)

        return Pass(lambda: jax.block_until_ready(draw_all(buckets)))
    state = [programs.init()]

    def train() -> None:
        state[0] = programs.advance(state[0], n_steps)

    return Pass(train)


def build_torch(way: str) -> Pass:
    import numpy as np
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

    rows, labels = [torch.from_numpy(row) for row in draw_rows()], torch.arange(N_ROWS) % 2
    lengths = torch.tensor([len(row) for row in rows])
    embed, lstm = torch.nn.Embedding(VOCAB, EMBEDDING), torch.nn.LSTM(EMBEDDING, WIDTH, batch_first=True)
    head, loss = torch.nn.Linear(WIDTH, 2), torch.nn.CrossEntropyLoss()
    optimiser = torch.optim.Adam([*embed.parameters(), *lstm.parameters(), *head.parameters()])
    rng = np.random.default_rng(0)

    def train() -> None:
        for some in np.array_split(rng.permutation(N_ROWS), N_ROWS // BATCH):
            x_BTD = embed(pad_sequence([rows[b] for b in some], batch_first=True))
            if way == "packed":
                packed = pack_padded_sequence(x_BTD, lengths[some], batch_first=True, enforce_sorted=False)
                _, (last_1BF, _) = lstm(packed)
                last_BF = last_1BF[0]
            else:
                last_BF = lstm(x_BTD)[0][torch.arange(len(some)), lengths[some] - 1]
            optimiser.zero_grad()
            loss(head(last_BF), labels[some]).backward()
            optimiser.step()

    return Pass(train)


def build(peer: str, way: str) -> tuple[Pass]:
    """One epoch of training, in one of the ways of a competitor."""
    return (build_torch(way) if peer == "torch" else build_ours(way),)


def measure(n_rounds: int) -> list[dict[str, Any]]:
    """One row a way: seconds an epoch."""
    ways = {"ours": [*N_BUCKETS, "drawing alone", "streamed"], "torch": ["padded", "packed"]}
    rows = []
    for peer, of_peer in ways.items():
        answers = take_turns((peer,), [(way,) for way in of_peer], n_rounds)
        rows += [
            {"peer": peer, "way": way, "seconds": told[peer][0]} for way, told in zip(of_peer, answers, strict=True)
        ]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    seconds = {(row["peer"], row["way"]): row["seconds"] for row in rows}
    title = f"an epoch over {N_ROWS} rows of many lengths, {os.cpu_count()} cores"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("", "rows", "s", "ours, padded / this", "PyTorch, packed / this"):
        table.add_column(column, justify="left" if column in ("", "rows") else "right")
    for (peer, way), s in seconds.items():
        against = (seconds["ours", "padded"] / s, seconds["torch", "packed"] / s)
        table.add_row(peer, way, f"{s:.2f}", *(f"{ratio:.2f} ×" for ratio in against))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    run(__doc__, PEERS, build, measure, show)
