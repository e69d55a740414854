"""Rows of vectors, of a length each, as records give them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqlab.types import require


def read_steps(record: Mapping[str, Any], fields: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """The arrays (T, D) of the fields of a record that was read at `where`, which agree in T.

    They are as long as the record's `length` says, if it does. Doubles, until they are scaled: what changes in a large
    number, as in the time of day, is less than the rounding of a float.

    Raises   UserError for an array of another shape or of no real numbers, a length that there is not, values that are
             not finite, and an infinite number in another field, where NaN says that there is none.
    """
    arrays = {field: np.asarray(record[field]) for field in fields}
    for field, array in arrays.items():
        require(
            array.ndim == 2 and array.shape[1] > 0,
            f"{where} has {field} of shape {array.shape}; expected (steps, components).",
        )
        require(array.dtype.kind in "buif", f"{where} has {field} of type {array.dtype}; expected real numbers.")
    counts = [len(array) for array in arrays.values()]
    length = np.asarray(record.get("length", counts[0]))
    whole = length.ndim == 0 and length.dtype.kind in "uif" and float(length).is_integer()
    require(whole, f"{where} has the length {length}, {length.dtype}; expected a whole number.")
    n_steps = int(length)
    told = ", ".join(f"{len(array)} {field}" for field, array in arrays.items())
    agree = len(set(counts)) == 1 and 0 <= n_steps <= counts[0]
    require(agree, f"{where} has {told} and length {n_steps}; expected them to agree.")
    kept = {field: array[:n_steps].astype(np.float64) for field, array in arrays.items()}
    for field, array in kept.items():
        known = np.isfinite(array) if field == "values" else ~np.isinf(array)
        require(bool(known.all()), f"{where} has a number in {field} that is not finite.")
    return kept
