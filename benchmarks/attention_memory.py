"""The memory of a training step over one long row, with plain and with chunked attention.

    python benchmarks/attention_memory.py [--length 16384]

The model is one Transformer block of 4 heads and width 128 with a head over 65 characters. Each implementation runs in
a process of its own, which may take 8 GiB of address space beyond its start; what it took is the greatest resident size
of the process, all of Python and JAX included.
"""

import argparse
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

V, D, H = 65, 128, 4
LIMIT = 8 * 2**30


def train(implementation: str, T: int) -> None:
    """Print the mebibytes and the seconds of two training steps."""
    import seqlab  # noqa: F401  (sets XLA's flags)
    from seqlab.training.devices import start

    start(1)
    import jax
    import jax.numpy as jnp
    import optax

    from seqlab.models.tagger import Tagger
    from seqlab.nn.inputs import TokenInputs
    from seqlab.nn.positions import Rotary
    from seqlab.nn.self_attention import SelfAttention
    from seqlab.nn.transformer import Transformer

    mixer = partial(SelfAttention, n_heads=H, positions=Rotary, implementation=implementation)
    model = Tagger(TokenInputs(V, D), Transformer(mixer, D, n_layers=1), V)
    ids_BT = jax.random.randint(jax.random.key(0), (1, T + 1), 0, V)
    params = model.init(jax.random.key(1), ids_BT[:, :16], train=False)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + LIMIT, taken + LIMIT))

    @partial(jax.jit, donate_argnums=0)
    def step(params, ids_BT):
        def loss(params):
            logits_BTV = model.apply(params, ids_BT[:, :-1], train=True)
            return optax.softmax_cross_entropy_with_integer_labels(logits_BTV, ids_BT[:, 1:]).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    began = time.perf_counter()
    for _ in range(2):
        params = jax.block_until_ready(step(params, ids_BT))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{mebibytes:,.0f} MiB at most, {time.perf_counter() - began:.1f} s for two steps and compiling")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=16384, help="steps of the row")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        train(arguments.work, arguments.length)
        return
    for implementation in ("chunked", "plain"):
        command = [sys.executable, __file__, "--length", str(arguments.length), "--work", implementation]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = (run.stdout or run.stderr).strip().splitlines()
        told = lines[-1] if run.returncode == 0 else f"failed: {next((x for x in lines if 'alloc' in x), lines[-1])}"
        print(f"{implementation:8} {arguments.length} steps: {told}", flush=True)


if __name__ == "__main__":
    main()
