"""Where the batch of an update comes from."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard

from jax import lax

from seqlab.data.buckets import bucket_examples
from seqlab.data.epoch import Epoch
from seqlab.training.carry import goes_on
from seqlab.training.state import DATA, derive_key
from seqlab.types import Array, Batch, ExamplesTask, Task, UserError

Draw = Callable[[Callable[[Batch], Any], Array, Array, Any], Any]


def has_examples(task: Task) -> TypeGuard[ExamplesTask]:
    """Whether a task is over a fixed set of examples, which training goes through in epochs."""
    return hasattr(task, "examples")


def is_streamed(task: Task) -> TypeGuard[ExamplesTask]:
    """Whether the batches of a task are read while training goes on."""
    return has_examples(task) and not task.in_memory


def hold_examples(task: Task) -> tuple[tuple[Batch, ...], tuple[int, ...]]:
    """The training examples that are kept in memory, in buckets, and the lengths of these."""
    if not has_examples(task) or not task.in_memory:
        return (), ()
    return bucket_examples(task.examples(), task.n_buckets, task.target_per)


def make_epoch(task: Task, buckets: Sequence[Batch], batch_size: int) -> Epoch:
    """The epochs of a task.

    Raises   UserError for a task that has none.
    """
    if not has_examples(task):
        raise UserError(f"{type(task).__name__} draws its rows anew at each step: it has no epochs")
    sizes = tuple(len(rows.inputs) for rows in buckets) if task.in_memory else (task.n_examples,)
    return Epoch(sizes, batch_size)


def make_draw(task: Task, batch_size: int, buckets: Sequence[Batch]) -> Draw:
    """The function `(use, seed, step, given) -> use(batch)` of the batch of a step.

    It is `sample(fold_in(key, s))`; of a task that goes on `sample_at(s)`, the same for every seed; of one over
    examples the turn s of the epoch, whose shape is one of a few, out of the `given` buckets; and where the batches are
    streamed, the `given` one.
    """
    if is_streamed(task):
        return lambda use, seed, step, given: use(given)
    if has_examples(task):
        epoch = make_epoch(task, buckets, batch_size)

        def draw(use: Callable[[Batch], Any], seed: Array, step: Array, given: Sequence[Batch]) -> Any:
            turn, key = epoch.turn(step), derive_key(seed, DATA)

            def use_bucket(k: int) -> Any:
                return use(epoch.draw(k, given[k], turn, key))

            return lax.switch(turn.bucket, [partial(use_bucket, k) for k in range(len(given))])

        return draw
    if goes_on(task):
        return lambda use, seed, step, given: use(task.sample_at(step, batch_size))
    return lambda use, seed, step, given: use(task.sample(derive_key(seed, DATA, step), batch_size))
