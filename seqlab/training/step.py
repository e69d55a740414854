"""One update as a pure function of the state, and many of them in one dispatch."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from seqlab.training.optimiser import Optimiser
from seqlab.training.replicas import split_rows, sum_over_rows
from seqlab.training.state import DATA, DROPOUT, INIT, State, cast_floats, count_tokens, derive_key
from seqlab.types import Array, Batch, Params, Sums, Task, model_arguments

Measure = Callable[..., Sums]


def make_measure(model: nn.Module, task: Task, dtype: Any) -> Measure:
    """The function `(params, batch, key=None, step=None) -> sums`: what the task measures of the model's outputs.

    The model computes in `dtype`: the float parameters and inputs are cast on the way in and the outputs back to
    float32 on the way out; parameters, sums and the optimiser stay in float32. A key turns training behaviour
    (dropout …) on; then the model finds the number of the update as `step` in the collection "training", and what it
    sows into the collection "losses", sums over rows and steps, is added to the total of the loss.
    """

    def measure(params: Params, batch: Batch, key: Array | None = None, step: Array | None = None) -> Sums:
        variables = {"params": cast_floats(params, dtype)}
        arguments = cast_floats(model_arguments(model, batch), dtype)
        if key is None:
            return task.measure(cast_floats(model.apply(variables, *arguments, train=False), jnp.float32), batch)
        outputs, sown = model.apply(
            variables | {"training": {"step": step}}, *arguments, train=True, rngs={"dropout": key}, mutable="losses"
        )
        sums = task.measure(cast_floats(outputs, jnp.float32), batch)
        total, weight = sums["loss"]
        return sums | {"loss": (sum(jax.tree.leaves(sown), total), weight)}

    return measure


def make_init(model: nn.Module, task: Task, optimiser: Optimiser, *, ema: bool) -> Callable[[Array], State]:
    """The function `seed -> State` before the first update."""

    def init(seed: Array) -> State:
        example = task.sample(derive_key(seed, DATA), 1)
        arguments = model_arguments(model, example)
        outputs, variables = model.init_with_output(derive_key(seed, INIT), *arguments, train=False)
        params = variables["params"]
        names = (*task.measure(outputs, example), "gradient_norm", "update_ratio", "tokens")
        zero = jnp.zeros((), jnp.int32)
        return State(
            step=zero,
            seed=seed,
            params=params,
            opt_state=optimiser.init(params),
            ema=jax.tree.map(jnp.copy, params) if ema else None,
            sums={name: (jnp.zeros(()), jnp.zeros(())) for name in names},
            learning_rate=jnp.zeros(()),
            skipped=zero,
            skipped_run=zero,
        )

    return init


def make_gradient(
    measure: Measure, accumulate: int, mesh: Mesh
) -> Callable[[Params, Batch, Array, Array], tuple[Params, Sums]]:
    """The function `(params, batch, key, step) -> (gradient, sums)` of the mean loss over the batch.

    gradient = Σ_micro ∂ total_micro / Σ_micro weight_micro:  sums over sums, so that `accumulate` micro-batches give
    the gradient of the whole batch up to rounding, whatever the weights are. Micro-batch j takes the rows j, j+k, …,
    so that each device keeps its own rows.
    """

    def total(params: Params, batch: Batch, key: Array, step: Array) -> tuple[Array, Sums]:
        sums = measure(params, batch, key, step)
        return sums["loss"][0], sums

    def gradient_of_total(params: Params, batch: Batch, key: Array, step: Array) -> tuple[Params, Sums]:
        gradient, sums = jax.grad(total, has_aux=True)(params, batch, key, step)
        return gradient, sums

    def over_micro_batches(params: Params, batch: Batch, key: Array, step: Array) -> tuple[Params, Sums]:
        micro = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch)
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(jnp.arange(accumulate))
        empty = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(gradient_of_total, params, jax.tree.map(lambda x: x[0], micro), keys[0], step),
        )

        def add(sofar: Any, inputs: tuple[Batch, Array]) -> tuple[Any, None]:
            batch, key = inputs
            return jax.tree.map(jnp.add, sofar, gradient_of_total(params, batch, key, step)), None

        return lax.scan(add, empty, (micro, keys))[0]

    def gradient_of_mean(params: Params, batch: Batch, key: Array, step: Array) -> tuple[Params, Sums]:
        take = gradient_of_total if accumulate == 1 else over_micro_batches
        gradient, sums = sum_over_rows(take, mesh)(params, batch, key, step)
        weight = jnp.maximum(sums["loss"][1], jnp.finfo(jnp.float32).tiny)
        return jax.tree.map(lambda g: g / weight, gradient), sums

    return gradient_of_mean


def make_update(
    gradient: Callable[[Params, Batch, Array, Array], tuple[Params, Sums]],
    optimiser: Optimiser,
    *,
    ema: float | None,
    max_nonfinite: int,
) -> Callable[[State, Batch], State]:
    """The function `(state, batch) -> state` of one update.

    An update whose loss or gradient is not finite changes no parameter and no statistic of the optimiser; it is
    counted. After `max_nonfinite` of them in a row the state stands still, so that where a run stops does not depend
    on how many updates one dispatch holds.
    """

    def update(state: State, batch: Batch) -> State:
        key = derive_key(state.seed, DROPOUT, state.step)
        grads, sums = gradient(state.params, batch, key, state.step)
        gradient_norm = optax.tree.norm(grads)
        stopped = state.skipped_run >= max_nonfinite
        finite = jnp.isfinite(sums["loss"][0]) & jnp.isfinite(gradient_norm)
        good = finite & ~stopped
        bad = ~finite & ~stopped

        updates, opt_state = optimiser.update(grads, state.opt_state, state.params, state.step)
        params = optax.apply_updates(state.params, updates)
        ratio = optax.tree.norm(updates) / jnp.maximum(optax.tree.norm(state.params), jnp.finfo(jnp.float32).tiny)
        one = jnp.ones(())
        sums |= {
            "gradient_norm": (gradient_norm, one),
            "update_ratio": (ratio, one),
            "tokens": (count_tokens(batch), one),
        }

        def keep(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda n, o: jnp.where(good, n, o), new, old)

        def average(new: Array, old: Array) -> Array:
            return old + (1.0 - ema) * (new - old) if ema is not None else new

        params = keep(params, state.params)
        return State(
            step=state.step + jnp.where(stopped, 0, 1),
            seed=state.seed,
            params=params,
            opt_state=keep(opt_state, state.opt_state),
            ema=None if state.ema is None else keep(jax.tree.map(average, params, state.ema), state.ema),
            sums=keep(jax.tree.map(jnp.add, state.sums, sums), state.sums),
            learning_rate=jnp.where(good, optimiser.applied_learning_rate(state.step), state.learning_rate),
            skipped=state.skipped + bad,
            skipped_run=jnp.where(stopped, state.skipped_run, jnp.where(good, 0, state.skipped_run + 1)),
        )

    return update


def make_advance(
    update: Callable[[State, Batch], State], task: Task, batch_size: int, mesh: Mesh
) -> Callable[[State, Array], State]:
    """The function `(state, n_steps) -> state` of `n_steps` updates in one dispatch.

    Sampling is inside, and the batch of step s is `sample(fold_in(key, s))`; the count is traced, so that one compiled
    program serves every stretch between two events.
    """

    def advance(state: State, n_steps: Array) -> State:
        def body(_: Array, state: State) -> State:
            batch = task.sample(derive_key(state.seed, DATA, state.step), batch_size)
            return update(state, split_rows(batch, mesh))

        return lax.fori_loop(0, n_steps, body, state)

    return advance
