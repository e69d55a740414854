"""The three splits of what a source gives: those that are there already, and those that are cut out of the first."""

from collections.abc import Mapping, Sequence

import numpy as np

from seqlab.data.records import Chosen, Records
from seqlab.types import require

SPLITS = ("train", "validation", "test")
FRACTIONS = (0.8, 0.1, 0.1)
SEED = 1729
"""The one order of cutting, so that every run of every model has the same splits."""


def require_fractions(fractions: Sequence[float]) -> None:
    """Raise UserError unless the fractions are three positive numbers whose sum is 1."""
    valid = len(fractions) == 3 and min(fractions) > 0 and abs(sum(fractions) - 1) < 1e-9
    require(valid, f"fractions is {list(fractions)}; expected three positive numbers whose sum is 1.")


def cut(n: int, fractions: Sequence[float]) -> list[int]:
    """Where n things are cut: ⌊n f₁⌋, ⌊n (f₁ + f₂)⌋, …, n."""
    # Rounded first: 10 · (0.7 + 0.2) is 8.999….
    return [int(round(n * share, 6)) for share in np.cumsum(fractions) / sum(fractions)]


def split_records(owner: str, given: Mapping[str, Records], fractions: Sequence[float]) -> dict[str, Records]:
    """Complete the splits: those that are not given are cut at random out of the given train, and are no part of it.

    Of all missing ones and train, each has its share of the fractions. The order of cutting is that of a fixed seed,
    and within a split the records stand as they stood.

    Raises   UserError as `require_fractions`, and for a split without a record.
    """
    require_fractions(fractions)
    whole = given["train"]
    missing = [name for name in SPLITS if name == "train" or name not in given]
    # RandomState, as its stream is the one that NumPy promises to keep.
    order_N = np.random.RandomState(SEED).permutation(len(whole))
    shares = [share for name, share in zip(SPLITS, fractions, strict=True) if name in missing]
    parts = np.split(order_N, cut(len(whole), shares)[:-1])
    found = {name: Chosen(whole, np.sort(part)) for name, part in zip(missing, parts, strict=True)}
    splits: dict[str, Records] = {name: found[name] if name in found else given[name] for name in SPLITS}
    for name, records in splits.items():
        require(len(records) > 0, f"{owner} gives no record for {name}, of {len(whole)} that there are to split.")
    return splits
