"""One update as a pure function of the state, and many of them in one dispatch."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from seqlab.training.batches import Draw
from seqlab.training.carry import choose_rows, finite_rows, goes_on, initial_state
from seqlab.training.optimiser import Optimiser
from seqlab.training.replicas import over_rows, split_rows
from seqlab.training.state import DATA, DROPOUT, INIT, State, cast_floats, count_tokens, derive_key
from seqlab.types import Array, Batch, Params, Sums, Task, model_arguments

Measure = Callable[..., tuple[Sums, Any]]
Rows = tuple[Batch, Any]  # with the carry that they go on from


def make_measure(model: nn.Module, task: Task, dtype: Any) -> Measure:
    """The function `(params, batch, key=None, step=None, carry=None) -> (sums, carry)`: what the task measures.

    The model computes in `dtype`: the float parameters and inputs are cast on the way in and the outputs back to
    float32 on the way out; parameters, sums and the optimiser stay in float32. A key turns training behaviour
    (dropout …) on; then the model finds the number of the update as `step` in the collection "training", and what it
    sows into the collection "losses", sums over rows and steps, is added to the total of the loss.

    With a carry, the state in which a row's last window left the model, training goes on from there (truncated
    back-propagation through time: the carry is given, so that the gradient stops at it), and from the initial state
    in the rows that are `fresh`. The carry that comes back is always finite: a row whose state is not begins anew.

    Source   Williams & Peng 1990, An efficient gradient-based algorithm for on-line training of recurrent network
             trajectories.
    """

    def measure(
        params: Params, batch: Batch, key: Array | None = None, step: Array | None = None, carry: Any = None
    ) -> tuple[Sums, Any]:
        variables = {"params": cast_floats(params, dtype)}
        arguments = cast_floats(model_arguments(model, batch), dtype)
        if key is None:
            outputs = model.apply(variables, *arguments, train=False)
            return task.measure(cast_floats(outputs, jnp.float32), batch), None
        given = {}
        if carry is not None:
            assert batch.fresh is not None, "the task does not say which rows begin anew"
            initial = cast_floats(initial_state(model, variables, len(batch.inputs)), jnp.float32)
            given = {"state": choose_rows(batch.fresh, initial, carry)}
        outputs, sown = model.apply(
            variables | {"training": {"step": step}},
            *arguments,
            **given,
            train=True,
            rngs={"dropout": key},
            mutable="losses",
        )
        outputs = cast_floats(outputs, jnp.float32)
        if carry is not None:
            outputs, carry = outputs
            carry = choose_rows(finite_rows(carry), carry, initial)
        sums = task.measure(outputs, batch)
        total, weight = sums["loss"]
        return sums | {"loss": (sum(jax.tree.leaves(sown), total), weight)}, carry

    return measure


def make_init(
    model: nn.Module, task: Task, optimiser: Optimiser, batch_size: int, *, ema: bool
) -> Callable[[Array], State]:
    """The function `seed -> State` before the first update."""

    def init(seed: Array) -> State:
        # Of an example nothing but its shape is looked at.
        shapes = jax.eval_shape(lambda key: task.sample(key, 1), derive_key(seed, DATA))
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
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
            carry=initial_state(model, variables, batch_size) if goes_on(task) else None,
        )

    return init


def make_gradient(measure: Measure, accumulate: int, mesh: Mesh) -> Callable[..., tuple[Params, Sums, Any]]:
    """The function `(params, batch, key, step, carry=None) -> (gradient, sums, carry)` of the mean loss over the batch.

    gradient = Σ_micro ∂ total_micro / Σ_micro weight_micro:  sums over sums, so that `accumulate` micro-batches give
    the gradient of the whole batch up to rounding, whatever the weights are. Micro-batch j takes the rows j, j+k, …,
    so that each device keeps its own rows, and their carry.
    """

    def total(params: Params, rows: Rows, key: Array, step: Array) -> tuple[Array, tuple[Sums, Any]]:
        batch, carry = rows
        sums, carry = measure(params, batch, key, step, carry)
        return sums["loss"][0], (sums, carry)

    def gradient_of_total(params: Params, rows: Rows, key: Array, step: Array) -> tuple[tuple[Params, Sums], Any]:
        gradient, (sums, carry) = jax.grad(total, has_aux=True)(params, rows, key, step)
        return (gradient, sums), carry

    def over_micro_batches(params: Params, rows: Rows, key: Array, step: Array) -> tuple[tuple[Params, Sums], Any]:
        micro = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), rows)
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(jnp.arange(accumulate))
        empty = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(gradient_of_total, params, jax.tree.map(lambda x: x[0], micro), keys[0], step)[0],
        )

        def add(sofar: Any, inputs: tuple[Rows, Array]) -> tuple[Any, Any]:
            rows, key = inputs
            summed, carry = gradient_of_total(params, rows, key, step)
            return jax.tree.map(jnp.add, sofar, summed), carry

        summed, carries = lax.scan(add, empty, (micro, keys))
        return summed, jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), carries)

    def gradient_of_mean(
        params: Params, batch: Batch, key: Array, step: Array, carry: Any = None
    ) -> tuple[Params, Sums, Any]:
        take = gradient_of_total if accumulate == 1 else over_micro_batches
        (gradient, sums), carry = over_rows(take, mesh)(params, (batch, carry), key, step)
        weight = jnp.maximum(sums["loss"][1], jnp.finfo(jnp.float32).tiny)
        return jax.tree.map(lambda g: g / weight, gradient), sums, carry

    return gradient_of_mean


def make_update(
    optimiser: Optimiser, *, ema: float | None, max_nonfinite: int
) -> Callable[[State, Params, Sums, Any], State]:
    """The function `(state, gradient, sums, carry) -> state` of one update.

    An update whose loss or gradient is not finite changes no parameter and no statistic of the optimiser; it is
    counted. After `max_nonfinite` of them in a row the state stands still, so that where a run stops does not depend
    on how many updates one dispatch holds. The carry goes on in a skipped update too: its window has been read.
    """

    def update(state: State, grads: Params, sums: Sums, carry: Any) -> State:
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
            carry=jax.tree.map(lambda n, o: jnp.where(stopped, o, n), carry, state.carry),
        )

    return update


def make_advance(
    gradient: Callable[..., tuple[Params, Sums, Any]],
    update: Callable[[State, Params, Sums, Any], State],
    draw: Draw,
    mesh: Mesh,
) -> Callable[..., State]:
    """The function `(state, n_steps, step, given) -> state` of `n_steps` updates from `step` on in one dispatch.

    Drawing the batch is inside. The count is traced, so that one compiled program serves every stretch between two
    events; the step is an argument beside the state, as it is the same for all replicas, and with it the shape of what
    is drawn.
    """

    def advance(state: State, n_steps: Array, step: Array, given: Any) -> State:
        def body(i: Array, state: State) -> State:
            def use(batch: Batch) -> tuple[Params, Sums, Any]:
                key = derive_key(state.seed, DROPOUT, step + i)
                grads, sums, carry = gradient(state.params, split_rows(batch, mesh), key, step + i, state.carry)
                return grads, sums | {"tokens": (count_tokens(batch), jnp.ones(()))}, carry

            return update(state, *draw(use, state.seed, step + i, given))

        return lax.fori_loop(0, n_steps, body, state)

    return advance
