"""Rows of vectors, of a length each, as records give them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqlab.types import require


def read_steps(record: Mapping[str, Any], fields: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """The arrays (T, D) of the fields of a record that was read at `where`, which agree in T.

    They are as long as the record's `length` says, if it does.

    Raises   UserError for an array of another shape, a length that there is not, and values that are not finite.
    """
    arrays = {field: np.asarray(record[field], np.float32) for field in fields}
    for field, array in arrays.items():
        require(array.ndim == 2, f"{where} has {field} of shape {array.shape}; expected (steps, components).")
    counts = [len(array) for array in arrays.values()]
    n_steps = int(record.get("length", counts[0]))
    told = ", ".join(f"{len(array)} {field}" for field, array in arrays.items())
    agree = len(set(counts)) == 1 and 0 <= n_steps <= counts[0]
    require(agree, f"{where} has {told} and length {n_steps}; expected them to agree.")
    kept = {field: array[:n_steps] for field, array in arrays.items()}
    finite = bool(np.isfinite(kept["values"]).all())
    require(finite, f"{where} has a value that is not a finite number.")
    return kept
