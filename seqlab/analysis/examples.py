"""What the examples of a task are, as numbers and in a few lines."""

import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from seqlab.files import read_json
from seqlab.training.batches import has_examples, make_epoch
from seqlab.types import Batch, Task


def describe_examples(
    task: Task, buckets: Sequence[Batch], bounds: Sequence[int], batch_size: int
) -> dict[str, Any] | None:
    """How many examples there are, how long, which (as a digest), how many were cut, what an epoch is; else None."""
    if not has_examples(task):
        return None
    told = {
        "splits": task.describe(),
        "digests": {split: _digest(batch) for split, batch in task.evaluation_sets().items()},
        "updates_an_epoch": make_epoch(task, buckets, batch_size).n_steps,
    }
    if bounds:
        n_steps = sum(part.inputs.shape[0] * part.inputs.shape[1] for part in buckets)
        n_real = sum(int(np.asarray(part.lengths).sum()) for part in buckets)
        told |= {"lengths_of_arrays": list(bounds), "share_of_padding": round(1 - n_real / n_steps, 4)}
    return told


def print_examples(examples: dict[str, Any] | None) -> None:
    """Print what `describe_examples` says, a line for each split and one for the epoch."""
    if examples is None:
        return
    for split, told in examples["splits"].items():
        line = f"{split:<11}{told['rows']:>9,} rows"
        if "height" in told:
            line += f" of {told['height']} × {told['width']} pixels in {told['channels']} channels"
        if "longest" in told:
            line += f" of {told['shortest']} to {told['longest']} steps, {told['mean_length']:.1f} in the mean"
        if "cut" in told:
            line += f", {told['cut']:,} of them cut" if told["cut"] else ", none cut"
        print(line)
    line = f"{'epoch':<11}{examples['updates_an_epoch']:>9,} updates"
    if "lengths_of_arrays" in examples:
        lengths = ", ".join(map(str, examples["lengths_of_arrays"]))
        line += f", in arrays of {lengths} steps: {examples['share_of_padding']:.1%} of them padding"
    print(line)


def print_changes(run_dir: Path, examples: dict[str, Any] | None) -> None:
    """Say which splits have other rows than when the run in a directory was trained."""
    summary = run_dir / "summary.json"
    trained = read_json(summary).get("examples") if summary.is_file() else None
    if examples is None or trained is None:
        return
    for split, digest in examples["digests"].items():
        if digest != trained.get("digests", {}).get(split, digest):
            now, then = (told["splits"][split]["rows"] for told in (examples, trained))
            print(
                f"The {now:,} rows of {split} are not those of the training, {then:,}: some may have been trained on.",
                file=sys.stderr,
            )


def _digest(batch: Batch) -> str:
    return f"{zlib.crc32(b''.join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(batch))):08x}"
