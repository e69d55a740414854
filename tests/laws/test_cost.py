"""Laws of what a model costs: counts by hand, by formula and in the program, over every YAML that makes an encoder."""

import logging
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing
from test_analysis import CASES, ROWS, SMALL, SPARED, TASKS, T, looked_at  # noqa: F401 (a fixture)

from seqlab.analysis.cost import Cost, count_parameters, exponent, make_programs
from seqlab.analysis.findings import first_rows
from seqlab.analysis.flops import Operations, compile_program, count_operations, xla_cost
from seqlab.analysis.flops_formula import flops_by_formula, gradient_by_formula
from seqlab.analysis.lengths import resize
from seqlab.analysis.stepping import state_bytes
from seqlab.build import build
from seqlab.models.classifier import Classifier
from seqlab.models.tagger import Tagger
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.inputs import TokenInputs
from seqlab.nn.pooling import LastPool
from seqlab.nn.recurrent import Recurrent, Stack
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.tasks.copy_first import CopyFirst
from seqlab.types import Batch, UserError, model_arguments

B = 2
COSTLY = "model=encoder_decoder", "mixer=attention"
COMPILED = *COSTLY, "layer=bidirectional", "encoder=identity"
# What the formula knows; a newcomer may have none.
NO_FORMULA = ("cell=flax_", "decoder=hard")


@pytest.mark.parametrize("name", sparing(CASES, [*SPARED, *COSTLY].__contains__))
def test_the_formula_is_what_the_program_does(looked_at, name):  # noqa: F811
    model, params_R, task, batch = looked_at(CASES[name])
    params = jax.tree.map(lambda leaf: leaf[0], params_R)
    counted = {key: count_operations(p.trace(params, batch).jaxpr) for key, p in make_programs(model, task).items()}
    parts = flops_by_formula(model, params, model_arguments(model, batch))
    assert counted["forward"].products > 0 and all(found.elementwise > 0 for found in counted.values())
    assert (None in parts.values()) == name.startswith(NO_FORMULA)
    if None not in parts.values():
        assert sum(parts.values()) == counted["forward"].products
        assert sum(gradient_by_formula(parts).values()) == counted["gradient"].products
    sizes = count_parameters(params)
    assert sizes["total"] == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert sizes["total"] == sum(sizes["by_part"].values()) == sum(sizes["by_layer"].values())


@pytest.mark.parametrize("name", sparing(CASES, [*SPARED, *COMPILED].__contains__))
def test_every_model_is_measured(looked_at, name):  # noqa: F811
    numbers, figures, *_ = Cost(rows=ROWS, lengths=(5,), repeats=1)(*looked_at(CASES[name], n_replicas=2))
    for program in ("forward", "gradient"):
        of_batch, grown = numbers["operations"][program], numbers["growth"][program]
        assert all(np.isfinite(value) for value in of_batch.values())
        assert of_batch["xla_bytes"] >= of_batch["xla_bytes_bodies_once"] > 0
        for what in ("seconds", "memory_bytes", "products"):
            assert grown[what].shape == (1,) and (grown[what] >= 0).all()
        assert grown["seconds"] > 0 and grown["products"] > 0 and of_batch["products"] > 0
    assert "why" in numbers["state"] or numbers["state"]["used"].shape == (1,)
    assert len([axis for axis in figures["cost"].axes if axis.axison]) == 6


def small_lstm():
    inputs, encoder = TokenInputs(vocab_size=11, features=5), Stack(partial(Recurrent, LSTM), features=7)
    return Classifier(inputs=inputs, encoder=encoder, pool=LastPool(), n_outputs=3)


def small_transformer():
    inputs = TokenInputs(vocab_size=11, features=6)
    encoder = Transformer(partial(SelfAttention, n_heads=2, max_length=19), features=6, n_layers=3, d_ff=5)
    return Tagger(inputs=inputs, encoder=encoder, n_outputs=7)


def parameters_of(model):
    return jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((B, T), jnp.int32), train=False))["params"]


def products(model, params):
    ids_BT = jnp.zeros((B, T), jnp.int32)

    def loss(params):
        return (model.apply({"params": params}, ids_BT, train=False) ** 2).sum()

    return [count_operations(jax.make_jaxpr(f)(params)).products for f in (loss, jax.grad(loss))]


