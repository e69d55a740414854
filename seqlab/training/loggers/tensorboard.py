"""TensorBoard: scalars on the step axis, figures, tables as text, the config as text and as hyperparameters."""

import json
import math
import struct
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from seqlab.training.loggers.scalars import name_scalars
from seqlab.training.onlookers import WORDS, is_onlooker
from seqlab.types import Event, Exhibit, Run, Table

FLUSH_SECONDS = 5  # Who looks on while a run goes on sees it as soon.


class TensorBoardLogger:
    """Write event files to `tensorboard/` in the run's directory: `tensorboard --logdir RUNS` shows them.

    Each split's metric is a tag; with several replicas the tag holds their mean and each replica has its own. Values
    that are not finite are left out. A resumed run hides what lies beyond its checkpoint and writes it again. Pages
    have no place here: they lie in the run's directory.
    """

    def start(self, run: Run) -> None:
        # 1.4 s to import, and only who asks for TensorBoard should wait for it.
        import tensorboardX

        self._summary = tensorboardX.summary
        purge_step = None if run.resumed_from is None else run.resumed_from + 1
        place = run.directory / "tensorboard"
        # The name of a file holds the second alone; those of one second are read in the order of their numbers.
        number = len(list(place.glob("events.*")))
        self._writer = tensorboardX.SummaryWriter(
            str(place), purge_step=purge_step, flush_secs=FLUSH_SECONDS, filename_suffix=f".{number:04d}"
        )
        self._config = run.config
        for name, told in (("config", run.config), ("environment", run.environment)):
            self._writer.add_text(name, f"```json\n{json.dumps(told, indent=2, default=str)}\n```", 0)

    def advance(self, step: int) -> None:
        pass

    def log(self, event: Event) -> None:
        self._add_scalars(event, event.wall_time)

    def show(self, exhibit: Exhibit) -> None:
        self._add_scalars(exhibit)
        for name, path in exhibit.figures.items():
            self._writer.file_writer.add_summary(self._as_image(f"{exhibit.name}/{name}", path), exhibit.step)
        for name, table in exhibit.tables.items():
            self._writer.add_text(f"{exhibit.name}/{name}", write_markdown(table), exhibit.step)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        final, best = (_means(summary.get(when, {})) for when in ("final", "best"))
        best = {f"best/{name}": mean for name, mean in best.items() if math.isfinite(mean)}
        for tag, mean in best.items():
            # The table of hyperparameters shows what has a curve, here of one point.
            self._writer.add_scalar(tag, mean, summary["best_step"])
        # `SummaryWriter.add_hparams` opens a second event file, in the same place it corrupts the first.
        for part in self._summary.hparams(hyperparameters(self._config), final | best):
            self._writer.file_writer.add_summary(part)
        self._writer.close()

    def _add_scalars(self, told: Event | Exhibit, wall_time: float | None = None) -> None:
        for tag, value in name_scalars(told).items():
            if math.isfinite(value):
                self._writer.add_scalar(tag, value, told.step, wall_time)

    def _as_image(self, tag: str, path: Path) -> Any:
        # `SummaryWriter.add_image` takes pixels, and would encode them again.
        png, Summary = path.read_bytes(), self._summary.Summary
        width, height = struct.unpack(">II", png[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        return Summary(value=[Summary.Value(tag=tag, image=image)])


def hyperparameters(config: dict[str, Any]) -> dict[str, bool | int | float | str]:
    """What of a config something may depend on that is learned, flat, as TensorBoard takes it."""
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten_dict(config, sep=".").items()
        if key not in WORDS and not is_onlooker(key) and not key.endswith("._partial_")
    }


def _means(measured: dict[str, Any]) -> dict[str, float]:
    # In a summary that is read back from its file, what is not finite is a word.
    return {f"{split}/{name}": float(of["mean"]) for split, named in measured.items() for name, of in named.items()}


def write_markdown(table: Table) -> str:
    """A table in Markdown, its cells as they are: what would be markup in them is code."""
    lines = [table.columns, ("---",) * len(table.columns), *(map(_quote, row) for row in table.texts())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _quote(text: str) -> str:
    quoted = text.replace("\n", "↵").replace("|", "¦").replace("`", "ˋ")
    return f"`{quoted}`" if quoted.strip() else ""
