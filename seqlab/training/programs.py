"""The compiled programs of a run: initialise, advance, measure; each compiled once, for every replica at once."""

import dataclasses
import math
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from seqlab.data.buckets import split_by_length
from seqlab.evaluation.evaluate import evaluate_set
from seqlab.nn.rows import AXIS
from seqlab.training.batches import hold_examples, is_streamed, make_draw
from seqlab.training.devices import make_mesh
from seqlab.training.feed import Feed
from seqlab.training.hosts import fetch, hold
from seqlab.training.optimiser import Optimiser
from seqlab.training.replicas import lift, replica_sharding, row_sharding, sum_over_rows
from seqlab.training.settings import Settings
from seqlab.training.state import State, clear
from seqlab.training.step import make_advance, make_gradient, make_init, make_measure, make_update
from seqlab.types import Batch, Params, Sums, Task


class Programs:
    """What a run executes; making it compiles nothing but the initialisation of small arrays.

    `state_like` is the abstract state, `compile_seconds` and `n_compiled` count what has been compiled so far.

    Raises   UserError for a monitor that the task's sets do not measure.
    """

    def __init__(
        self,
        task: Task,
        sets: dict[str, Batch],
        model: nn.Module,
        optimiser: Optimiser,
        settings: Settings,
        devices: list[jax.Device],
        seeds: list[int],
    ) -> None:
        self.compile_seconds = 0.0
        self.n_compiled = 0
        self._settings = settings
        self.mesh = make_mesh(devices, len(seeds), settings.batch_size // settings.accumulate)
        self._stacked = replica_sharding(self.mesh)
        self._whole = NamedSharding(self.mesh, P())
        self._measure = make_measure(model, task, jnp.dtype(settings.dtype))
        self._seeds_R = hold(np.asarray(seeds, np.uint32), self._stacked)

        init = lift(make_init(model, task, optimiser, settings.batch_size, ema=settings.ema is not None), self.mesh)
        shapes: State = jax.eval_shape(init, self._seeds_R)
        carry = jax.tree.map(lambda _: row_sharding(self.mesh), shapes.carry)
        shardings = jax.tree.map(lambda _: self._stacked, shapes).replace(carry=carry)
        self._init = jax.jit(init, out_shardings=shardings)
        self.state_like: State = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings
        )
        buckets, self.bounds = hold_examples(task)
        self.buckets = self._given = hold(buckets, self._whole)
        self._feed = None
        if is_streamed(task):
            self._feed = Feed(
                lambda step, rows: task.stream(seeds[0], step, settings.batch_size, rows),
                task.streamed_example(settings.batch_size),
                NamedSharding(self.mesh, P(AXIS)),
            )
            self._given = self._feed.shapes
        draw = make_draw(task, settings.batch_size, buckets)
        gradient = make_gradient(self._measure, settings.accumulate, self.mesh)
        update = make_update(optimiser, ema=settings.ema, max_nonfinite=settings.max_nonfinite)
        advance = lift(make_advance(gradient, update, draw, self.mesh), self.mesh)
        self._advance = jax.jit(advance, donate_argnums=0, out_shardings=shardings)
        self._clear = jax.jit(clear, donate_argnums=0, out_shardings=self._stacked)
        self._evaluate = jax.jit(lift(self._measure_set, self.mesh), out_shardings=self._stacked)
        self._sets = {
            name: hold(split_by_length(batch, self.bounds, task.target_per), self._whole)
            for name, batch in sets.items()
        }
        self._compiled_evaluate: dict[str, Any] = {}
        params = self.state_like.eval_params
        settings.require_monitor(
            [
                f"{name}/{metric}"
                for name, parts in self._sets.items()
                for metric in jax.eval_shape(self._evaluate, params, parts)
            ]
        )

    def _measure_set(self, params: Params, parts: tuple[Batch, ...]) -> Sums:
        def measure(params: Params, rows: Batch) -> Sums:
            return self._measure(params, rows)[0]

        measure_rows, n_shards = sum_over_rows(measure, self.mesh), self.mesh.shape[AXIS]
        size = self._settings.eval_batch_size
        summed = [evaluate_set(measure_rows, params, part, size, multiple_of=n_shards) for part in parts]
        return jax.tree.map(lambda *sums: sum(sums[1:], sums[0]), *summed)

    @property
    def n_parameters(self) -> int:
        """The number of parameters of one replica."""
        return sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(self.state_like.params))

    def compile(self) -> None:
        """Compile all that training calls, ahead of its first use."""
        self.compile_evaluation()
        count = jax.ShapeDtypeStruct((), jnp.int32)
        self._advance = self._timed(self._advance, self.state_like, count, count, self._given)
        self._clear = self._timed(self._clear, self.state_like.sums)

    def compile_evaluation(self) -> None:
        """Compile the measurement of the task's sets; sets of one size share a program."""
        by_shapes: dict[str, Any] = {}
        for name, parts in self._sets.items():
            shapes = str(jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), parts))
            if shapes not in by_shapes:
                by_shapes[shapes] = self._timed(self._evaluate, self.state_like.eval_params, parts)
            self._compiled_evaluate[name] = by_shapes[shapes]

    def init(self) -> State:
        """The stack of states before the first update."""
        return self._init(self._seeds_R)

    def advance(self, state: State, n_steps: int) -> State:
        """`n_steps` updates of every replica, in one dispatch; waits for the result and consumes `state`."""
        first = int(max(fetch(state.step)))
        if self._feed is None:
            return jax.block_until_ready(self._advance(state, np.int32(n_steps), np.int32(first), self._given))
        for step in range(first, first + n_steps):
            state = self._advance(state, np.int32(1), np.int32(step), self._feed.take(step))
            self._feed.look_ahead()
            jax.block_until_ready(state)
        return state

    def close(self) -> None:
        """Let go of what reads batches."""
        if self._feed is not None:
            self._feed.close()

    @property
    def waiting_seconds(self) -> float | None:
        """How long updates have waited for batches that are streamed; None where they are not."""
        return None if self._feed is None else self._feed.seconds

    def clear_sums(self, state: State) -> State:
        """The state with its sums emptied; consumes them."""
        return dataclasses.replace(state, sums=self._clear(state.sums))

    def evaluate(self, params: Params) -> dict[str, Sums]:
        """The sums of each set of the task, with a leading replica axis."""
        return {name: fetch(measure(params, self._sets[name])) for name, measure in self._compiled_evaluate.items()}

    def _timed(self, function: Any, *args: Any) -> Any:
        began = time.perf_counter()
        compiled = function.lower(*args).compile()
        self.compile_seconds += time.perf_counter() - began
        self.n_compiled += 1
        return compiled
