"""The run on the screen: a progress bar on a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from seqlab.evaluation.interval import interval
from seqlab.types import Event, Exhibit, Run


class ConsoleLogger:
    """Show the progress, the rate, the time left and the last metrics.

    On a terminal a bar moves, with the last training metrics in it, and a line is printed for each evaluation;
    elsewhere (a file, a pipe) a plain line is printed for each event. Of what can be looked at the place is told. With
    several replicas a metric is written as its mean ± half its 95 % interval. Width, colours and NO_COLOR are rich's.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._n_steps = 0
        self._rate: float | None = None

    def start(self, run: Run) -> None:
        began = run.resumed_from or 0
        self._n_steps = run.n_steps
        replicas = f", {run.n_replicas} replicas" if run.n_replicas > 1 else ""
        origin = f", from step {began}" if run.resumed_from is not None else ""
        self._print(f"{run.name}: {run.n_steps} steps{replicas}{origin}, in {run.directory}")
        if self._console.is_interactive:
            self._progress = _bar(self._console)
            self._task = self._progress.add_task("", total=run.n_steps, completed=began, rate="", metrics="compiling …")
            self._progress.start()

    def advance(self, step: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=step)

    def log(self, event: Event) -> None:
        self._rate = event.rates.get("steps_per_second", self._rate)
        metrics = "  ".join(f"{name} {_write(values)}" for name, values in event.values.items())
        if self._progress is not None and event.split == "train":
            rate = "" if self._rate is None else f"{self._rate:,.4g} steps/s"
            self._progress.update(self._task, rate=rate, metrics=metrics)
        else:
            self._print(f"{self._where(event.step)}  {event.split}  {metrics}{self._pace(event)}")

    def show(self, exhibit: Exhibit) -> None:
        self._print(f"{self._where(exhibit.step)}  {exhibit.name}  in {exhibit.place}")

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _where(self, step: int) -> str:
        return f"step {step:>{len(str(self._n_steps))}}/{self._n_steps}"

    def _pace(self, event: Event) -> str:
        if self._progress is not None or self._rate is None or event.split != "train":
            return ""
        left = time.strftime("%H:%M:%S", time.gmtime((self._n_steps - event.step) / self._rate))
        return f"  {self._rate:,.4g} steps/s  {left} left"

    def _print(self, line: str) -> None:
        # Soft-wrapped and without markup: a line of a log stays one line, and a name may hold brackets.
        self._console.print(line, soft_wrap=True, markup=False, highlight=False)


def _write(values: list[float]) -> str:
    if len(set(values)) > 1:
        return interval(values).format()
    return str(values[0]) if isinstance(values[0], int) else interval(values[:1]).format()


def _bar(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=None, table_column=Column(min_width=5, max_width=30, ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[rate]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[metrics]}", markup=False, table_column=Column(no_wrap=True, ratio=4)),
        console=console,
        expand=True,
    )