def test_a_small_lstm_costs_what_a_hand_counts():
    params = parameters_of(small_lstm())
    lstm = 4 * 7 * (5 + 7 + 1)
    assert count_parameters(params)["by_layer"] == {"inputs": 11 * 5, "layer 1": lstm, "head": 7 * 3 + 3}
    # Two operations for each of 4 · 7 · (5 + 7) weights at each step, and for the head's 7 · 3 once a row. The bias is
    # one more column of the kernel, which the gradient has no product for.
    by_hand, biases = 2 * 4 * 7 * (5 + 7) * B * T + 2 * 7 * 3 * B, 2 * 4 * 7 * B * T
    assert products(small_lstm(), params) == [by_hand + biases, 3 * by_hand + biases]


def test_a_small_transformer_costs_what_a_hand_counts():
    params = parameters_of(small_transformer())
    attention, feed_forward, norm = 4 * (6 * 6 + 6), (6 * 5 + 5) + (5 * 6 + 6), 6 + 6
    layers = {f"layer {n}": attention + feed_forward + 2 * norm for n in (1, 2, 3)}
    found = count_parameters(params)["by_layer"]
    assert found == {"inputs": 11 * 6, **layers, "last_norm": norm, "head": 6 * 7 + 7}
    # A step's queries, keys, values and outputs; its scores and its average; the feed-forward; the head.
    of_layer = 2 * 4 * 6 * 6 + 2 * 2 * T * 6 + 2 * 2 * 6 * 5
    by_hand = B * T * (3 * of_layer + 2 * 6 * 7)
    assert products(small_transformer(), params) == [by_hand, 3 * by_hand]


def test_loops_and_branches_are_counted_in_full():
    a, x = jnp.ones((3, 3)), jnp.ones((3, 5))
    count = lambda f, *arguments: count_operations(jax.make_jaxpr(f)(*arguments))  # noqa: E731
    dot = 2 * 3 * 3 * 5
    looped = lambda x: jax.lax.scan(lambda x, _: (jnp.tanh(a @ x), None), x, None, length=7)[0]  # noqa: E731
    assert count(looped, x) == Operations(7 * dot, 7 * 15, 0)
    assert count(jax.checkpoint(jax.jit(looped)), x) == Operations(7 * dot, 7 * 15, 0)
    branches = lambda p, x: jax.lax.cond(p, lambda x: a @ a @ x, lambda x: x, x)  # noqa: E731
    assert count(branches, True, x).products == 2 * 27 + dot
    assert count(lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: a @ x, x), x) == Operations(dot, 0, 1)
    image, kernel = jnp.ones((2, 7, 5, 3)), jnp.ones((3, 3, 3, 11))
    conv = partial(jax.lax.conv_general_dilated, window_strides=(1, 1), padding="VALID")
    found = count(partial(conv, dimension_numbers=("NHWC", "HWIO", "NHWC")), image, kernel)
    assert found == Operations(2 * 2 * 5 * 3 * 11 * 3 * 3 * 3, 0, 0)


def test_xla_counts_a_loop_once_and_its_turns_are_added():
    a = jnp.ones((31, 31))
    looped = jax.jit(lambda x: jax.lax.scan(lambda x, _: (a @ x, None), x, None, length=7)[0])
    program = compile_program(looped, jnp.ones((31, 31)))
    as_said, with_turns = xla_cost(program)
    products = count_operations(program.jaxpr).products
    assert as_said.flops < 1.5 * products / 7
    np.testing.assert_allclose(with_turns.flops, products, rtol=0.05)
    assert with_turns.bytes_accessed > 7 * 3 * a.nbytes


def test_a_recurrent_state_stays_and_a_cache_grows(looked_at):  # noqa: F811
    model = small_transformer()
    batch = Batch(inputs=jnp.zeros((B, T), jnp.int32), lengths=None, targets=None, weights=None)
    found = state_bytes(model, parameters_of(model), batch, [3, 19, 23])
    # Keys and values of 6 numbers in each of 3 layers, and where the row is, for each layer and for all.
    np.testing.assert_array_equal(found["used"], [3 * 2 * 6 * 4 * n + 4 * 4 for n in (3, 19, 19)])
    assert (found["held"] == found["used"][-1]).all()
    model = small_lstm()
    found = state_bytes(model, parameters_of(model), batch, [3, 19])
    np.testing.assert_array_equal(found["used"], [2 * 7 * 4] * 2)
    model, params_R, _, batch = looked_at(CASES["layer=bidirectional"])
    found = state_bytes(model, jax.tree.map(lambda leaf: leaf[0], params_R), batch, [3])
    assert found == {"why": "a bidirectional layer reads from both ends: it cannot take one step at a time"}


