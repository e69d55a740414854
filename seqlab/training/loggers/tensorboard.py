"""TensorBoard: scalars on the step axis, the config as text and as hyperparameters."""

import json
import math
from typing import Any

from flax.traverse_util import flatten_dict

from seqlab.training.loggers.scalars import name_scalars
from seqlab.types import Event, Run


class TensorBoardLogger:
    """Write event files to `tensorboard/` in the run's directory: `tensorboard --logdir RUNS` shows them.

    Each split's metric is a tag; with several replicas the tag holds their mean and each replica has its own. Values
    that are not finite are left out. A resumed run hides what lies beyond its checkpoint and writes it again.
    """

    def start(self, run: Run) -> None:
        # 1.4 s to import, and only who asks for TensorBoard should wait for it.
        import tensorboardX

        self._summary = tensorboardX.summary
        purge_step = None if run.resumed_from is None else run.resumed_from + 1
        self._writer = tensorboardX.SummaryWriter(str(run.directory / "tensorboard"), purge_step=purge_step)
        self._config = run.config
        self._writer.add_text("config", f"```json\n{json.dumps(run.config, indent=2, default=str)}\n```", 0)

    def advance(self, step: int) -> None:
        pass

    def log(self, event: Event) -> None:
        for tag, value in name_scalars(event).items():
            if math.isfinite(value):
                self._writer.add_scalar(tag, value, event.step, event.wall_time)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        metrics = {
            f"{split}/{name}": measured["mean"]
            for split, named in summary.get("final", {}).items()
            for name, measured in named.items()
        }
        settings = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in flatten_dict(self._config, sep=".").items()
        }
        # `SummaryWriter.add_hparams` opens a second event file, in the same place it corrupts the first.
        for part in self._summary.hparams(settings, metrics):
            self._writer.file_writer.add_summary(part)
        self._writer.close()
