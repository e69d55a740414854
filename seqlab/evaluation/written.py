"""Texts that a run writes: all of its test set, greedily, beside those that should have been written."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

import flax.linen as nn
import jax
import numpy as np
from rich.console import Console

from seqlab.decoding.generate import draw_from
from seqlab.decoding.prompts import n_steps, round_up
from seqlab.decoding.sampling import Sampling
from seqlab.files import to_json, write_whole
from seqlab.training.summary import measure_values
from seqlab.types import Batch, Params, Task, model_arguments

SPLIT = "test"
N_SHOWN = 3


class WritingTask(Task, Protocol):
    """A task whose targets are texts, which are judged as such once they are written.

    `texts` gives for the rows of an evaluation set the `reference` and what is shown beside it, as the `source`;
    `solve_written` what the baseline named `written_baseline` writes; `tokenize` says what BLEU compares, and `longest`
    how many tokens a target has at most.
    """

    written_baseline: str

    @property
    def tokenize(self) -> str: ...
    @property
    def eos(self) -> int: ...
    @property
    def longest(self) -> tuple[int, int]: ...

    def decode_target(self, ids: Any) -> str: ...
    def texts(self, split: str) -> dict[str, list[str]]: ...
    def solve_written(self, split: str) -> list[str]: ...
    def score_written(self, hypotheses: list[str], references: list[str]) -> dict[str, float]: ...


class Written(NamedTuple):
    """The scores as they stand in a summary, and for each row its texts, with one that is written for each replica."""

    scores: dict[str, Any]
    rows: list[dict[str, Any]]


def writes_texts(task: Task) -> TypeGuard[WritingTask]:
    """Whether what a task's model writes is judged as text."""
    return hasattr(task, "score_written")


def leave_written(
    task: Task, sets: dict[str, Batch], model: nn.Module, params_R: Params, batch_size: int, path: Path
) -> Written | None:
    """Let each replica write, as `measure_written`; keep it in `path` and show the first texts; None of other tasks."""
    if not writes_texts(task):
        return None
    written = measure_written(task, sets, model, params_R, batch_size)
    keep_written(written.rows, path)
    print_written(written.rows)
    return written


def measure_written(
    task: WritingTask, sets: dict[str, Batch], model: nn.Module, params_R: Params, batch_size: int
) -> Written:
    """Let each replica write the test set, the most probable token at each step, and score what it wrote.

    Shapes   params_R: leaves with a leading replica axis.
    """
    params_R = jax.device_get(params_R)
    n_replicas = len(jax.tree.leaves(params_R)[0])
    texts = task.texts(SPLIT)
    written_R = [
        write_texts(task, model, jax.tree.map(lambda leaf, r=r: leaf[r], params_R), sets[SPLIT], batch_size)
        for r in range(n_replicas)
    ]
    scores_R = [task.score_written(written, texts["reference"]) for written in written_R]
    baseline = task.score_written(task.solve_written(SPLIT), texts["reference"])
    scores = {
        "tokenize": task.tokenize,
        "measured": {SPLIT: {name: measure_values([scores[name] for scores in scores_R]) for name in baseline}},
        "baseline": {"name": task.written_baseline, "measured": {SPLIT: baseline}},
    }
    rows = zip(*texts.values(), zip(*written_R, strict=True), strict=True)
    return Written(scores, [dict(zip([*texts, "written"], row, strict=True)) for row in rows])


def write_texts(
    task: WritingTask, model: nn.Module, params: Params, batch: Batch, batch_size: int, n_tokens: int | None = None
) -> list[str]:
    """What a model writes for each row of a set, up to its end or `n_tokens`: None for the greatest length of a target.

    Rows of like length are read together; a row's text does not depend on the others.
    """
    inputs, lengths_B = jax.device_get(model_arguments(model, batch)[:2])
    n_rows = len(inputs)
    order = np.arange(n_rows) if lengths_B is None else np.argsort(lengths_B, kind="stable")
    size = min(batch_size, n_rows)
    most = task.longest[1] if n_tokens is None else n_tokens
    texts = [""] * n_rows
    for first in range(0, n_rows, size):
        rows = np.resize(order[first : first + size], size)  # Where rows are lacking, these once more.
        given, lengths = inputs[rows], None
        if lengths_B is not None:
            lengths = lengths_B[rows]
            given = given[:, : round_up(max(1, int(lengths.max())))]
        room = model.room(n_steps(given[0]))
        n_drawn = most if room is None else min(room, most)
        stretches = draw_from(model, params, given, lengths, n_drawn, Sampling(temperature=0), eos=task.eos)
        for row, pieces in zip(rows, zip(*stretches, strict=True), strict=True):
            texts[row] = task.decode_target(np.concatenate(pieces))
    return texts


def keep_written(rows: list[dict[str, Any]], path: Path) -> None:
    """Write a line of JSON for each row, whole or not at all."""
    write_whole(path, "".join(to_json(row) + "\n" for row in rows))


def print_written(rows: list[dict[str, Any]], console: Console | None = None) -> None:
    """Print the first few rows, with what the first replica wrote."""
    console = console or Console()
    for row in rows[:N_SHOWN]:
        console.print()
        for name, text in {**row, "written": row["written"][0]}.items():
            console.print(f"{name:<11}{text}", soft_wrap=True, markup=False, highlight=False)
