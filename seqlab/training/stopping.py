"""Being asked to stop: Ctrl-C and SIGTERM end a run at the next step boundary, and any other command at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType

_tell = sys.unraisablehook


def hear_signals() -> None:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does, from now on, wherever it comes."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # A shell's background job ignores it.
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _come_again


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _come_again(lost: "sys.UnraisableHookArgs") -> None:
    # What is raised while the garbage collector works, where JAX has a callback, reaches nobody.
    if isinstance(lost.exc_value, KeyboardInterrupt):
        number = next(iter(lost.exc_value.args), signal.SIGINT)
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    else:
        _tell(lost)


class StopRequest:
    """A context in which SIGINT and SIGTERM set `signal`, their number; a second Ctrl-C interrupts at once.

    Outside the main thread, where Python forbids signal handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt(number)
        self.signal = number
