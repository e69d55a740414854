"""Classification of series: which class is this row of vectors of?"""

import dataclasses
import functools
from typing import ClassVar

import numpy as np

from seqlab.data.padding import pad_rows
from seqlab.data.records import Records, place
from seqlab.data.scale import Scale
from seqlab.data.steps import read_steps
from seqlab.tasks.checks import require_size
from seqlab.tasks.classification import Classification
from seqlab.tasks.over_examples import Encoded
from seqlab.types import require


@dataclasses.dataclass(frozen=True)
class SeriesClassification(Classification):
    """Say which class a row of vectors is of, as who it is that speaks.

        inputs    the first `max_length` steps, in units of the training split: (x − mean) / deviation
        target    the label of the row
        loss      −ln p(label | row)

    A record has `values` (T, D) and `label`, and where rows are of many lengths in one array, its `length`.

    Baseline majority: p(c) = (n(c) + 1) / (n + C), whatever the row is.
    Shapes   inputs_BTD, lengths_B, targets_B; logits_BV with one of V for each class.
    Metrics  loss (cross-entropy, nats), accuracy.
    Raises   UserError for values that are not finite or not (T, D) with the D of the training split, a label that no
             training record has, max_length < 1, and as `Classification`.
    Source   Kudo, Toyama, Shimbo 1999, Multidimensional curve classification using passing-through regions, Pattern
             Recognition Letters 20 (the data that are its default).
    """

    max_length: int = 400
    owner: ClassVar[str] = "series_classification"
    fields: ClassVar[tuple[str, ...]] = ("values", "label")
    vocab_size: ClassVar[None] = None
    target_per: ClassVar[str] = "row"

    def __post_init__(self) -> None:
        require_size(self.owner, "max_length", self.max_length, 1)
        super().__post_init__()

    @functools.cached_property
    def scale(self) -> Scale:
        return self.learn("scale", lambda: Scale.fit({"values": self._read(self.records["train"], "train")}))

    @property
    def d_input(self) -> int:
        return len(self.scale.means["values"])

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, 0

    def encode(self, records: Records, split: str) -> Encoded:
        rows = self._read(records, split)
        for i, row in enumerate(rows):
            D = row.shape[1]
            require(
                self.d_input == D,
                f"{place(records, i, split)} has {D} components a step; those of train {self.d_input}.",
            )
        x_BTD, lengths_B, n_cut = pad_rows([self.scale.apply("values", row) for row in rows], self.max_length)
        return Encoded.of(x_BTD, lengths_B, self.encode_label(records, split), np.ones(len(records)), n_cut)

    def _read(self, records: Records, split: str) -> list[np.ndarray]:
        wheres = [place(records, i, split) for i in range(len(records))]
        return [read_steps(record, ["values"], at)["values"] for record, at in zip(records, wheres, strict=True)]
