"""Japanese vowels: spoken /ae/ of nine speakers, as cepstrum coefficients over time."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.data.fetch import packages

NAME = "japanese_vowels"
ABOUT = """
Nine men say the vowels /ae/: twelve coefficients of a linear prediction's cepstrum at each step. `values_train` and
`values_test` have the shape (N, T, 12), zeros past `length_train` and `length_test`; `label_train` and `label_test` are
the speakers 1 … 9.
"""
PACKAGE, VERSION = "aeon", "1.6.0"
FILE = "aeon/datasets/data/JapaneseVowels/JapaneseVowels_{}.ts"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write japanese_vowels.npz: values, length and label, of train and test."""
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(packages.download_wheel(f"{PACKAGE}=={VERSION}", scratch)) as archive:
        for split in ("train", "test"):
            rows = read_series(archive.read(FILE.format(split.upper())).decode("utf-8"))
            lengths = [len(values_TD) for values_TD, _ in rows]
            padded = [np.pad(values_TD, ((0, 29 - len(values_TD)), (0, 0))) for values_TD, _ in rows]
            arrays[f"values_{split}"] = np.stack(padded)
            arrays[f"length_{split}"] = np.array(lengths, np.int32)
            arrays[f"label_{split}"] = np.array([label for _, label in rows])
    np.savez_compressed(folder / "japanese_vowels.npz", **arrays)
    return {
        "source": f"the Python package {PACKAGE} {VERSION}, {FILE.format('*')}",
        "paper": "Kudo, Toyama & Shimbo 1999, Multidimensional curve classification using passing-through regions",
        "licence": "the package: BSD-3-Clause; the data: CC BY 4.0, UCI Machine Learning Repository",
        "train rows": len(arrays["values_train"]),
        "test rows": len(arrays["values_test"]),
    }


def read_series(text: str) -> list[tuple[np.ndarray, int]]:
    """The rows of a .ts file: values_TD and the label; its line has a part for each of the D, and the label last."""
    rows = []
    for line in text.partition("@data")[2].split():
        *parts, label = line.split(":")
        values_DT = np.array([[float(value) for value in part.split(",")] for part in parts], np.float32)
        rows.append((values_DT.T, int(label)))
    return rows
