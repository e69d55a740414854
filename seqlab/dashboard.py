"""Look at runs in a browser, without an account or a network: `python -m seqlab.dashboard [DIR]`; Ctrl-C ends it.

DIR is a run, a multirun, or a folder of them; without it, `runs`. Whatever loggers a run has told, TensorBoard shows
what its directory holds: curves, the figures of its analyses, samples, its config, hyperparameters; and what comes
while it is trained.
"""

import argparse
import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seqlab.analysis.mirror import Mirror
from seqlab.analysis.report.runs import find_runs
from seqlab.training.loggers.tensorboard import TensorBoardLogger
from seqlab.types import UserError, require

RUNS = Path("runs")
EVERY_SECONDS = 5


class Mirrors:
    """The runs of a directory told to TensorBoard's event files in a folder, each under its own path."""

    def __init__(self, directory: Path, into: Path) -> None:
        self._directory, self._into = directory, into
        self._mirrors: dict[Path, Mirror | None] = {}

    def update(self) -> None:
        """Tell what is new, also of runs that are; one that cannot be read is told of once and left out."""
        for path in find_runs([self._directory]):
            try:
                if path not in self._mirrors:
                    near = path.relative_to(self._directory.resolve())
                    name = str(near) if near.parts else path.name
                    self._mirrors[path] = Mirror(path, name, self._into / name, TensorBoardLogger)
                mirror = self._mirrors[path]
                if mirror is not None:
                    mirror.update()
            except UserError as error:
                self._mirrors[path] = None
                print(f"{path} is left out: {error}", file=sys.stderr)

    def close(self) -> None:
        """Write out what is left."""
        for mirror in self._mirrors.values():
            if mirror is not None:
                mirror.close()


def show(directory: Path) -> None:
    """Serve the runs of a directory to this machine alone, until Ctrl-C.

    Raises   UserError for a directory without runs, and where TensorBoard is not installed or does not stay.
    """
    require(
        importlib.util.find_spec("tensorboard") is not None, "TensorBoard is not installed: pip install tensorboard"
    )
    require(
        directory != RUNS or directory.exists(),
        f"There are no {RUNS} here yet: train one, or say which directory holds some, python -m seqlab.dashboard DIR",
    )
    with tempfile.TemporaryDirectory() as into:
        mirrors = Mirrors(directory, Path(into))
        mirrors.update()
        # Without a port it takes 6006, or the next that is free, and says which.
        options = ("--logdir", into, "--host", "127.0.0.1", "--reload_interval", str(EVERY_SECONDS))
        # In a group of its own, it is ended by us and not by the terminal at the same time.
        board = subprocess.Popen([sys.executable, "-m", "tensorboard.main", *options], start_new_session=True)
        try:
            while board.poll() is None:
                time.sleep(EVERY_SECONDS)
                mirrors.update()
            require(board.returncode == 0, f"TensorBoard has ended by itself, with exit code {board.returncode}")
        finally:
            board.terminate()
            board.wait()
            mirrors.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m seqlab.dashboard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", default=RUNS, metavar="DIR", type=Path)
    # Ctrl-C too: a shell that starts it in the background has it ignored.
    for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda *_: sys.exit(0))
    try:
        show(parser.parse_args().directory)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
