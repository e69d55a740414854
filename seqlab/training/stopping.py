"""Being asked to stop: Ctrl-C and SIGTERM end a run at the next step boundary, and any other command at once."""

import os
import signal
import threading
import traceback
from types import FrameType, TracebackType


def hear_signals() -> None:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does, from now on."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # A shell's background job ignores it.
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # What is raised in a callback of the garbage collector, where JAX has one, is lost: come again.
    if any(caller.f_code.co_name == "_xla_gc_callback" for caller, _ in traceback.walk_stack(frame)):
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        return
    raise KeyboardInterrupt


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
            raise KeyboardInterrupt
        self.signal = number
