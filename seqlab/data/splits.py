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
    three = isinstance(fractions, Sequence) and len(fractions) == 3 and not isinstance(fractions, str)
    numbers = three and all(isinstance(share, int | float) for share in fractions)
    valid = numbers and min(fractions) > 0 and abs(sum(fractions) - 1) < 1e-9
    told = list(fractions) if three else fractions
    require(valid, f"fractions is {told}; expected three positive numbers whose sum is 1.")


def cut(n: int, fractions: Sequence[float]) -> list[int]:
    """Where n things are cut: ⌊n f₁⌋, ⌊n (f₁ + f₂)⌋, …, n."""
    # Rounded first: 10 · (0.7 + 0.2) is 8.999….
    return [int(round(n * share, 6)) for share in np.cumsum(fractions) / sum(fractions)]


def split_records(owner: str, given: Mapping[str, Records], fractions: Sequence[float]) -> dict[str, Records]:
    """Complete the splits: those that are not given are cut at random out of the given train, and are no part of it.

    A missing one is its share of what is given as train, and the same one whatever else is given: what train loses by
    it, it loses in every run. The order of cutting is that of a fixed seed, and within a split the records stand as
    they stood.

    Raises   UserError as `require_fractions`, and for a split without a record.
    """
    require_fractions(fractions)
    whole = given["train"]
    # RandomState, as its stream is the one that NumPy promises to keep.
    order_N = np.random.RandomState(SEED).permutation(len(whole))
    numbers = dict(zip(SPLITS, np.split(order_N, cut(len(whole), fractions)[:-1]), strict=True))
    kept = [numbers["train"], *(numbers[name] for name in given if name != "train")]
    numbers["train"] = np.concatenate(kept)
    splits: dict[str, Records] = {
        name: given[name] if name in given and name != "train" else Chosen(whole, np.sort(numbers[name]))
        for name in SPLITS
    }
    for name, records in splits.items():
        require(len(records) > 0, f"{owner} gives no record for {name}, of {len(whole)} that there are to split.")
    return splits
