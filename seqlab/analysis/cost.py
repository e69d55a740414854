"""What a model costs: parameters, operations, bytes, time and memory, and how they grow with the length of a row."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from seqlab.analysis.cost_figure import draw
from seqlab.analysis.findings import Findings, first_rows, replicas, require_lengths
from seqlab.analysis.flops import Compiled, compile_program, count_operations, xla_cost
from seqlab.analysis.flops_formula import flops_by_formula, gradient_by_formula
from seqlab.analysis.lengths import resize
from seqlab.analysis.probe import ENCODERS, name_layer
from seqlab.analysis.stepping import state_bytes
from seqlab.nn.checks import check_positive
from seqlab.training.step import make_measure
from seqlab.types import Array, Batch, Params, Task, UserError, model_arguments, require

TAIL = 3


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a forward pass and the gradient of a training step cost, for `rows` rows of the set.

        parameters    by part of the model, and by layer
        operations    counted in the program (`count_operations`), by formula (`flops_by_formula`,
                      `gradient_by_formula`), and as XLA says (`xla_cost`)
        bytes         that XLA's program reads and writes, and the memory that it takes besides arguments and outputs
        state         bytes that a row hands on from step to step, after T steps (`state_bytes`)
        growth        seconds (the median of `repeats`, with the least and the greatest), memory and products at each
                      of `lengths`, and the exponent p of c Tᵖ through the last three of them

    The forward pass is that of evaluation, the gradient that of training, without the optimiser. Longer rows are the
    set's, repeated; all are full. Lengths end where the model does. Pictures have no length that could grow. Seconds
    include what starting a program takes.

    Costs depend on shapes, not on parameters: there is one value, with no axis of replicas.

    Raises   UserError for counts below 1 and for lengths that do not ascend.
    """

    rows: int = 8
    lengths: Sequence[int] = (16, 32, 64, 128, 256)
    repeats: int = 5

    def __post_init__(self) -> None:
        for name in ("rows", "repeats"):
            check_positive(name, getattr(self, name))
        require_lengths(self.lengths)
        told = list(self.lengths)
        require(told == sorted(set(told)), f"lengths is {told}: expected numbers that ascend")

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings:
        batch, params = first_rows(batch, self.rows), jax.device_put(replicas(params_R)[0])
        compiled = compile_once(make_programs(model, task), params)
        lengths = [int(T) for T in self.lengths]
        formula = flops_by_formula(model, params, model_arguments(model, batch))
        numbers: dict[str, Any] = {
            "inputs": list(batch.inputs.shape),
            "repeats": self.repeats,
            "parameters": count_parameters(params),
            "operations": {name: measure(program) for name, program in compiled(batch).items()},
            "formula": {"forward": formula, "gradient": gradient_by_formula(formula)},
            "state": state_bytes(model, params, batch, lengths),
            "growth": self._growth(compiled, params, task, batch, lengths),
        }
        return Findings(numbers, {"cost": draw(numbers, jax.devices()[0].device_kind)})

    def _growth(
        self,
        compiled: Callable[[Batch], dict[str, Compiled]],
        params: Params,
        task: Task,
        batch: Batch,
        lengths: list[int],
    ) -> dict[str, Any]:
        if batch.inputs.ndim == 4:
            return {"why": "a picture has no length that could grow"}
        found: dict[str, dict[str, list[Any]]] = {}
        measured: list[int] = []
        why = ""
        for T in lengths:
            rows = resize(task, batch, T)
            try:
                programs = compiled(rows)
            except UserError as error:
                why = str(error)
                break
            measured.append(T)
            for name, program in programs.items():
                for what, value in measure_length(program, params, rows, self.repeats).items():
                    found.setdefault(name, {}).setdefault(what, []).append(value)
        grown: dict[str, Any] = {"lengths": np.array(measured)} | ({"why": why} if why else {})
        for name, values in found.items():
            grown[name] = {what: np.array(column) for what, column in values.items()}
            grown[name]["exponents"] = {
                what: exponent(measured, column) for what, column in values.items() if what != "seconds_range"
            }
        return grown


def make_programs(model: nn.Module, task: Task) -> dict[str, Any]:
    """The forward pass, and the loss and gradient of a training step, as jitted functions of (params, batch)."""
    of_training = make_measure(model, task, jnp.float32)

    @jax.jit
    def forward(params: Params, batch: Batch) -> Array:
        return model.apply({"params": params}, *model_arguments(model, batch), train=False)  # type: ignore

    @jax.jit
    def gradient(params: Params, batch: Batch) -> tuple[Array, Params]:
        def loss(params: Params) -> Array:
            return of_training(params, batch, jax.random.key(0), jnp.zeros((), jnp.int32))[0]["loss"][0]

        return jax.value_and_grad(loss)(params)

    return {"forward": forward, "gradient": gradient}


def compile_once(programs: dict[str, Any], params: Params) -> Callable[[Batch], dict[str, Compiled]]:
    """Compile the programs for a batch, or give them where they have been compiled for one of its shape."""
    known: dict[Any, dict[str, Compiled]] = {}

    def compiled(batch: Batch) -> dict[str, Compiled]:
        leaves, tree = jax.tree.flatten(batch)
        shape = tree, *((leaf.shape, leaf.dtype) for leaf in leaves)
        if shape not in known:
            known[shape] = {name: compile_program(program, params, batch) for name, program in programs.items()}
        return known[shape]

    return compiled


def measure(program: Compiled) -> dict[str, Any]:
    """The operations and the bytes of a program."""
    as_said, with_turns = xla_cost(program)
    return {
        **count_operations(program.jaxpr)._asdict(),
        "xla_flops": with_turns.flops,
        "xla_bytes": with_turns.bytes_accessed,
        "xla_flops_bodies_once": as_said.flops,
        "xla_bytes_bodies_once": as_said.bytes_accessed,
        "memory_bytes": program.memory_bytes,
    }


def measure_length(program: Compiled, params: Params, batch: Batch, repeats: int) -> dict[str, Any]:
    """Time, memory and products of a program; it is run once more ahead of the clock."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(program.run(params, batch))
        seconds.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(seconds[1:]),
        "seconds_range": (min(seconds[1:]), max(seconds[1:])),
        "memory_bytes": program.memory_bytes,
        "products": count_operations(program.jaxpr).products,
    }


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """p of the line log y = p log T + c through the last points; None where there is none."""
    T, y = np.array(lengths[-TAIL:], float), np.array(values[-TAIL:], float)
    return float(np.polyfit(np.log(T), np.log(y), 1)[0]) if len(T) > 1 and (y > 0).all() else None


def count_parameters(params: Params) -> dict[str, Any]:
    """The number of parameters: in all, by child of the model, and of encoders and decoders by layer."""
    by_part: dict[str, int] = {}
    by_layer: dict[str, int] = {}

    def along_the_model(path: tuple[str, ...]) -> Any:
        of_part = "".join(path[1:2])
        return path[0] != "inputs", path[0] == "head", path[0], len(of_part), of_part

    flat = flatten_dict(params)
    for path in sorted(flat, key=along_the_model):
        leaf = flat[path]
        by_part[path[0]] = by_part.get(path[0], 0) + leaf.size
        place = path[:2] if path[0] in (*ENCODERS, "decoder") else path[:1]
        # A Transformer stacks its layers.
        n_layers = len(leaf) if place[-1] == "layers" else 1
        for n in range(n_layers):
            name = name_layer(place, n)
            by_layer[name] = by_layer.get(name, 0) + leaf.size // n_layers
    return {"total": sum(by_part.values()), "by_part": by_part, "by_layer": by_layer}
