"""Fashion-MNIST: grey pictures of clothes."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.data.fetch import packages
from seqlab.types import require

NAME = "fashion_mnist"
ABOUT = """
Grey pictures of 28 × 28 (`image_train`, `image_test`: bytes of shape (N, 28, 28, 1)) and what they show (`label_train`,
`label_test`): 0 T-shirt or top, 1 trouser, 2 pullover, 3 dress, 4 coat, 5 sandal, 6 shirt, 7 sneaker, 8 bag,
9 ankle boot.
"""
PACKAGE = "dataset-fashion-mnist"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write fashion_mnist.npz: image and label, of train and test."""
    root, version = packages.unpack_debian(PACKAGE, scratch)
    files = root / "usr/share/datasets/fashion-mnist"
    arrays: dict[str, Any] = {}
    for split, theirs in (("train", "train"), ("test", "t10k")):
        arrays[f"image_{split}"] = read_idx(files / f"{theirs}-images-idx3-ubyte.gz")[..., None]
        arrays[f"label_{split}"] = read_idx(files / f"{theirs}-labels-idx1-ubyte.gz")
    np.savez_compressed(folder / "fashion_mnist.npz", **arrays)
    return {
        "source": f"the Debian package {PACKAGE} {version}",
        "paper": "Xiao, Rasul & Vollgraf 2017, arXiv:1708.07747",
        "licence": "MIT",
        "train pictures": len(arrays["image_train"]),
        "test pictures": len(arrays["image_test"]),
    }


def read_idx(file: Path) -> np.ndarray:
    """The bytes of a file of LeCun's format: two zeros, 8 for bytes, the number of axes, their sizes, the bytes."""
    content = gzip.decompress(file.read_bytes())
    require(content[:3] == b"\0\0\x08", f"{file.name} is no IDX file of bytes.")
    n_axes = content[3]
    shape = struct.unpack(f">{n_axes}I", content[4 : 4 + 4 * n_axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n_axes).reshape(shape)
