"""Objectives against values worked out by hand; what has weight 0 counts for nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.tasks import objectives

# Two rows of three steps over two classes: softmax(ln 3, 0) = (3/4, 1/4).
L3 = np.log(3.0)
LOGITS_BTV = jnp.array([[[L3, 0], [0, L3], [L3, 0]], [[0, L3], [L3, 0], [L3, 0]]])
LABELS_BT = jnp.array([[0, 1, 1], [1, 0, 1]])
Y_BT = jnp.array([[1.0, 2.0, 3.0], [0.5, -1.0, 7.0]])
TARGETS_BT = jnp.array([[1.5, 2.0, 1.0], [0.0, 1.0, 6.98]])
ALL = jnp.ones((2, 3))
SOME = jnp.array([[1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
NONE = jnp.zeros((2, 3))

RIGHT, WRONG = np.log(4 / 3), np.log(4.0)
CLASSIFYING = {
    objectives.cross_entropy: {"all": (4 * RIGHT + 2 * WRONG, 6), "some": (3.5 * RIGHT + WRONG, 4.5)},
    objectives.accuracy: {"all": (4, 6), "some": (3.5, 4.5)},
    objectives.sequence_accuracy: {"all": (0, 2), "some": (1, 2)},
}


def within_half(y_BT, targets_BT, weights_BT):
    return objectives.within(y_BT, targets_BT, weights_BT, 0.4)


# Errors: −0.5, 0, 2 and 0.5, −2, 0.02.
REGRESSING = {
    objectives.squared_error: {"all": (8.5004, 6), "some": (0.25 + 0.125 + 0.0004, 4.5)},
    objectives.absolute_error: {"all": (5.02, 6), "some": (0.5 + 0.25 + 0.02, 4.5)},
    within_half: {"all": (2, 6), "some": (3, 4.5)},
}
CASES = [(f, (LOGITS_BTV, LABELS_BT), v) for f, v in CLASSIFYING.items()]
CASES += [(f, (Y_BT, TARGETS_BT), v) for f, v in REGRESSING.items()]
CASES = [(jax.jit(objective), data, values) for objective, data, values in CASES]
every_objective = pytest.mark.parametrize(
    ("objective", "data", "values"), CASES, ids=lambda x: getattr(x, "__name__", "")
)


@every_objective
def test_values_are_those_worked_out_by_hand(objective, data, values):
    np.testing.assert_allclose(objective(*data, ALL), values["all"], rtol=1e-6)
    np.testing.assert_allclose(objective(*data, SOME), values["some"], rtol=1e-6)
    np.testing.assert_array_equal(objective(*data, NONE), (0, 0))


@every_objective
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
def test_weight_zero_hides_any_garbage(objective, data, values, garbage):
    outputs, targets = data
    hidden = (SOME == 0).reshape(SOME.shape + (1,) * (outputs.ndim - 2))
    outputs = jnp.where(hidden, garbage, outputs)
    targets = jnp.where(SOME == 0, -99 if targets.dtype == jnp.int32 else garbage, targets)
    differentiate = jax.jit(jax.value_and_grad(objective, has_aux=True))
    (total, weight), gradient = differentiate(outputs, targets, SOME)
    np.testing.assert_allclose((total, weight), values["some"], rtol=1e-6)
    np.testing.assert_array_equal(jnp.where(hidden, gradient, 0), 0)
    assert np.isfinite(gradient).all()


@every_objective
def test_sums_are_float32_from_any_dtype(objective, data, values):
    outputs, targets = data
    sums = objective(outputs.astype(jnp.bfloat16), targets, SOME.astype(jnp.bfloat16))
    assert [s.dtype for s in sums] == [jnp.float32] * 2
    np.testing.assert_allclose(sums, values["some"], rtol=1e-2)


@pytest.mark.parametrize("objective", [objectives.cross_entropy, objectives.accuracy])
def test_one_target_a_row_is_one_step_without_its_axis(objective):
    objective = jax.jit(objective)
    stepwise = objective(LOGITS_BTV[:, :1], LABELS_BT[:, :1], ALL[:, :1])
    np.testing.assert_array_equal(objective(LOGITS_BTV[:, 0], LABELS_BT[:, 0], ALL[:, 0]), stepwise)


def test_a_counted_label_out_of_range_is_not_silent():
    total, _ = jax.jit(objectives.cross_entropy)(LOGITS_BTV, LABELS_BT.at[0, 0].set(2), ALL)
    assert np.isnan(total)


def test_a_row_without_weighted_steps_is_no_sequence():
    only_second = jnp.array([[0.0, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(jax.jit(objectives.sequence_accuracy)(LOGITS_BTV, LABELS_BT, only_second), (1, 1))
