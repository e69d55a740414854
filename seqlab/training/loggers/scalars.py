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


def flatten(node: object, prefix: str = "") -> dict[str, object]:
    """Name each value of a nested config by its dotted key."""
    if not isinstance(node, dict):
        return {prefix: node}
    flat: dict[str, object] = {}
    for key, value in node.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat
