"""A number from replicas: its mean and how far that can be trusted."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit


@dataclasses.dataclass(frozen=True)
class Interval:
    """The mean of one number a replica, half the width of its 95 % interval (None: unknown), and the numbers."""

    mean: float
    half_width: float | None
    values: tuple[float, ...]

    def format(self) -> str:
        """Write "0.987 ± 0.012", the mean alone without a half width, or how many values are not finite."""
        n_bad = sum(not math.isfinite(value) for value in self.values)
        if n_bad:
            return f"not finite in {n_bad} of {len(self.values)}"
        scale = abs(self.mean) if self.half_width is None else self.half_width
        # Three decimals, and more where two significant digits need them.
        if max(abs(self.mean), scale) >= 1e6:
            return f"{self.mean:.3g}" if self.half_width is None else f"{self.mean:.3g} ± {self.half_width:.2g}"
        decimals = 3 if scale == 0 else min(max(3, 1 - math.floor(math.log10(scale))), 8)
        mean = f"{self.mean:.{decimals}f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.{decimals}f}"


def interval(values: Sequence[float]) -> Interval:
    """Give the 95 % Student-t interval of the mean over replicas.

        x̄ ± t_{0.975, n−1} · s / √n,   s² = Σ (x − x̄)² / (n − 1)

    One value has no half width. A value that is not finite is not averaged away: the mean is then NaN, without a half
    width, and `format` says how many there are.

    Source   Student 1908.
    """
    x_R = np.asarray(values, np.float64)
    n = len(x_R)
    given = tuple(x_R.tolist())
    if not np.isfinite(x_R).all():
        return Interval(math.nan, None, given)
    mean = float(x_R.mean())
    if n == 1:
        return Interval(mean, None, given)
    return Interval(mean, float(stdtrit(n - 1, 0.975) * x_R.std(ddof=1) / math.sqrt(n)), given)
