"""The record of a run: `metrics.jsonl`, one event a line, which everything else reads."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TextIO

from seqlab.files import to_json, write_whole
from seqlab.types import Event, Exhibit, Run, UserError

FILE_NAME = "metrics.jsonl"


class JsonlLogger:
    """Append each event to `metrics.jsonl` as one line with the keys of `Event`.

    JSON has no NaN or infinity: they are the strings "nan", "inf" and "-inf". Floats are written so that they are
    read back to the last bit. A resumed run drops the lines from beyond its checkpoint and makes them again.

    Raises   UserError where the file cannot be written: without its record a run is lost, so training stops.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def start(self, run: Run) -> None:
        path = run.directory / FILE_NAME
        try:
            if path.exists():
                truncate_after(path, run.resumed_from if run.resumed_from is not None else -1)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from error

    def advance(self, step: int) -> None:
        pass

    def log(self, event: Event) -> None:
        assert self._file is not None, "log comes after start"
        try:
            self._file.write(to_json(dataclasses.asdict(event)) + "\n")
            self._file.flush()  # The kernel has the line before a checkpoint knows of its step.
        except OSError as error:
            raise UserError(f"{self._file.name} cannot be written: {error.strerror}") from error

    def show(self, exhibit: Exhibit) -> None:
        pass  # It is in files of its own.

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.close()


def read_events(path: Path) -> list[Event]:
    """Read the events of a `metrics.jsonl`; a last line that was cut off by a kill is left out.

    Raises   UserError for any other line that is not an event.
    """
    return [event for _, event in _read_lines(path)]


def truncate_after(path: Path, step: int) -> None:
    """Keep the lines up to `step`, to the byte, and drop those beyond; at no moment is the file half written."""
    write_whole(path, "".join(line for line, event in _read_lines(path) if event.step <= step))


def _read_lines(path: Path) -> list[tuple[str, Event]]:
    pairs = []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        lines = list(file)
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            continue
        try:
            pairs.append((line, _decode(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"Line {number} of {path} is not an event: {line.strip()[:80]!r}") from error
    return pairs


def _decode(line: str) -> Event:
    record = json.loads(line)
    record["values"] = {name: [float(value) for value in values] for name, values in record["values"].items()}
    record["rates"] = {name: float(value) for name, value in record["rates"].items()}
    return Event(**record)
