"""Being asked to stop: SIGTERM and Ctrl-C end a run at the next step boundary."""

import signal
import threading
from types import FrameType, TracebackType


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
