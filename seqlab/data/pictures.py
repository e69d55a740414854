"""Pictures and films, as records give them: one shape and one kind for all."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqlab.data.records import Records, place
from seqlab.types import require

AXES: dict[str, Sequence[str]] = {"image": ("rows", "columns", "channels")}
AXES["video"] = ("frames", *AXES["image"])
MODES = {1: "L", 3: "RGB"}
"""By the number of channels how colours are read: grey; red, green and blue."""
MOST_CHANNELS = 4  # of a picture whose first axis could be its colours: with more, the last one is its width


def read_picture(record: Mapping[str, Any], field: str, where: str) -> np.ndarray:
    """The picture or the film of a record, which was read at `where`: bytes, or floats.

    Shapes   field "image": (H, W, C);  "video": (T, H, W, C); without the last axis it is grey, C = 1.
    Raises   UserError for an array of other axes, one whose channels stand first (an axis of 1 or 3 ahead, and more
             than 4 in the last: 3 × 32 × 3 has 3 rows), an empty picture, and other numbers, NaN and ∞ among them.
    """
    array, axes = np.asarray(record[field]), AXES[field]
    if array.ndim == len(axes) - 1:
        array = array[..., None]
    where = f"{where} has {field} of shape {array.shape}"
    require(array.ndim == len(axes) and min(array.shape[-3:]) > 0, f"{where}; expected ({', '.join(axes)}).")
    ahead = next((axis for axis in range(-len(axes), -2) if array.shape[axis] in MODES), None)
    require(
        ahead is None or array.shape[-1] <= MOST_CHANNELS,
        f"{where}, whose channels seem to stand first; expected ({', '.join(axes)}): turn the array of all records, as "
        f"by np.moveaxis({field}, {ahead}, -1).",
    )
    kind = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    require(kind, f"{where} and type {array.dtype}; expected bytes (uint8), or floats.")
    with np.errstate(over="ignore"):
        finite = array.dtype == np.uint8 or bool(np.isfinite(array.astype(np.float32)).all())
    require(finite, f"{where} with a value that is not a finite number, or too large a one.")
    return array


def read_pictures(records: Records, field: str, split: str, first: np.ndarray) -> list[np.ndarray]:
    """The pictures or films of records, each as the `first` of training is; films are of any length.

    Raises   UserError as `read_picture`, and for another shape or kind than the first's.
    """
    arrays = [read_picture(record, field, place(records, i, split)) for i, record in enumerate(records)]
    for i, array in enumerate(arrays):
        same = array.shape[-3:] == first.shape[-3:] and array.dtype == first.dtype
        require(
            same,
            f"{place(records, i, split)} has {field} of {_describe(array)}, but the first of train has "
            f"{_describe(first)}; expected them to be alike.",
        )
    return arrays


def _describe(array: np.ndarray) -> str:
    return f"{' × '.join(map(str, array.shape[-3:]))} ({array.dtype})"
