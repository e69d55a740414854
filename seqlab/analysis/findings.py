"""What every analysis hands out, and how its curves over seeds are drawn."""

import difflib
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import flax.linen as nn
import jax
import numpy as np

from seqlab.analysis.figures import COLOURS
from seqlab.evaluation.interval import interval
from seqlab.types import Batch, Params, Task, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# matplotlib is imported where something is drawn: it is a fifth of what a command line has to load.


class Findings(NamedTuple):
    """Numbers by name, nested as they like, of arrays with the replicas first where they differ between replicas;
    figures, and pages of HTML that need nothing but themselves, by file name. `followed` are numbers worth a curve over
    training, one a replica."""

    numbers: dict[str, Any]
    figures: "dict[str, Figure]"
    pages: Mapping[str, str] = {}
    followed: Mapping[str, np.ndarray] = {}


class Analysis(Protocol):
    """What looks at a model: a frozen dataclass, named by a YAML of conf/analysis.

    `params_R` has a leading replica axis, also for one replica; the batch is one of the task's evaluation sets, of
    which an analysis takes as many rows as it wants.

    Raises   UserError for a model or a task that it does not fit.
    """

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings: ...


def first_rows(batch: Batch, n: int) -> Batch:
    """The first rows of a batch."""
    return jax.tree.map(lambda leaf: leaf[:n], batch)


def replicas(params_R: Params) -> list[Params]:
    """The parameters of each replica."""
    n = len(jax.tree.leaves(params_R)[0])
    return [jax.tree.map(lambda leaf, r=r: leaf[r], params_R) for r in range(n)]


def require_lengths(lengths: Any) -> None:
    """Refuse what is no list of lengths.

    Raises   UserError.
    """
    listed = list(lengths) if isinstance(lengths, Sequence) and not isinstance(lengths, str) else []
    counts = all(isinstance(length, int) and not isinstance(length, bool) and length >= 1 for length in listed)
    require(bool(listed) and counts, f"lengths is {lengths}: expected a list of whole numbers from 1, as in [16, 32]")


def pick(kind: str, name: str, among: Mapping[str, Any]) -> Any:
    """The entry of that name.

    Raises   UserError with the nearest name.
    """
    near = difflib.get_close_matches(name, among, n=1, cutoff=0.0)
    require(name in among, f"{kind} is {name!r}: expected one of {', '.join(among)} (nearest: {near[0]})")
    return among[name]


def draw_band(axis: "Axes", x_T: np.ndarray, values_RT: np.ndarray, label: str, colour: str, style: str = "-") -> None:
    """Draw positive values on a logarithmic axis: the geometric mean over replicas and its 95 % t-interval.

    Where a value is 0 or unknown in some replica, nothing is drawn.
    """
    positive_T = (values_RT > 0).all(0) & np.isfinite(values_RT).all(0)
    log_RT = np.log10(np.where(positive_T, values_RT, 1))
    of_T = [interval(values_R) for values_R in log_RT.T]
    mean_T = np.where(positive_T, [each.mean for each in of_T], np.nan)
    axis.plot(x_T, 10**mean_T, style, color=colour, linewidth=1.6, label=label)
    # A point without neighbours is no line.
    alone_T = positive_T & ~np.append(positive_T[1:], False) & ~np.append(False, positive_T[:-1])
    axis.plot(x_T[alone_T], 10 ** mean_T[alone_T], "o", color=colour, markersize=4)
    if len(values_RT) > 1:
        # An interval of two seeds can be hundreds of orders wide.
        half_T = np.minimum([each.half_width or 0.0 for each in of_T], 300)
        low_T, high_T = (np.clip(mean_T + sign * half_T, -300, 300) for sign in (-1, 1))
        axis.fill_between(x_T, 10**low_T, 10**high_T, color=colour, alpha=0.18, linewidth=0)


def dress(axis: "Axes", title: str, x: str, y: str) -> None:
    """Give an axis its words and the house's look."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)


def caption(figure: "Figure", text: str) -> None:
    """Say below a figure how it is to be read."""
    figure.supxlabel(fold(figure, text, 8), fontsize=8, x=0.005, ha="left", color="0.35")


def fold(figure: "Figure", text: str, size: float) -> str:
    """Break the lines of a text so that they end where the figure does, for letters of that many points."""
    # A letter is about half as wide as it is high.
    width = max(20, int(figure.get_figwidth() * 72 / (0.52 * size)))
    return "\n".join("\n".join(textwrap.wrap(line, width)) for line in text.splitlines())


def tell_seeds(n: int) -> str:
    """What a curve of `draw_band` shows of n replicas."""
    return f"geometric mean of {n} seeds, band: its 95 % t-interval" if n > 1 else "one seed"


def colour(n: int) -> str:
    """The colour of the n-th line."""
    return COLOURS[n % len(COLOURS)]
