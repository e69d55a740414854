"""An event, and what can be looked at, as the named numbers that dashboards plot."""

from collections.abc import Mapping

from seqlab.evaluation.interval import interval
from seqlab.types import Event, Exhibit


def name_scalars(told: Event | Exhibit) -> dict[str, float]:
    """Name the mean over replicas "split/metric", each replica "split/metric/replica_r", each rate "rates/name".

    Of an exhibit, its name is in the place of the split.
    """
    if isinstance(told, Exhibit):
        return _name(told.name, told.values)
    return {f"rates/{name}": value for name, value in told.rates.items()} | _name(told.split, told.values)


def _name(whose: str, values_of: Mapping[str, list[float]]) -> dict[str, float]:
    scalars = {}
    for name, values in values_of.items():
        scalars[f"{whose}/{name}"] = interval(values).mean
        if len(values) > 1:
            scalars |= {f"{whose}/{name}/replica_{r}": value for r, value in enumerate(values)}
    return scalars
