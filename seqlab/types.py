"""The vocabulary of seqlab: what the parts hand to each other.

Axis letters, used in every name (`x_BTD`) and every einsum:
    B batch   T time   S source time   D model width   H heads   K head width
    F features of a layer   V vocabulary or outputs   N layers   R replicas
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
Params = Any
Sum = tuple[Array, Array]
"""A total and the weight it was summed with; their ratio is the mean."""
Sums = dict[str, Sum]


class UserError(ValueError):
    """A mistake of the user's, told in one sentence: the value, what was expected, the nearest right name."""


def require(condition: bool, message: str) -> None:
    """Raise `UserError(message)` unless `condition` holds."""
    if not condition:
        raise UserError(message)


@struct.dataclass
class Batch:
    """What a task hands to a model and to its own measure.

    Shapes   inputs_BT (ids), inputs_BTD (vectors), inputs_BHWC (pictures: bytes, or floats) or inputs_BTHWC (films);
             lengths_B, or None when every row is full;
             targets and weights: _B for one target a row, _BT (targets of vectors: _BTV) for one a step; for a
             sequence of its own _BT with another T, ended by the weights;
             fresh_B, of a task whose windows follow each other (`sample_at`): the rows that begin from the initial
             state and not from where the row's last window ended.
    """

    inputs: Array
    lengths: Array | None
    targets: Array
    weights: Array
    fresh: Array | None = None


def model_arguments(model: Any, batch: Batch) -> tuple[Array | None, ...]:
    """What a model reads of a batch; the targets too, where it is taught by them (`teacher_forced`)."""
    inputs = read_levels(batch.inputs)
    if getattr(model, "teacher_forced", False):
        return inputs, batch.lengths, batch.targets, batch.weights
    return inputs, batch.lengths


def read_levels(inputs: Any) -> Any:
    """Inputs as a model reads them: bytes are the levels of a picture's light, and become 0 … 1."""
    return inputs / jnp.float32(255) if inputs.dtype == jnp.uint8 else inputs


@struct.dataclass
class Encoding:
    """What a sequence layer returns.

    Shapes   y_BTF: output at each step, zeros past the length;
             last_BF: output once the whole row has been read, zeros for length 0;
             state: to go on from, a pytree whose leaves begin with B;
             choices: what a layer that draws tells of its draws (`reinforce.Choices`), None of other layers.
    """

    y_BTF: Array
    last_BF: Array
    state: Any
    choices: Any = None


class SequenceLayer(Protocol):
    """A map from sequence to sequence that can also take one step at a time."""

    def __call__(self, x_BTD: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool) -> Encoding: ...

    def init_state(self, batch_size: int) -> Any: ...

    def step(self, state: Any, x_BD: Array) -> tuple[Any, Array]: ...


class Task(Protocol):
    """What is to be predicted, as pure functions.

    `vocab_size` is None for vector inputs, `d_input` is None for tokens. `target_per`: one target a "row", one a
    "step", or a "sequence" of its own for each row.
    """

    @property
    def vocab_size(self) -> int | None: ...
    @property
    def d_input(self) -> int | None: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def target_per(self) -> str: ...

    def sample(self, key: Array, batch_size: int) -> Batch: ...
    def evaluation_sets(self) -> dict[str, Batch]: ...
    def measure(self, outputs: Array, batch: Batch) -> Sums: ...
    def solve(self, batch: Batch) -> Array: ...


class ExamplesTask(Task, Protocol):
    """A task over a fixed set of examples, of which training takes each once an epoch.

    In memory, rows of many lengths are trained in arrays of at most `n_buckets` lengths, so that little of them is
    padding. Otherwise the batches from an update on come one by one from `stream`, all of one shape.
    """

    @property
    def in_memory(self) -> bool: ...
    @property
    def n_buckets(self) -> int: ...
    @property
    def n_examples(self) -> int: ...

    def examples(self) -> Batch: ...
    def describe(self) -> dict[str, dict[str, float]]: ...
    def stream(self, seed: int, step: int, batch_size: int, rows: slice = ...) -> Iterator[Batch]: ...
    def streamed_example(self, batch_size: int) -> Batch: ...


class ContinuousTask(Task, Protocol):
    """A task whose windows follow each other: training hands the model's state on from one to the next.

    `sample_at` gives the windows of update `step`: each row's goes on from where its last one ended, or is `fresh`.
    """

    def sample_at(self, step: Array, batch_size: int) -> Batch: ...


@dataclasses.dataclass(frozen=True)
class Run:
    """One run as loggers see it."""

    directory: Path
    name: str
    group: str
    tags: tuple[str, ...]
    notes: str
    config: dict[str, Any]
    n_steps: int
    n_replicas: int
    resumed_from: int | None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Event:
    """One log event: what was measured at a step.

    `values` hold one number a replica and depend on the seed alone; `rates` (steps/s, tokens/s) come from the clock.
    `split` is "train" or the name of an evaluation set.
    """

    step: int
    split: str
    values: dict[str, list[float]]
    rates: dict[str, float]
    wall_time: float


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells: a column holds texts, or pictures (arrays of bytes, HWC)."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def texts(self) -> list[tuple[str, ...]]:
        """The rows with words for pictures."""
        return [
            tuple(cell if isinstance(cell, str) else f"picture, {cell.shape[0]} × {cell.shape[1]}" for cell in row)
            for row in self.rows
        ]


@dataclasses.dataclass(frozen=True)
class Exhibit:
    """What there is to be looked at at a step, by name: of an analysis, or samples of what the model says.

    All of it is in files already, at `place`, the figures (PNG) and the pages (HTML) among them. `values` hold one
    number a replica.
    """

    step: int
    name: str
    place: Path
    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    figures: dict[str, Path] = dataclasses.field(default_factory=dict)
    pages: dict[str, Path] = dataclasses.field(default_factory=dict)
    tables: dict[str, Table] = dataclasses.field(default_factory=dict)


class Logger(Protocol):
    """A mirror of the run: told of its start, its progress, its events, what can be looked at, and its end."""

    def start(self, run: Run) -> None: ...

    def advance(self, step: int) -> None: ...

    def log(self, event: Event) -> None: ...

    def show(self, exhibit: Exhibit) -> None: ...

    def finish(self, status: str, summary: dict[str, Any]) -> None: ...
