"""Wall time a replica: `seeds=8` in one process against eight single runs.

python benchmarks/replicas.py
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

N_REPLICAS = 8
N_STEPS = 800
BAR = 1.6


def measure(run: Path, *overrides: str) -> tuple[float, float]:
    """Train the copy task in a process of its own; gives the seconds of its updates, and of the whole command."""
    command = [sys.executable, "-m", "seqlab.train", "+experiment=copy_task", "logger=[]", f"trainer.steps={N_STEPS}"]
    began = time.time()
    subprocess.run([*command, f"hydra.run.dir={run}", *overrides], check=True, stdout=subprocess.DEVNULL)
    return N_STEPS / read_json(run / "summary.json")["steps_per_second"], time.time() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        singles = [measure(Path(scratch, f"{seed}"), f"seed={seed}") for seed in range(N_REPLICAS)]
        together = measure(Path(scratch, "together"), f"seeds={N_REPLICAS}")
    table = Table(title=f"+experiment=copy_task, {N_STEPS} steps, on {os.cpu_count()} cores: seconds a replica")
    for name in ("", f"{N_REPLICAS} single runs", f"seeds={N_REPLICAS}", "faster", "bar"):
        table.add_column(name, justify="right" if name else "left")
    for index, name in enumerate(("updates alone", "whole command")):
        apart = sum(single[index] for single in singles) / N_REPLICAS
        shared = together[index] / N_REPLICAS
        table.add_row(name, f"{apart:.2f}", f"{shared:.2f}", f"{apart / shared:.2f}×", f"{BAR}×")
    Console().print(table)


if __name__ == "__main__":
    main()
