"""Accuracy against length: how a model does on rows shorter and longer than those that it was trained on."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seqlab.analysis.figures import draw_mean, draw_replicas, fit_to_curves, means_and_halves
from seqlab.analysis.findings import Findings, caption, colour, dress, first_rows, require_lengths
from seqlab.evaluation.evaluate import finalise
from seqlab.nn.checks import check_positive
from seqlab.training.step import make_measure
from seqlab.types import Batch, Params, Sums, Task, UserError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measured = dict[str, np.ndarray]
"""Each metric by name, _R."""

# Of the length that the task has.
TIMES = (0.25, 0.5, 1, 1.5, 2, 3, 4)
N_BINS = 6


@dataclasses.dataclass(frozen=True)
class LengthGeneralisation:
    """Every metric of the task, on rows of one length each, below and beyond those of training.

        lengths   of a task that makes its rows, as it makes those of the set: the sizes that `length_fields` of the
                  task are set to, all of them, so that every row is that long; None: from a quarter to four times
                  what the task has
                  of a task over examples: nothing can be made, so the set's own rows in up to 6 groups by length,
                  as equal in size as lengths allow; a group stands at its mean length
        rows      drawn for each length, or taken from the set

    A model that is taught by its targets is measured while it is taught. Lengths that a model has no place for
    (`max_length`) are left out, and `ends` says in its words why.

    Raises   UserError for a length below 1, a task whose rows are all of one length and cannot be made of another.
    """

    lengths: Sequence[int] | None = None
    rows: int = 512

    def __post_init__(self) -> None:
        check_positive("rows", self.rows)
        if self.lengths is not None:
            require_lengths(self.lengths)

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings:
        fields = getattr(task, "length_fields", ())
        if fields:
            trained: list[float] = [getattr(task, fields[0])]
            found, drawn, ends = self._made(model, params_R, task, fields, set_of(task, batch))
            of = f"{fields[0].replace('_', ' ')} of a row"
        else:
            found, trained, ends = self._grouped(model, params_R, task, batch), [], None
            of = "steps of a row, mean of a group"
            drawn = f"the first {min(self.rows, len(batch.inputs))} rows of the set, in groups by length"
        names = next(iter(found.values()))
        metrics = {name: np.stack([measured[name] for measured in found.values()], 1) for name in names}
        numbers: dict[str, Any] = {"length": list(found), "trained": trained, "ends": ends, "metrics": metrics}
        notes = [drawn]
        if getattr(model, "teacher_forced", False):
            notes.append("the decoder is told the target before each step (teacher forcing)")
        figure = draw(np.array(list(found)), metrics, trained, of, notes, ends)
        return Findings(numbers, {"length_generalisation": figure})

    def _made(
        self, model: nn.Module, params_R: Params, task: Any, fields: Sequence[str], split: str
    ) -> tuple[dict[float, Measured], str, str | None]:
        lengths = self.lengths or sorted({max(1, round(times * getattr(task, fields[0]))) for times in TIMES})
        found: dict[float, Measured] = {}
        counts: set[int] = set()
        ends = None
        for length in lengths:
            try:
                longer = dataclasses.replace(task, **dict.fromkeys(fields, length), n_eval=self.rows)
                rows = longer.evaluation_sets()[split]
                sums = make_measure_replicas(model, longer)(params_R, rows)
            except UserError as error:
                ends = f"not at {length}: {error}"
                continue
            counts.add(len(rows.inputs))
            found[length] = finalise(jax.device_get(sums))  # type: ignore[assignment]
        require(bool(found), ends or "lengths is empty: expected at least one")
        n_rows = " to ".join(str(n) for n in sorted({min(counts), max(counts)}))
        return found, f"{n_rows} rows of each length, made anew as those of the set were", ends

    def _grouped(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> dict[float, Measured]:
        batch = first_rows(batch, self.rows)
        lengths_B = None if batch.lengths is None else np.asarray(batch.lengths)
        require(self.lengths is None, f"lengths is {self.lengths}, but {type(task).__name__} has the rows that it has")
        require(
            lengths_B is not None and len(set(lengths_B)) > 1,
            f"{type(task).__name__} has rows of one length alone: there is nothing to compare",
        )
        assert lengths_B is not None
        edges = np.unique(np.quantile(lengths_B, np.linspace(0, 1, N_BINS + 1), method="nearest"))
        bins_B = np.searchsorted(edges[1:-1], lengths_B, side="left")
        found, measure = {}, make_measure_replicas(model, task)
        for group in sorted(set(bins_B)):
            own_B = bins_B == group
            weights = batch.weights * own_B.reshape(-1, *[1] * (batch.weights.ndim - 1))
            sums = measure(params_R, batch.replace(weights=weights))  # type: ignore[attr-defined]
            found[float(lengths_B[own_B].mean())] = finalise(jax.device_get(sums))
        return found  # type: ignore[return-value]


def set_of(task: Task, batch: Batch) -> str:
    """The name of the evaluation set that a batch is."""
    sets = task.evaluation_sets()
    same = [name for name, own in sets.items() if np.array_equal(np.asarray(own.inputs), np.asarray(batch.inputs))]
    return same[0] if same else next(reversed(sets))


def make_measure_replicas(model: nn.Module, task: Task) -> Callable[[Params, Batch], Sums]:
    """The function `(params_R, batch) -> sums`, of each replica one after the other."""
    measure = make_measure(model, task, jnp.float32)
    return jax.jit(lambda params_R, batch: jax.lax.map(lambda params: measure(params, batch)[0], params_R))


def draw(
    length_L: np.ndarray,
    metrics: dict[str, np.ndarray],
    trained: list[float],
    of: str,
    notes: list[str],
    ends: str | None,
) -> "Figure":
    """Draw each metric against the length, a line at that of training."""
    from matplotlib.figure import Figure

    n_columns = min(3, len(metrics))
    n_rows = -(-len(metrics) // n_columns)
    figure = Figure(figsize=(4.4 * n_columns, 3.4 * n_rows + 0.4), layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    is_cut = False
    for axis, (name, values_RL) in zip(axes, metrics.items(), strict=False):
        values_LR = np.where(np.isfinite(values_RL), values_RL, np.nan).T
        dress(axis, name.replace("_", " "), of, "")
        fit_to_curves(axis, name, [(length_L, values_LR)])
        for length in trained:
            axis.axvline(length, color="0.6", linewidth=1, linestyle=":")
        draw_replicas(axis, (length_L, values_LR), colour(0))
        draw_mean(axis, (length_L, values_LR), name, colour(0), "-")
        mean_L, half_L = means_and_halves(values_LR)
        is_cut |= bool((mean_L - half_L < axis.get_ylim()[0]).any() or (mean_L + half_L > axis.get_ylim()[1]).any())
    for axis in axes[len(metrics) :]:
        axis.set_axis_off()
    n = len(next(iter(metrics.values())))
    told = f"mean of {n} seeds, band: its 95 % t-interval, thin: each seed" if n > 1 else "one seed"
    cut = ["a band that leaves its panel is wider still"] if is_cut else []
    dotted = ["dotted: as the run's task has it"] if trained else []
    caption(figure, "; ".join([told, *cut, *notes, *dotted]) + (f"\n{ends}" if ends else ""))
    return figure
