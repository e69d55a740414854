"""What the tasks over examples share whose answers are classes."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.data.classes import Classes, require_label
from seqlab.data.padding import Padded, pad_rows
from seqlab.data.records import Records, place
from seqlab.tasks import objectives
from seqlab.tasks.over_examples import Encoded, OverExamples
from seqlab.types import Array, Batch, Sums, require


@dataclasses.dataclass(frozen=True)
class Classification(OverExamples):
    """Say a class, one for each row or one for each step: the classes of the training split.

    Baseline majority: p(c) = (n(c) + 1) / (n + C), whatever is read.
    Metrics  loss (cross-entropy, nats), accuracy.
    Raises   UserError for a label that no training record has, and as `OverExamples`.
    """

    baseline: ClassVar[str] = "majority"

    def labels_of(self, record: Mapping[str, Any]) -> Sequence[Any]:
        """The labels that a record has: one."""
        return [record["label"]]

    def check_label(self, label: Any, where: str) -> None:
        """Refuse a label of training that names no class; `where` begins the sentence."""
        require_label(label, where)

    @functools.cached_property
    def classes(self) -> Classes:
        def train_labels() -> Iterator[Any]:
            records = self.records["train"]
            for i, record in enumerate(records):
                for label in self.labels_of(record):
                    self.check_label(label, place(records, i, "train"))
                    yield label

        classes = self.learn("classes", lambda: Classes.fit(train_labels()))
        require(classes.size >= 2, f"{self.owner} has one class alone, {classes.names[0]!r}; expected two or more.")
        return classes

    @property
    def n_outputs(self) -> int:
        return self.classes.size

    def encode_label(self, records: Records, split: str) -> np.ndarray:
        """The numbers of the labels of records that have one."""
        return self.classes.encode([record["label"] for record in records], lambda i: place(records, i, split))

    def encode_labels(self, records: Records, split: str, steps: Padded, counts: Sequence[int], name: str) -> Encoded:
        """The rows of records whose steps, `counts` of them named so, have a label each.

        Raises   UserError for a record with another number of labels.
        """
        field, labels = self.fields[1], []
        for i, (n_steps, record) in enumerate(zip(counts, records, strict=True)):
            of_record, where = self.labels_of(record), place(records, i, split)
            require(
                n_steps == len(of_record),
                f"{where} has {n_steps} {name}, but {len(of_record)} {field}; expected as many.",
            )
            labels.append(self.classes.encode_steps(of_record, where))
        labels_BT, _, _ = pad_rows(labels, steps.rows_BT.shape[1])
        return Encoded.of(steps.rows_BT, steps.lengths_B, labels_BT, steps.told_BT.astype(float), steps.n_cut)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        told = outputs, batch.targets, batch.weights
        return {"loss": objectives.cross_entropy(*told), "accuracy": objectives.accuracy(*told)}

    def solve(self, batch: Batch) -> Array:
        # The compiler would take long to compute at once what follows from a constant.
        log_p_C = lax.optimization_barrier(jnp.asarray(self._log_p_C))
        return jnp.broadcast_to(log_p_C, (*batch.weights.shape, self.n_outputs))

    @functools.cached_property
    def _log_p_C(self) -> np.ndarray:
        """ln p(c) in the training split, all of it, also where it is streamed."""
        n_C = np.ones(self.n_outputs)
        records = self.records["train"]
        for i, record in enumerate(records):
            numbers = self.classes.encode_steps(self.labels_of(record), place(records, i, "train"))
            np.add.at(n_C, numbers, 1)
        return np.log(n_C / n_C.sum()).astype(np.float32)
