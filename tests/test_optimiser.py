"""The optimisers of conf/optim equal optax's own, the decay rule reads paths, bad values are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hydra.utils import instantiate

from seqlab.overrides import groups
from seqlab.training import gradients
from seqlab.training.optimiser import Optimiser
from seqlab.training.schedule import constant, linear
from seqlab.types import UserError

DECAY = 0.07
RATE = 0.03

# A realistic tree: the names that Flax and seqlab give to the leaves of embeddings, norms, cells and heads.
PARAMS = {
    "inputs": {"Embed_0": {"embedding": jnp.ones((5, 3))}},
    "encoder": {
        "layers_0": {"cell": {"kernel": jnp.full((3, 14), 0.5), "recurrent_kernel": jnp.ones((7, 14))}},
        "layers_1": {"cell": {"kernel": jnp.ones((7, 14)), "bias": jnp.ones((2, 14))}},
        "norms_0": {"scale": jnp.ones((7,))},
        "stacked_LayerNorm": {"scale": jnp.ones((2, 7))},
    },
    "pool": {"query": jnp.ones((7,))},
    "head": {"kernel": jnp.ones((7, 5)), "bias": jnp.ones((5,))},
}
DECAYED = {
    "encoder/layers_0/cell/kernel",
    "encoder/layers_0/cell/recurrent_kernel",
    "encoder/layers_1/cell/kernel",
    "head/kernel",
}


@pytest.fixture
def optimiser(compose):
    """The optimiser that the command line with these overrides would build, at a constant rate."""

    def build(*overrides: str) -> Optimiser:
        return instantiate(compose(*overrides).optim, factor=constant())

    return build


def follow(init, update):
    """The parameters after four updates whose gradients change sign and size; the third is clipped by any clip."""
    params, state = PARAMS, init(PARAMS)
    for step, size in enumerate([0.01, 0.02, 100.0, 0.01]):
        grads = jax.tree.map(lambda p, step=step, size=size: size * np.cos(3 * step + np.arange(p.size)), PARAMS)
        grads = jax.tree.map(lambda g, p: jnp.asarray(g.reshape(p.shape), p.dtype), grads, PARAMS)
        updates, state = update(grads, state, params, jnp.asarray(step))
        params = optax.apply_updates(params, updates)
    return params


def assert_same_path(ours: Optimiser, reference: optax.GradientTransformation) -> None:
    mine = follow(ours.init, ours.update)
    its = follow(reference.init, lambda grads, state, params, step: reference.update(grads, state, params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), mine, its)


def mask(params):
    return jax.tree.map_with_path(
        lambda path, leaf: jax.tree_util.keystr(path, simple=True, separator="/") in DECAYED, params
    )


REFERENCES = {
    "sgd": lambda: optax.sgd(RATE),
    "momentum": lambda: optax.sgd(RATE, momentum=0.9),
    "nesterov": lambda: optax.sgd(RATE, momentum=0.9, nesterov=True),
    "adagrad": lambda: optax.adagrad(RATE),
    "rmsprop": lambda: optax.rmsprop(RATE),
    "adam": lambda: optax.adam(RATE),
    "adamw": lambda: optax.adamw(RATE, weight_decay=DECAY, mask=mask),
    "lion": lambda: optax.lion(RATE, weight_decay=DECAY, mask=mask),
}


SPARED = {"adagrad", "rmsprop", "nesterov", "momentum", "lion"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SPARED else []) for name in groups()["optim"]]
)
def test_optimiser_equals_optax(optimiser, name):
    decay = DECAY if name in ("adamw", "lion") else 0.0
    ours = optimiser(f"optim={name}", "optim/clip=none", f"optim.learning_rate={RATE}", f"optim.weight_decay={decay}")
    assert_same_path(ours, REFERENCES[name]())


def test_clip_by_global_norm_comes_before_the_direction(optimiser):
    ours = optimiser("optim=adam", "optim/clip=global_norm", "optim.clip.max_norm=0.7", f"optim.learning_rate={RATE}")
    assert_same_path(ours, optax.chain(optax.clip_by_global_norm(0.7), optax.adam(RATE)))


def test_clip_by_value_comes_before_the_direction(optimiser):
    ours = optimiser("optim=momentum", "optim/clip=value", "optim.clip.max_delta=5", f"optim.learning_rate={RATE}")
    assert_same_path(ours, optax.chain(optax.clip(5.0), optax.sgd(RATE, momentum=0.9)))


def test_rate_and_decay_follow_the_schedule():
    factor = linear(steps=5, warmup_steps=2)
    ours = Optimiser(RATE, gradients.adam(0.9, 0.999, 1e-8), factor, weight_decay=DECAY)
    reference = optax.adamw(lambda count: RATE * factor(count), weight_decay=DECAY, mask=mask)
    assert_same_path(ours, reference)


def test_applied_learning_rate_is_rate_times_factor():
    ours = Optimiser(0.5, optax.identity(), linear(steps=5, warmup_steps=2))
    applied = [float(ours.applied_learning_rate(jnp.asarray(step))) for step in range(5)]
    np.testing.assert_allclose(applied, [0.25, 0.5, 0.5, 1 / 3, 1 / 6], rtol=1e-6)


def test_updates_keep_the_dtype_of_the_parameters():
    ours = Optimiser(0.5, optax.identity(), constant(), weight_decay=0.1)
    params = {"kernel": jnp.ones((2, 3), jnp.bfloat16)}
    updates, _ = ours.update(params, ours.init(params), params, jnp.asarray(0))
    assert updates["kernel"].dtype == jnp.bfloat16


def test_decay_rule_reads_paths():
    ours = Optimiser(RATE, optax.identity(), constant(), weight_decay=DECAY)
    assert jax.tree.map(bool, mask(PARAMS)) == ours.decayed(PARAMS)
    lines = ours.describe_decay(PARAMS)
    assert {line.split()[1] for line in lines if line.startswith("decayed")} == DECAYED
    assert len(lines) == len(jax.tree.leaves(PARAMS))


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: Optimiser(-0.1, optax.identity(), constant()), "learning_rate=-0.1"),
        (lambda: Optimiser(float("nan"), optax.identity(), constant()), "learning_rate=nan"),
        (lambda: Optimiser(0.1, optax.identity(), constant(), weight_decay=-1.0), "weight_decay=-1.0"),
        (lambda: gradients.clip_by_global_norm(0.0), "max_norm=0.0"),
        (lambda: gradients.clip_by_value(-5.0), "max_delta=-5.0"),
        (lambda: gradients.momentum(1.0, nesterov=False), "mu=1.0"),
        (lambda: gradients.adagrad(-0.1, 1e-7), "initial_accumulator=-0.1"),
        (lambda: gradients.rmsprop(1.5, 1e-8), "decay=1.5"),
        (lambda: gradients.adam(0.9, 1.0, 1e-8), "b2=1.0"),
        (lambda: gradients.adam(0.9, 0.99, 0.0), "eps=0.0"),
        (lambda: gradients.lion(-0.1, 0.99), "b1=-0.1"),
    ],
)
def test_bad_value_is_refused_by_name(mistake, told):
    with pytest.raises(UserError, match=told):
        mistake()
