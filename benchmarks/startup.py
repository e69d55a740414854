"""Seconds from the command to the first training step, cold and with JAX's persistent compilation cache.

python benchmarks/startup.py
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seqlab.files import read_json
from seqlab.training.loggers.jsonl import read_events

N_WARM = 3


def measure(run: Path, cache: Path) -> dict[str, float]:
    """Train one step of the copy task in a process of its own; gives seconds since the command was given."""
    command = [sys.executable, "-m", "seqlab.train", "+experiment=copy_task", "logger=[]"]
    settings = ["trainer.steps=1", "trainer.log_every=1", f"hydra.run.dir={run}"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    began = time.time()
    subprocess.run([*command, *settings], env=environment, check=True, stdout=subprocess.DEVNULL)
    ended = time.time()
    first = next(event for event in read_events(run / "metrics.jsonl") if event.split == "train")
    return {
        "compiling": read_json(run / "summary.json")["compile_seconds"],
        "to the first step": first.wall_time - began,
        "to the end": ended - began,
    }


def measure_import() -> float:
    """Seconds that Python and the imports of the command take."""
    began = time.time()
    subprocess.run([sys.executable, "-c", "import seqlab.train"], check=True)
    return time.time() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        imports = min(measure_import() for _ in range(N_WARM))
        cold = measure(Path(scratch, "cold"), Path(scratch, "cache"))
        warm = [measure(Path(scratch, f"warm{i}"), Path(scratch, "cache")) for i in range(N_WARM)]
    title = f"Start of +experiment=copy_task, cold and with the compilation cache, on {os.cpu_count()} cores, seconds"
    table = Table(title=title)
    for name in ("", "imports", *cold):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("cold", f"{imports:.1f}", *(f"{seconds:.1f}" for seconds in cold.values()))
    best = [f"{min(one[name] for one in warm):.1f}" for name in cold]
    table.add_row("cached", f"{imports:.1f}", *best)
    Console().print(table)


if __name__ == "__main__":
    main()
