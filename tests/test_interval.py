"""Intervals against values worked out by hand."""

import math

import pytest

from seqlab.evaluation.interval import interval


def test_three_values_by_hand():
    # mean 2, s = 1, t_{0.975, 2} = 4.302653 (Student's table), 4.302653 / √3 = 2.484138
    result = interval([1.0, 2.0, 3.0])
    assert result.mean == 2.0
    assert result.half_width == pytest.approx(2.484138, abs=1e-6)
    assert result.values == (1.0, 2.0, 3.0)


def test_the_normal_limit_is_approached_from_above():
    values = [0.0, 1.0] * 500
    expected = 1.959964 * 0.5 / math.sqrt(1000)
    assert expected < interval(values).half_width < 1.01 * expected


def test_one_value_has_no_half_width():
    result = interval([0.25])
    assert (result.mean, result.half_width) == (0.25, None)
    assert result.format() == "0.250"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_told_not_averaged_away(bad):
    result = interval([1.0, bad, 3.0])
    assert math.isnan(result.mean)
    assert result.half_width is None
    assert result.format() == "not finite in 1 of 3"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 1.0, 1.0], "1.000 ± 0.000"),
        ([0.982, 0.987, 0.992], "0.987 ± 0.012"),
        ([10.0, 20.0], "15.000 ± 63.531"),
        ([0.00002, 0.00003, 0.00004], "0.000030 ± 0.000025"),
        ([3.2e-5], "0.000032"),
        ([0.0], "0.000"),
        ([-0.5], "-0.500"),
    ],
)
def test_format(values, text):
    assert interval(values).format() == text
