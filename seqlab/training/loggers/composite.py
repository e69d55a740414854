"""Several loggers as one, of which none can stop training by failing."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from seqlab.types import Event, Exhibit, Logger, Run, UserError

_log = logging.getLogger(__name__)


class Loggers:
    """Tell every logger, in the order given. One that fails is dropped with a warning and training goes on.

    `finish` reaches each of them once, also one that was dropped, since it may hold something open.

    Raises   what is a `UserError`: a mistake to be told at the door, or a record that can no longer be kept.
    """

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._all = list(loggers)
        self._alive = list(loggers)

    def start(self, run: Run) -> None:
        self._tell("start", lambda logger: logger.start(run))

    def advance(self, step: int) -> None:
        self._tell("advance", lambda logger: logger.advance(step))

    def log(self, event: Event) -> None:
        self._tell("log", lambda logger: logger.log(event))

    def show(self, exhibit: Exhibit) -> None:
        self._tell("show", lambda logger: logger.show(exhibit))

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        for logger in self._all:
            try:
                logger.finish(status, summary)
            except Exception as error:
                if logger in self._alive:
                    _warn(logger, "finish", error)
        self._all, self._alive = [], []

    def _tell(self, what: str, tell: Callable[[Logger], None]) -> None:
        for logger in list(self._alive):
            try:
                tell(logger)
            except UserError:
                raise
            except Exception as error:
                self._alive.remove(logger)
                _warn(logger, what, error)


def _warn(logger: Logger, what: str, error: Exception) -> None:
    reason = (str(error).strip() or "no message").splitlines()[0]
    name = type(logger).__name__
    _log.warning("%s failed in %s and is dropped; the run goes on (%s: %s)", name, what, type(error).__name__, reason)
