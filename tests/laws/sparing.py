"""Which cases of a law `make test` leaves to `make test-all`: some of those that are known, none that is new."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sparing(cases: Iterable[Any], left_out: Callable[[Any], bool]) -> list[Any]:
    """The cases, with the mark `slow` on those that are left out."""
    return [pytest.param(case, marks=pytest.mark.slow) if left_out(case) else case for case in cases]
