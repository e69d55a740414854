"""Laws of every YAML in conf/model/inputs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab.nn.inputs import LinearInputs, TokenInputs
from seqlab.types import UserError

GROUP = Path(__file__).parents[2] / "conf/model/inputs"
B, T, D, VOCAB, FEATURES = 5, 7, 3, 11, 13
LENGTHS = np.array([T, 4, 0, 1, 6])
PADDED = np.arange(T) >= LENGTHS[:, None]


class Case(NamedTuple):
    """An input module, its parameters, two batches, and a jitted map to (x_BTD, gradients)."""

    module: Any
    variables: Any
    batches: list[np.ndarray]
    run: Callable[..., Any]


def build(path, make_run):
    config = OmegaConf.load(path)
    if OmegaConf.is_missing(config, "run"):
        config.run = str(make_run())
    return instantiate(config, **{k: v for k, v in {"vocab_size": VOCAB, "features": FEATURES}.items() if k in config})


def draw(module):
    """Give two batches which differ in their padding only: ids out of range, or NaN and a huge number."""
    rng = np.random.default_rng(0)
    if hasattr(module, "vocab_size"):
        ids = rng.integers(0, VOCAB, (B, T))
        return [np.where(PADDED, rng.choice([0, -1, VOCAB, 10**6], (B, T)), ids) for _ in range(2)]
    u = rng.normal(size=(B, T, D)).astype(np.float32)
    return [np.where(PADDED[..., None], garbage, u).astype(np.float32) for garbage in (np.nan, 1e30)]


@pytest.fixture(scope="module", params=sorted(GROUP.glob("*.yaml")), ids=lambda path: path.stem)
def case(request, make_run):
    module = build(request.param, make_run)
    batches = draw(module)
    variables = module.init(jax.random.key(0), batches[0], LENGTHS, train=False)
    variables = jax.tree.map(lambda a: a + 0.5, variables)  # biases other than zero

    @jax.jit
    def run(variables, x, lengths):
        # The cotangent of a padded step is not zero, as a careless head's would be.
        x_BTD, pull = jax.vjp(lambda variables: module.apply(variables, x, lengths, train=False), variables)
        return x_BTD, pull(jnp.ones_like(x_BTD))

    return Case(module, variables, batches, run)


def test_padding_changes_nothing_and_gives_zeros(case):
    (x_BTD, gradients), again = (case.run(case.variables, batch, LENGTHS) for batch in case.batches)
    jax.tree.map(np.testing.assert_array_equal, (x_BTD, gradients), again)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((x_BTD, gradients)))
    assert (np.asarray(x_BTD)[PADDED] == 0).all()
    assert (np.asarray(x_BTD)[~PADDED] != 0).all()


def test_a_row_does_not_depend_on_its_batch(case):
    _, variables, (batch, _), run = case
    x_BTD, _ = run(variables, batch, LENGTHS)
    alone = [run(variables, batch[b : b + 1], LENGTHS[b : b + 1])[0][0] for b in range(B)]
    np.testing.assert_allclose(x_BTD, alone, rtol=1e-6, atol=1e-6)


def test_full_rows_need_no_lengths(case):
    _, variables, (batch, _), run = case
    full = np.full((1,), T)
    jax.tree.map(np.testing.assert_array_equal, run(variables, batch[:1], full), run(variables, batch[:1], None))


def test_dtype_follows_the_parameters(case):
    module, variables, (batch, _), _ = case
    variables = jax.tree.map(lambda a: a.astype(jnp.bfloat16), variables)
    batch = batch if batch.dtype == np.int64 else batch.astype(jnp.bfloat16)
    assert jax.eval_shape(lambda v: module.apply(v, batch, LENGTHS, train=False), variables).dtype == jnp.bfloat16


def test_embedding_counts_valid_ids_only():
    module = TokenInputs(VOCAB, FEATURES)
    ids, lengths = np.array([[3, 3, 5], [2, 7, 0]]), np.array([2, 1])
    variables = module.init(jax.random.key(0), ids, lengths, train=False)
    gradient = jax.grad(lambda v: module.apply(v, ids, lengths, train=False).sum())(variables)
    counts = np.zeros(VOCAB)
    counts[[3, 2]] = 2, 1
    (path, table), *rest = jax.tree_util.tree_leaves_with_path(gradient)
    assert not rest and "embedding" in jax.tree_util.keystr(path)
    np.testing.assert_array_equal(table, np.repeat(counts[:, None], FEATURES, axis=1))


def test_how_well_vectors_fit_each_id_is_read_off_the_same_table():
    module = TokenInputs(VOCAB, FEATURES)
    variables = module.init(jax.random.key(0), np.zeros((1, 1), int), train=False)
    y = np.random.default_rng(0).normal(size=(B, T, FEATURES)).astype(np.float32)
    E = variables["params"]["E"]["embedding"]
    np.testing.assert_allclose(module.apply(variables, y, method="attend"), y @ E.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(E.var(), 1 / FEATURES, rtol=0.3)  # so that scores start with the variance of y


def test_the_table_starts_as_asked():
    module = TokenInputs(VOCAB, FEATURES, embedding_init=jax.nn.initializers.constant(3.0))
    x_BTD, _ = module.init_with_output(jax.random.key(0), np.zeros((B, T), int), train=False)
    np.testing.assert_array_equal(x_BTD, np.full((B, T, FEATURES), 3.0))


def test_linear_inputs_equal_the_equation():
    module = LinearInputs(FEATURES)
    u = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
    variables = jax.tree.map(lambda a: a + 0.5, module.init(jax.random.key(0), u, train=False))
    W, b = variables["params"]["W"]["kernel"], variables["params"]["W"]["bias"]
    np.testing.assert_allclose(module.apply(variables, u, train=False), u @ W + b, rtol=1e-5, atol=1e-5)


def test_token_dropout_drops_entries_in_training_only():
    rate = 0.3
    module = TokenInputs(VOCAB, 97, dropout=rate)
    ids = np.full((B, T), 3)
    variables = module.init(jax.random.key(0), ids, train=False)
    x = np.asarray(module.apply(variables, ids, train=False))
    a, b = (
        np.asarray(module.apply(variables, ids, LENGTHS, train=True, rngs={"dropout": jax.random.key(k)}))
        for k in (1, 2)
    )
    kept = a != 0
    np.testing.assert_allclose(a[kept], x[kept] / (1 - rate), rtol=1e-5)
    assert abs(kept[~PADDED].mean() - (1 - rate)) < 0.05
    assert (kept != (b != 0)).any() and (kept[0, 0] != kept[0, 1]).any() and (kept[0, 0] != kept[1, 0]).any()
    assert not kept[PADDED].any()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TokenInputs(1, 3), "vocab_size 1;"),
        (lambda: TokenInputs(2.5, 3), "vocab_size 2.5;"),  # type: ignore[arg-type]
        (lambda: TokenInputs(None, 3), "model/inputs=linear"),  # type: ignore[arg-type]
        (lambda: TokenInputs(5, 0), "features 0;"),
        (lambda: TokenInputs(5, 3, dropout=-0.1), "dropout is -0.1,"),
        (lambda: TokenInputs(5, 3, dropout=1.0), "dropout is 1.0,"),
        (lambda: LinearInputs(0), "features 0;"),
        (lambda: TokenInputs(5, 3).init(jax.random.key(0), jnp.ones((2, 3, 5)), train=False), "model/inputs=linear"),
        (lambda: LinearInputs(3).init(jax.random.key(0), jnp.ones((2, 3), int), train=False), "model/inputs=token"),
    ],
)
def test_mistakes_are_told(make, told):
    with pytest.raises(UserError, match=told):
        make()
