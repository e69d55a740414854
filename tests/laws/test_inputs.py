"""Laws of every YAML in conf/model/inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kinds import CONF, KINDS, LENGTHS, PADDED, VOCAB, B, D, T, build_node, draw, kind_of
from sparing import sparing

from seqlab.nn.inputs import LinearInputs, TokenInputs
from seqlab.types import UserError

FEATURES = 13
INPUTS = sorted(path.stem for path in CONF.glob("model/inputs/*.yaml"))


class Case(NamedTuple):
    """An input module, what it reads, its parameters, the lengths, and a jitted map to (x_BTD, gradients)."""

    module: Any
    kind: str
    variables: Any
    lengths: np.ndarray | None
    run: Callable[..., Any]


@pytest.fixture(scope="module", params=sparing(INPUTS, "pretrained".__eq__))
def case(request, make_run):
    run_dir = [f"model.inputs.run={make_run()}"] if request.param == "pretrained" else []
    features = f"model.inputs.features={FEATURES}"
    module = build_node(f"model/inputs/{request.param}", "model.inputs", features, *run_dir)
    kind = kind_of(module)
    lengths = None if kind == "images" else LENGTHS
    variables = jax.jit(lambda x: module.init(jax.random.key(0), x, train=False))(draw(kind))
    variables = jax.tree.map(lambda a: a + 0.05, variables)  # biases other than zero

    @jax.jit
    def run(variables, x, lengths):
        # The cotangent of a padded step is not zero, as a careless head's would be.
        x_BTD, pull = jax.vjp(lambda variables: module.apply(variables, x, lengths, train=False), variables)
        return x_BTD, pull(jnp.ones_like(x_BTD))[0]

    return Case(module, kind, variables, lengths, run)


def test_padding_changes_nothing_and_gives_zeros(case):
    x_BTD, gradients = case.run(case.variables, draw(case.kind), case.lengths)
    for garbage in (10**6, -1, VOCAB):
        again = case.run(case.variables, draw(case.kind, garbage), case.lengths)
        jax.tree.map(np.testing.assert_array_equal, (x_BTD, gradients), again)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((x_BTD, gradients)))
    says = np.asarray(x_BTD != 0).any(-1)
    assert x_BTD.shape[-1] == FEATURES and (says.all() if case.lengths is None else (says == ~PADDED).all())


def test_every_parameter_that_is_learned_is_used(case):
    _, gradients = case.run(case.variables, draw(case.kind), case.lengths)
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.any(gradient) != ("frozen" in jax.tree_util.keystr(path)), f"{path} is not used"


def test_a_row_does_not_depend_on_its_batch(case):
    x = draw(case.kind)
    x_BTD, _ = case.run(case.variables, x, case.lengths)
    b = 1
    copies, lengths = jax.tree.map(lambda a: np.repeat(a[b : b + 1], B, 0), (x, case.lengths))
    alone, _ = case.run(case.variables, copies, lengths)
    np.testing.assert_allclose(alone, np.repeat(x_BTD[b : b + 1], B, 0), rtol=1e-5, atol=1e-6)


def test_full_rows_need_no_lengths(case):
    """And images never do."""
    x = draw(case.kind)[:1]
    if case.kind == "images":
        with pytest.raises(UserError, match="lengths"):
            case.run(case.variables, x, np.full((1,), T))
        return
    full = case.run(case.variables, x, np.full((1,), T))
    jax.tree.map(np.testing.assert_array_equal, full, case.run(case.variables, x, None))


def test_dtype_follows_the_parameters(case):
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), case.variables)
    x = draw(case.kind)
    x = x if case.kind == "ids" else x.astype(jnp.bfloat16)
    assert jax.eval_shape(lambda v: case.module.apply(v, x, case.lengths, train=False), half).dtype == jnp.bfloat16


def test_training_gives_the_same_shape(case):
    train, evaluation = (
        jax.eval_shape(
            lambda v, train=train: case.module.apply(
                v, draw(case.kind), case.lengths, train=train, rngs={"dropout": jax.random.key(0)}
            ),
            case.variables,
        )
        for train in (True, False)
    )
    assert train == evaluation


def test_another_kind_is_refused_with_the_choice_that_reads_it(case):
    choices = {"ids": "token", "vectors": "linear", "images": "lenet, grid or patches", "video": "frames"}
    assert choices.keys() == {*KINDS}
    for kind in choices.keys() - {case.kind}:
        with pytest.raises(UserError, match=f"model/inputs={choices[kind]} reads {kind}"):
            case.module.init(jax.random.key(0), draw(kind), train=False)


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
        (lambda: TokenInputs(5, 3).init(jax.random.key(0), jnp.ones((2, 3)), train=False), "expected integer ids"),
    ],
)
def test_mistakes_are_told(make, told):
    with pytest.raises(UserError, match=told):
        make()
