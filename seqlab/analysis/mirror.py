"""The record of a run told again to a logger, as it grows: a dashboard of runs that have told it nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

from seqlab.analysis.keep import exhibit_files
from seqlab.analysis.samples import read_samples
from seqlab.files import read_json
from seqlab.training.loggers.jsonl import FILE_NAME, read_events
from seqlab.training.run_directory import read_config
from seqlab.types import Exhibit, Logger, Run


class Mirror:
    """Tell a logger all that a run directory holds, and at each `update` what has come since.

    What a resumed run drops and makes again is the same to the bit, so that it need not be told again.

    Raises   UserError where the directory holds no run, or a record that is damaged.
    """

    def __init__(self, path: Path, name: str, into: Path, open_logger: Callable[[], Logger]) -> None:
        self._path, self._open_logger = path, open_logger
        environments = read_json(path / "environment.json") if (path / "environment.json").exists() else [{}]
        config = read_config(path)
        self._run = Run(into, name, "", (), "", config, 0, 0, None, environment=environments[-1])
        self._logger: Logger | None = None
        self._n_events = 0
        self._shown: set[tuple[str, int]] = set()
        self._seen: tuple[float, ...] = ()

    def update(self) -> None:
        """Tell what is new; a run that has ended, and only then, is told its end."""
        files = [self._path / name for name in (FILE_NAME, "samples.jsonl", "summary.json")]
        now = tuple(file.stat().st_mtime for file in files if file.exists())
        if now == self._seen:
            return
        events = read_events(files[0]) if files[0].exists() else []
        for event in events[self._n_events :]:
            self._open().log(event)
        self._n_events = len(events)
        for exhibit in read_exhibits(self._path):
            if (exhibit.name, exhibit.step) not in self._shown:
                self._open().show(exhibit)
                self._shown.add((exhibit.name, exhibit.step))
        if files[2].exists():
            summary = read_json(files[2])
            self._open().finish(summary["status"], summary)
            self._logger = None
        self._seen = now

    def close(self) -> None:
        """Let go of the logger of a run that has not ended."""
        if self._logger is not None:
            self._logger.finish("running", {})
            self._logger = None

    def _open(self) -> Logger:
        if self._logger is None:
            self._logger = self._open_logger()
            self._logger.start(self._run)
        return self._logger


def read_exhibits(path: Path) -> Iterator[Exhibit]:
    """What the analyses of a run have found while it was trained, and its samples, read from its directory."""
    for place in sorted(path.glob("analyses/*/step_*")):
        if (place / "numbers.json").exists():
            record = read_json(place / "numbers.json")
            followed = {name: [float(value) for value in values] for name, values in record["followed"].items()}
            yield exhibit_files(record["analysis"], record["step"], place, followed)
    samples = path / "samples.jsonl"
    if samples.exists():
        yield read_samples(samples)
