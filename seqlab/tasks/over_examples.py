"""What the tasks share that are over a fixed set of examples."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.data.learned import KINDS, is_kept, load_learned
from seqlab.data.padding import fill_batch
from seqlab.data.records import Records, require_fields
from seqlab.data.stream import stream_batches
from seqlab.tasks.checks import require_size
from seqlab.types import Array, Batch, require


class Source(Protocol):
    """Where examples come from: the records of train, validation and test, each a mapping of fields to values."""

    def records(self) -> dict[str, Records]: ...


N_SHOWN = 64
"""Training records that are looked at where the others are streamed."""


class Encoded(NamedTuple):
    """A batch of NumPy arrays, and how many of its rows were cut at a greatest length."""

    batch: Batch
    n_cut: int = 0

    @classmethod
    def of(cls, inputs: Any, lengths: Any, targets: Any, weights: Any, n_cut: int = 0) -> "Encoded":
        """With the field's types: ids and labels are int32, everything else that is no byte float32."""
        lengths = None if lengths is None else _narrow(lengths)
        return cls(Batch(_narrow(inputs), lengths, _narrow(targets), _narrow(weights)), n_cut)


@dataclasses.dataclass(frozen=True)
class OverExamples:
    """The examples of a source, of which training takes each once an epoch.

    They are read and made arrays of once, where the task is built, and training takes them in arrays of at most
    `n_buckets` lengths. With `in_memory` off the training records are read and encoded while training goes on, by
    `n_workers` processes (None: threads), in batches as long as the longest row may be; all replicas have the same.

    `n_eval` keeps the first rows of the validation and the test set. What is learned of data (vocabularies, classes,
    scales) is learned of the training split, or taken from the directory of a run, `learned_from`, to mean what it
    meant there.

    A task says which fields of a record it reads, makes a batch of the records of a split (`encode`), and says how long
    its rows can get (`longest`: inputs, targets that are sequences of their own).

    Raises   UserError for n_buckets < 1, n_eval < 1, n_workers < 1, a field that the source does not give, and as the
             source.
    """

    source: Source
    n_buckets: int = 4
    n_eval: int | None = None
    learned_from: str | None = None
    in_memory: bool = True
    n_workers: int | None = None
    owner: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    fitted_by: ClassVar[tuple[str, ...]] = ()
    """The fields that say how what is learned is fitted: without effect once it is."""
    baseline: ClassVar[str]
    target_per: ClassVar[str]

    def __post_init__(self) -> None:
        require_size(self.owner, "n_buckets", self.n_buckets, 1)
        if self.n_eval is not None:
            require_size(self.owner, "n_eval", self.n_eval, 1)
        if self.n_workers is not None:
            require_size(self.owner, "n_workers", self.n_workers, 1)
            require(
                not self.in_memory,
                f"{self.owner} has n_workers {self.n_workers}, who read what is streamed: give in_memory=false too.",
            )
        if self.learned_from is not None:
            names = [name for name in KINDS if is_kept(name, Path(self.learned_from))]
            require(
                bool(names),
                f"{self.owner} has learned_from {str(self.learned_from)!r}, which is no directory of a run on data: it "
                f"holds none of {', '.join(f'{name}.json' for name in KINDS)}.",
            )
        require_fields(self.owner, self.records, self.fields)
        self.examples()  # Whatever is wrong with the data is refused at the door.

    def encode(self, records: Records, split: str) -> Encoded:
        """The records of a split as a batch of NumPy arrays."""
        raise NotImplementedError

    @functools.cached_property
    def records(self) -> dict[str, Records]:
        """What the source gives, of the validation and the test set as much as is kept."""
        given = self.source.records()
        return {split: of if split == "train" else of[: self.n_eval] for split, of in given.items()}

    @property
    def longest(self) -> tuple[int, int]:
        """How many steps inputs have at most, and targets."""
        return 0, 0

    @functools.cached_property
    def encoded(self) -> dict[str, Encoded]:
        """What is kept in memory of the splits."""
        first = None if self.in_memory else N_SHOWN
        kept = {split: of[:first] if split == "train" else of for split, of in self.records.items()}
        return {split: self.encode(records, split) for split, records in kept.items()}

    @property
    def n_examples(self) -> int:
        return len(self.records["train"])

    def stream(self, seed: int, step: int, batch_size: int, rows: slice = slice(None)) -> Iterator[Batch]:
        """The training batches from an update on, or some rows of each, read and encoded as they are asked for."""
        encode = functools.partial(encode_whole, self, len(range(batch_size)[rows]))
        return stream_batches(
            self.records["train"],
            encode,
            seed=seed,
            step=step,
            batch_size=batch_size,
            n_workers=self.n_workers,
            rows=rows,
        )

    def streamed_example(self, batch_size: int) -> Batch:
        """A batch as those of `stream` look, of one example."""
        return encode_whole(self, batch_size, self.records["train"][:1])

    def examples(self) -> Batch:
        """The training examples; of those that are streamed the first few, to look at."""
        return self.encoded["train"].batch

    def evaluation_sets(self) -> dict[str, Batch]:
        return {split: encoded.batch for split, encoded in self.encoded.items() if split != "train"}

    def describe(self) -> dict[str, dict[str, float]]:
        """Of each split in memory: how many rows, how long they are, and how many were cut."""
        return {
            split: _describe(encoded) for split, encoded in self.encoded.items() if self.in_memory or split != "train"
        }

    def sample(self, key: Array, batch_size: int) -> Batch:
        """Examples of the training split, each as likely as any other."""
        examples = self.examples()
        rows_B = jax.random.randint(key, (batch_size,), 0, len(examples.inputs))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows_B], examples)

    def learn(self, name: str, fit: Callable[[], Any]) -> Any:
        """What the run `learned_from` has kept under this name, or what is fitted on the training split."""
        kept = self.learned_from is not None and is_kept(name, Path(self.learned_from))
        return load_learned(name, Path(str(self.learned_from))) if kept else fit()


def encode_whole(task: OverExamples, batch_size: int, records: Records) -> Batch:
    """The batch of training records in the one shape that all batches of a stream have."""
    return fill_batch(task.encode(records, "train").batch, batch_size, task.target_per, *task.longest)


def _narrow(values: Any) -> Any:
    array = np.asarray(values)
    if array.dtype == np.uint8:
        return array
    return array.astype(np.float32 if np.issubdtype(array.dtype, np.floating) else np.int32)


def _describe(encoded: Encoded) -> dict[str, float]:
    batch, n_cut = encoded
    told: dict[str, float] = {"rows": len(batch.inputs)}
    shape = batch.inputs.shape[1:]
    if batch.lengths is None:
        picture = {"height": shape[0], "width": shape[1], "channels": shape[2]} if len(shape) == 3 else {}
        return told | picture | ({"cut": n_cut} if n_cut else {})
    lengths_B = np.asarray(batch.lengths)
    return told | {
        "shortest": int(lengths_B.min()),
        "mean_length": round(float(lengths_B.mean()), 2),
        "longest": int(lengths_B.max()),
        "cut": n_cut,
    }