def test_rows_are_repeated_or_cut(looked_at):  # noqa: F811
    *_, task, batch = looked_at(CASES["model=tagger"])
    longer, shorter = resize(task, batch, 2 * T + 1), resize(task, batch, 3)
    np.testing.assert_array_equal(longer.inputs, np.concatenate([batch.inputs] * 3, 1)[:, : 2 * T + 1])
    assert shorter.inputs.shape == shorter.targets.shape == shorter.weights.shape == (ROWS, 3)
    task = CopyFirst(length=T)
    batch = task.sample(jax.random.key(0), ROWS)
    np.testing.assert_array_equal(resize(task, batch, 3).targets, batch.targets)


def test_an_exponent_is_that_of_the_tail():
    lengths = [2, 4, 8, 16]
    assert exponent(lengths, [9, *(5 * n**1.5 for n in lengths[1:])]) == pytest.approx(1.5)
    assert exponent([2], [3]) is None and exponent(lengths, [1, 2, 0, 4]) is None


def test_time_and_memory_are_measured_at_each_length(looked_at, caplog):  # noqa: F811
    """And each program is compiled once for each length, that of the set among them."""
    parts = looked_at(CASES["encoder=identity"])
    caplog.set_level(logging.DEBUG, "jax._src.interpreters.pxla")
    growth = Cost(rows=2, lengths=(T, 2 * T), repeats=2)(*parts).numbers["growth"]
    assert growth["lengths"].tolist() == [T, 2 * T] and "why" not in growth
    names = [record.getMessage().split(" with ")[0].removeprefix("Compiling jit") for record in caplog.records]
    for name, n in (("(forward)", 2), ("(gradient)", 2), ("(jaxpr_as_fun)", 0)):
        assert names.count(name) == n
    for program in ("forward", "gradient"):
        assert growth[program]["seconds"].shape == (2,) and growth[program]["seconds_range"].shape == (2, 2)
        low, high = growth[program]["seconds_range"].T
        assert (low <= growth[program]["seconds"]).all() and (growth[program]["seconds"] <= high).all()
        # What reads one vector a row multiplies no more for a longer one.
        assert growth[program]["exponents"]["products"] == pytest.approx(0)


@pytest.mark.slow
def test_lengths_end_where_the_model_does(looked_at):  # noqa: F811
    ends = "model/encoder=transformer", "model/positions=learned", "model.encoder.positions.max_length=7"
    parts = looked_at((*TASKS["classifier"], *SMALL, *ends, "model.encoder.n_layers=1"))
    growth = Cost(rows=2, lengths=(5, 11), repeats=1)(*parts).numbers["growth"]
    assert growth["lengths"].tolist() == [5] and "max_length is 7" in growth["why"]


@pytest.mark.slow
def test_a_picture_has_no_length_that_could_grow(compose):
    parts = build(compose("+debug=tiny", "task=image_classification", "model/encoder=identity"))
    batch = first_rows(parts.sets["test"], 2)
    params = jax.eval_shape(
        lambda: parts.model.init(jax.random.key(0), *model_arguments(parts.model, batch), train=False)
    )
    params_R = jax.tree.map(lambda a: np.ones((1, *a.shape), a.dtype), params["params"])
    numbers, figures, *_ = Cost(rows=2, lengths=(5,), repeats=1)(parts.model, params_R, parts.task, batch)
    assert numbers["growth"] == {"why": "a picture has no length that could grow"}
    assert numbers["operations"]["forward"]["products"] > 0 and "cost" in figures


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"rows": 0}, "rows is 0"), ({"repeats": 0}, "repeats is 0"), ({"lengths": (5, 3)}, r"lengths is \[5, 3\]")],
)
def test_mistakes_are_told(fields, told):
    with pytest.raises(UserError, match=told):
        Cost(**fields)
