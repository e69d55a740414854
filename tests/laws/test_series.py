"""Laws of series: their units, and what no series is."""

import warnings
from typing import Any

import numpy as np
import pytest
from small_data import Given

from seqlab.tasks.series import Series
from seqlab.tasks.series_classification import SeriesClassification
from seqlab.types import UserError

RNG = np.random.default_rng(0)
ROWS = [{"values": RNG.normal(size=(7, 2)), "targets": RNG.normal(size=(7, 1)), "label": i % 2} for i in range(5)]


def changed(**fields):
    """The records, the second of them with other fields."""
    return [ROWS[0], {**ROWS[1], **fields}, *ROWS[2:]]


def test_neither_a_constant_nor_a_factor_changes_what_is_read():
    """Not even where a float has no room for both: a time in seconds since 1970 differs by 128 at least."""
    moved = [{**row, "values": 1.7e9 + 10 * row["values"], "targets": 1e6 - row["targets"]} for row in ROWS]
    plain, other = Series(Given((ROWS,) * 3)).examples(), Series(Given((moved,) * 3)).examples()
    np.testing.assert_allclose(other.inputs, plain.inputs, atol=1e-5)
    np.testing.assert_allclose(other.targets, -np.asarray(plain.targets), atol=1e-5)
    told = SeriesClassification(Given((moved,) * 3)).examples()
    np.testing.assert_allclose(told.inputs, SeriesClassification(Given((ROWS,) * 3)).examples().inputs, atol=1e-5)


def test_units_are_those_of_the_training_split():
    inputs_BTD = np.asarray(Series(Given((ROWS,) * 3)).examples().inputs)
    np.testing.assert_allclose(inputs_BTD.mean((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(inputs_BTD.std((0, 1)), 1, atol=1e-6)


def test_a_row_is_as_long_as_its_length_says_and_what_lies_behind_is_nothing():
    garbage = np.where(np.arange(7)[:, None] < 3, ROWS[1]["values"], np.nan)
    batch: Any = Series(Given((changed(values=garbage, length=np.float32(3)),) * 3)).examples()
    assert batch.lengths.tolist() == [7, 3, 7, 7, 7]
    assert not batch.inputs[1, 3:].any() and not batch.weights[1, 3:].any()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"values": np.zeros(7)}, r"has values of shape \(7,\); expected \(steps, components\)\.$"),
        ({"values": np.zeros((7, 0))}, r"has values of shape \(7, 0\); expected \(steps, components\)\.$"),
        ({"values": np.zeros((7, 2), complex)}, r"has values of type complex128; expected real numbers\.$"),
        ({"values": np.full((7, 2), "1")}, r"has values of type <U1; expected real numbers\.$"),
        (
            {"values": np.zeros((7, 2), "datetime64[s]")},
            r"has values of type datetime64\[s\]; expected real numbers\.$",
        ),
        ({"values": np.full((7, 2), np.nan)}, r"has a number in values that is not finite\.$"),
        ({"targets": np.full((7, 1), -np.inf)}, r"has a number in targets that is not finite\.$"),
        ({"values": np.zeros((6, 2))}, r"has 6 values, 7 targets and length 6; expected them to agree\.$"),
        ({"length": 8}, r"has 7 values, 7 targets and length 8; expected them to agree\.$"),
        ({"length": -1}, r"has 7 values, 7 targets and length -1; expected them to agree\.$"),
        ({"length": 3.5}, r"has the length 3\.5, float64; expected a whole number\.$"),
        ({"length": np.nan}, r"has the length nan, float64; expected a whole number\.$"),
        ({"length": "5"}, r"has the length 5, <U1; expected a whole number\.$"),
        ({"length": np.array([3, 3])}, r"has the length \[3 3\], int64; expected a whole number\.$"),
    ],
)
def test_what_is_no_series_is_refused_with_its_place_and_nothing_else_is_said(fields, told):
    with warnings.catch_warnings(), pytest.raises(UserError, match=f"^Record 1 of train {told}"):
        warnings.simplefilter("error")
        Series(Given((changed(**fields),) * 3))
