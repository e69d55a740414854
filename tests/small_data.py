"""Small data that stand in for those that a source's YAML names: no law needs what has to be fetched."""

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.data.records import Records
from seqlab.data.splits import SPLITS

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "'tis", "nobler", "in", "mind", "café"]


@dataclasses.dataclass(frozen=True)
class Given:
    """A source of records that are there."""

    splits: Any

    def records(self) -> dict[str, Records]:
        return dict(zip(SPLITS, self.splits, strict=True))


def write_text(path: Path) -> None:
    lines = np.random.default_rng(0).choice(WORDS, (503, 5))
    path.write_text("\n".join(" ".join(line) for line in lines), encoding="utf-8")


def write_labelled_text(path: Path) -> None:
    """Texts of a few words, most of them with one that tells the label."""
    rng = np.random.default_rng(1)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for _ in range(211):
            label = ["good", "bad", "dull"][rng.integers(3)]
            rows.writerow([" ".join([*rng.choice(WORDS, rng.integers(0, 7)), label]), f"so {label}"])


def write_conll(path: Path) -> None:
    """Sentences whose tags follow from their tokens, most of the time, in three columns."""
    rng = np.random.default_rng(2)
    tags = ["O", "B-x", "I-x", "O", "B-y"]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(211):
            for word in rng.integers(0, len(WORDS), rng.integers(1, 8)):
                tag = tags[word % 5 if rng.random() < 0.9 else 0]
                file.write(f"{WORDS[word]}\t{tag}\t{tag}\n")
            file.write("\n")


def write_parallel(path: Path) -> None:
    """Sentences beside themselves in capitals, as a tongue that is easily learned."""
    rng = np.random.default_rng(3)
    lines = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(211)]
    path.write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")


def write_images(path: Path) -> None:
    """Pictures of noise whose brightness tells their label."""
    rng = np.random.default_rng(14)
    label = rng.integers(0, 3, 211)
    image = rng.integers(0, 120, (211, 8, 8, 1)) + 40 * label[:, None, None, None]
    np.savez(path, image=image.astype(np.uint8), label=label)


def write_series(path: Path) -> None:
    """Sequences of vectors whose mean tells their label."""
    rng = np.random.default_rng(5)
    label, length = rng.integers(0, 3, 211), rng.integers(2, 8, 211)
    values = rng.standard_normal((211, 7, 3)).astype(np.float32) + label[:, None, None]
    values[np.arange(7) >= length[:, None]] = 0
    np.savez(path, values=values, length=length, label=label)


def write_steps(path: Path) -> None:
    """Series of vectors of which half of the steps have a target, what was read a step before."""
    rng = np.random.default_rng(6)
    length, values = rng.integers(2, 8, 211), rng.standard_normal((211, 7, 3)).astype(np.float32)
    targets = np.roll(values, 1, axis=1)[:, :, :2]
    targets[:, ::2] = np.nan
    np.savez(path, values=values, length=length, targets=targets)


STAND_INS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "Series": ("small_steps.npz", write_steps),
    "labelled_text.LabelledText": ("small.csv", write_labelled_text),
    "conll.Conll": ("small.conll", write_conll),
    "parallel.Parallel": ("small.tsv", write_parallel),
    "japanese_vowels": ("small_series.npz", write_series),
    "arrays.Arrays": ("small_images.npz", write_images),
    "moving_digits.MovingDigits": ("small_images.npz", write_images),
}
"""For the class of a task, the name of what a source reads, or the class of a source: the file that stands in."""
