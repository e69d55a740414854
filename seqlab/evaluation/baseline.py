"""What a model must beat: the baseline that a task names, measured as the model is."""

from typing import Any

import jax

from seqlab.evaluation.evaluate import evaluate_set, finalise
from seqlab.types import Batch, Params, Sums, Task


def measure_baseline(task: Task, sets: dict[str, Batch], batch_size: int) -> dict[str, Any] | None:
    """The baseline's name, and the metrics of each set for what it says; None of a task that names none.

    It says what the task's `guess` does, or, of a task that nobody solves exactly, what `solve` does.
    """
    if not hasattr(task, "baseline"):
        return None
    says = getattr(task, "guess", task.solve)

    def measure(_: Params, batch: Batch) -> Sums:
        return task.measure(says(batch), batch)

    measured = jax.jit(lambda batch: evaluate_set(measure, None, batch, batch_size))
    metrics = {
        name: {metric: float(value) for metric, value in finalise(jax.device_get(measured(batch))).items()}
        for name, batch in sets.items()
    }
    return {"name": task.baseline, "measured": metrics}
