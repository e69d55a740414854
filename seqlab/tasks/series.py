"""Series: numbers to say at each step, or at some."""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.data.padding import pad_rows
from seqlab.data.records import Records, place
from seqlab.data.scale import Scale
from seqlab.data.steps import read_steps
from seqlab.tasks import objectives
from seqlab.tasks.checks import require_size
from seqlab.tasks.over_examples import Encoded, OverExamples
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class Series(OverExamples):
    """Say at each step of a series its target: regression.

        inputs    x_t, in units of the training split: (x − mean) / deviation, each component for itself
        target    y_t, in the same way; a y_t that is NaN is no target, and its weight is 0
        loss      (1/K) Σ_k (ŷ_tk − y_tk)²

    So a model that always says the mean has about the loss 1. A record has `values` (T, D) and `targets` (T, K), and
    where rows are of many lengths in one array, its `length`.

    Baseline the mean of the training split.
    Shapes   inputs_BTD, lengths_B, targets_BTK; outputs_BTK.
    Metrics  loss (squared error, in variances of the training split), absolute_error (in deviations).
    Raises   UserError for values that are not finite, arrays that are not (T, D), targets of another length than their
             values, a split without a target, max_length < 1, and as `OverExamples`.
    """

    max_length: int = 400
    owner: ClassVar[str] = "series"
    fields: ClassVar[tuple[str, ...]] = ("values", "targets")
    baseline: ClassVar[str] = "mean"
    vocab_size: ClassVar[None] = None
    target_per: ClassVar[str] = "step"

    def __post_init__(self) -> None:
        require_size(self.owner, "max_length", self.max_length, 1)
        super().__post_init__()

    @property
    def d_input(self) -> int:
        return len(self.scale.means["values"])

    @property
    def n_outputs(self) -> int:
        return len(self.scale.means["targets"])

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, 0

    @functools.cached_property
    def scale(self) -> Scale:
        def fit() -> Scale:
            rows = self._read(self.records["train"], "train")
            return Scale.fit({field: [row[field] for row in rows] for field in self.fields})

        return self.learn("scale", fit)

    def _read(self, records: Records, split: str) -> list[dict[str, np.ndarray]]:
        return [read_steps(record, self.fields, place(records, i, split)) for i, record in enumerate(records)]

    def encode(self, records: Records, split: str) -> Encoded:
        rows = self._read(records, split)
        values = pad_rows([self.scale.apply("values", row["values"]) for row in rows], self.max_length)
        y_BTK, _, _ = pad_rows([self.scale.apply("targets", row["targets"]) for row in rows], self.max_length)
        told_BT = ~np.isnan(y_BTK).any(-1) & values.told_BT
        require(bool(told_BT.any()), f"{self.owner}: no step of {split} has a target.")
        targets_BTK = np.where(told_BT[..., None], y_BTK, 0)
        return Encoded.of(values.rows_BT, values.lengths_B, targets_BTK, told_BT.astype(float), values.n_cut)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        K = self.n_outputs
        weights_BTK = jnp.broadcast_to(batch.weights[..., None], outputs.shape) / K
        told = outputs, batch.targets, weights_BTK
        return {"loss": objectives.squared_error(*told), "absolute_error": objectives.absolute_error(*told)}

    def solve(self, batch: Batch) -> Array:
        return jnp.zeros((*batch.inputs.shape[:2], self.n_outputs))
