"""The schedules of conf/schedule: their tables by hand, and what holds for each of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.utils import instantiate

from seqlab.overrides import groups
from seqlab.training import schedule
from seqlab.types import UserError

STEPS, WARMUP = 97, 13


def table(factor, n_steps):
    return np.asarray(jax.jit(factor)(jnp.arange(n_steps)))


@pytest.fixture
def factor_of(compose):
    """The schedule that the command line with these overrides would build."""

    def build(name, *overrides):
        return instantiate(compose(f"schedule={name}", f"trainer.steps={STEPS}", *overrides).schedule)

    return build


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (schedule.constant(), [1, 1, 1, 1]),
        (schedule.constant(warmup_steps=3), [1 / 3, 2 / 3, 1, 1, 1]),
        (schedule.cosine(steps=4), [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0, 0]),
        (schedule.cosine(steps=6, warmup_steps=2, final=0.2), [0.5, 1, 1, 0.6 + 0.2 * 2**0.5, 0.6, 0.6 - 0.2 * 2**0.5]),
        (schedule.linear(steps=5), [1, 0.8, 0.6, 0.4, 0.2, 0, 0]),
        (schedule.linear(steps=6, warmup_steps=2, final=0.2), [0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (schedule.inverse_sqrt(warmup_steps=4), [0.25, 0.5, 0.75, 1, (4 / 5) ** 0.5, (4 / 6) ** 0.5]),
        (schedule.wsd(steps=10, warmup_steps=2), [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0, 0]),
        (schedule.wsd(steps=4, decay_fraction=1.0, final=0.5), [1, 0.875, 0.75, 0.625, 0.5, 0.5]),
        (schedule.wsd(steps=5, warmup_steps=1, decay_fraction=0.0), [1, 1, 1, 1, 1, 1]),
    ],
)
def test_table_by_hand(factor, expected):
    np.testing.assert_allclose(table(factor, len(expected)), expected, atol=1e-6)


@pytest.mark.parametrize("name", groups()["schedule"])
class TestEverySchedule:
    def test_factor_stays_within_0_and_1_also_beyond_the_end(self, factor_of, name):
        for warmup_steps in (1, WARMUP):
            factors = table(factor_of(name, f"schedule.warmup_steps={warmup_steps}"), 3 * STEPS)
            assert factors.dtype == np.float32
            assert factors.min() >= 0.0 and factors.max() <= 1.0
            assert factors[0] > 0.0, "the first update would do nothing"

    def test_warmup_is_a_line_that_ends_at_1(self, factor_of, name):
        factors = table(factor_of(name, f"schedule.warmup_steps={WARMUP}"), WARMUP)
        np.testing.assert_allclose(factors, (np.arange(WARMUP) + 1) / WARMUP, rtol=1e-6)

    def test_never_rises_after_the_warmup(self, factor_of, name):
        factors = table(factor_of(name, f"schedule.warmup_steps={WARMUP}"), 2 * STEPS)
        assert np.all(np.diff(factors[WARMUP - 1 :]) <= 1e-7)

    def test_negative_warmup_is_refused(self, factor_of, name):
        with pytest.raises(Exception, match="warmup_steps=-1"):
            factor_of(name, "schedule.warmup_steps=-1")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: schedule.cosine(steps=7, warmup_steps=7), "warmup_steps=7 should be below steps=7"),
        (lambda: schedule.linear(steps=7, warmup_steps=11), "warmup_steps=11 should be below steps=7"),
        (lambda: schedule.linear(steps=0), "steps=0"),
        (lambda: schedule.cosine(steps=7, final=1.5), "final=1.5"),
        (lambda: schedule.inverse_sqrt(warmup_steps=0), "warmup_steps=0"),
        (lambda: schedule.wsd(steps=10, warmup_steps=6, decay_fraction=0.5), "warmup_steps=6 and a decay of 5 steps"),
        (lambda: schedule.wsd(steps=10, decay_fraction=-0.1), "decay_fraction=-0.1"),
    ],
)
def test_bad_value_is_refused(mistake, told):
    with pytest.raises(UserError, match=told):
        mistake()
