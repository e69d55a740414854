"""Handwritten digits of 8 × 8."""

import gzip
import zipfile
from pathlib import Path

import numpy as np

from seqlab.data.fetch import packages

NAME = "digits"
ABOUT = """
Handwritten digits (`image`: bytes of shape (N, 8, 8, 1)) and which ones they are (`label`). The 17 levels 0 … 16 of the
original are stretched to 0 … 255.
"""
PACKAGE, VERSION = "scikit-learn", "1.9.1"
FILE = "sklearn/datasets/data/digits.csv.gz"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write digits.npz: image and label."""
    with zipfile.ZipFile(packages.download_wheel(f"{PACKAGE}=={VERSION}", scratch)) as archive:
        lines = gzip.decompress(archive.read(FILE)).decode("ascii").splitlines()
    table = np.loadtxt(lines, delimiter=",")
    image = np.round(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    np.savez_compressed(folder / "digits.npz", image=image, label=table[:, -1].astype(np.uint8))
    return {
        "source": f"the Python package {PACKAGE} {VERSION}, {FILE}: the test set of UCI's optdigits",
        "paper": "Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository",
        "licence": "the package: BSD-3-Clause; the data: CC BY 4.0",
        "pictures": len(image),
    }
