"""What the benchmarks share: competitors in processes of their own, which take turns, and a step as a run makes it."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 8  # a dispatch: a run makes as many as fill half a second


class Pass(NamedTuple):
    """What is timed, and how often it does what one is to know the seconds of."""

    run: Callable[[], object]
    times: int = 1


class Worker:
    """A competitor: the calling script again, with `--work NAME`."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, sys.argv[0], "--work", name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *job: object) -> list[float]:
        """The seconds of each pass of a job, each the median of some."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def work(build: Callable[..., Sequence[Pass]]) -> None:
    """Answer each job on standard input with the seconds of the passes that `build(*job)` gives."""
    built: dict[str, Sequence[Pass]] = {}
    for line in sys.stdin:
        if line not in built:
            built[line] = build(*json.loads(line))
            for timed in [*built[line]] * 2:
                timed.run()
        print(json.dumps([_seconds(timed) for timed in built[line]]), flush=True)


def _seconds(timed: Pass) -> float:
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 0.3 and len(seconds) < 30):
        began = time.perf_counter()
        timed.run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) / timed.times


def take_turns(peers: Sequence[str], jobs: Sequence[tuple[Any, ...]], n_rounds: int) -> list[dict[str, list[float]]]:
    """For each job the seconds of each competitor's passes, medians over rounds in which they take turns."""
    workers = {peer: Worker(peer) for peer in peers}
    answers = []
    for job in jobs:
        rounds = [{peer: worker.ask(*job) for peer, worker in workers.items()} for _ in range(n_rounds)]
        answers.append(
            {peer: [statistics.median(s) for s in zip(*(told[peer] for told in rounds), strict=True)] for peer in peers}
        )
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for worker in workers.values():
        worker.close()
    return answers


def run(
    doc: str | None,
    peers: Sequence[str],
    build: Callable[..., Sequence[Pass]],
    measure: Callable[[int], list[dict[str, Any]]],
    show: Callable[[list[dict[str, Any]]], None],
) -> None:
    """The command line of a benchmark: measure and show, or be a competitor."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which the competitors take turns")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--work", choices=peers, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(partial(build, arguments.work))
        return
    rows = measure(arguments.rounds)
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def training_step(loss: Callable[..., Any], params: Any, optimiser: Any, mesh: Any, *rows: Any) -> Pass:
    """A training step on a batch as a run makes it: each device its own rows, some steps a dispatch.

    `loss(params, *rows)` is a sum.
    """
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    from seqlab.training.replicas import sum_over_rows

    params = jax.tree.map(jnp.copy, params)  # a step consumes them
    params, moments = jax.device_put((params, optimiser.init(params)), NamedSharding(mesh, P()))
    rows = jax.device_put(rows, NamedSharding(mesh, P("data")))
    gradient = sum_over_rows(lambda params, rows: jax.grad(loss)(params, *rows), mesh)

    @partial(jax.jit, donate_argnums=0)
    def steps(state, rows):
        def step(_, state):
            params, moments = state
            updates, moments = optimiser.update(gradient(params, rows), moments, params)
            return optax.apply_updates(params, updates), moments

        return lax.fori_loop(0, STEPS, step, state)

    state = [(params, moments)]

    def train() -> None:
        state[0] = jax.block_until_ready(steps(state[0], rows))

    return Pass(train, STEPS)
