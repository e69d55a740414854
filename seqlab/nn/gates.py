"""Gates by name: an equation says what its values are called, and who looks is handed them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from seqlab.types import Array


class Seen(NamedTuple):
    """What the steps of a cell have named, as their equation sees it: a_FB.

    gates lie between 0 and 1; candidates are what a gate lets into the state.
    """

    gates: dict[str, Array]
    candidates: dict[str, Array]


_SEEN: ContextVar[Seen | None] = ContextVar("_SEEN", default=None)


def gate(name: str, a: Array) -> Array:
    """Give back what is given, the value of a gate."""
    if (seen := _SEEN.get()) is not None:
        seen.gates[name] = a
    return a


def candidate(name: str, a: Array) -> Array:
    """Give back what is given, the value of a candidate."""
    if (seen := _SEEN.get()) is not None:
        seen.candidates[name] = a
    return a


@contextmanager
def watch_gates() -> Iterator[Seen]:
    """Collect what a step names while it is traced; hand it out of the same trace."""
    seen = Seen({}, {})
    token = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(token)
