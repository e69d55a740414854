"""An event as the named numbers that dashboards plot."""

from seqlab.evaluation.interval import interval
from seqlab.types import Event


def name_scalars(event: Event) -> dict[str, float]:
    """Name the mean over replicas "split/metric", each replica "split/metric/replica_r", each rate "rates/name"."""
    scalars = {f"rates/{name}": value for name, value in event.rates.items()}
    for name, values in event.values.items():
        scalars[f"{event.split}/{name}"] = interval(values).mean
        if len(values) > 1:
            scalars |= {f"{event.split}/{name}/replica_{r}": value for r, value in enumerate(values)}
    return scalars
