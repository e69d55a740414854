"""A warning where a step compiles something, with the shapes that made it."""

import contextlib
import logging
import re
from collections.abc import Iterator

import jax

_log = logging.getLogger(__name__)
# JAX tells there of each program that it compiles, and here of how long that took.
_TELLS, _TIMES = "jax._src.interpreters.pxla", "jax._src.dispatch"
_COMPILING = re.compile(
    r"Compiling (?:jit\()?(.+?)\)? with global shapes and types (.*?)(?: Argument mapping|$)", re.DOTALL
)


class _Warn(logging.Handler):
    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def emit(self, record: logging.LogRecord) -> None:
        told = _COMPILING.match(record.getMessage())
        if told is not None:
            name, shapes = told.groups()
            shapes = ", ".join(re.findall(r"\w+\[[^\]]*\]", shapes)) or "no arrays"
            _log.warning("step %d compiled again: %s of %s; this costs seconds each time", self._step, name, shapes)


@contextlib.contextmanager
def tell_compilations(step: int) -> Iterator[None]:
    """Warn of each program that is compiled inside, naming it and the shapes of its arguments.

    What training calls has been compiled ahead, so that nothing should be.
    """
    handler, loggers = _Warn(step), [logging.getLogger(name) for name in (_TELLS, _TIMES)]
    before = [logger.propagate for logger in loggers]
    handlers = [handler, logging.NullHandler()]
    for logger, own in zip(loggers, handlers, strict=True):
        logger.addHandler(own)
    try:
        for logger in loggers:
            logger.propagate = False
        with jax.log_compiles():
            yield
    finally:
        for logger, own, propagate in zip(loggers, handlers, before, strict=True):
            logger.removeHandler(own)
            logger.propagate = propagate
