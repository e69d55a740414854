"""Floating-point operations of a program, counted in its jaxpr, and what XLA says of the compiled program."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

# Primitives that give out numbers which they did not compute.
MOVES = {
    *("bitcast_convert_type", "broadcast_in_dim", "concatenate", "convert_element_type"),
    *("copy", "device_put", "dynamic_slice", "dynamic_update_slice"),
    *("expand_dims", "gather", "iota", "optimization_barrier"),
    *("pad", "pcast", "pvary", "reduce_precision"),
    *("reshape", "rev", "scatter", "select_n"),
    *("sharding_constraint", "slice", "split", "squeeze"),
    *("transpose"),
}


class Operations(NamedTuple):
    """Floating-point operations of a program.

    products      in matrix products and convolutions: 2 for each multiplication, as it comes with an addition
    elementwise   in all other arithmetic: 1 for each number that is read or made, whichever are more; e^x is 1 as + is
    n_unknown     loops that end when a condition says so: each is counted as one turn
    """

    products: int = 0
    elementwise: int = 0
    n_unknown: int = 0


class XlaCost(NamedTuple):
    """What XLA says of a program: operations, and bytes read and written."""

    flops: float
    bytes_accessed: float


def count_operations(jaxpr: ClosedJaxpr | Jaxpr) -> Operations:
    """Count the operations of a program: a scan's body times its length, of a cond's branches the dearest.

        products:   dot  2 · |out| · Π contracted axes;   convolution  2 · |out| · |kernel| / its outputs

    Differs  A convolution's products with the zeros of its padding count.
             What is computed and not used counts, unless JAX itself has dropped it.
    """
    total = Operations()
    for equation in jaxpr.eqns:
        total = _add(total, _of_equation(equation))
    return total


class Compiled(NamedTuple):
    """A program as JAX has traced it, and as XLA has compiled it: compiling takes seconds, and is done once."""

    jaxpr: ClosedJaxpr
    run: Any

    @property
    def memory_bytes(self) -> int:
        """The bytes that it takes besides its arguments and outputs."""
        return self.run.memory_analysis().temp_size_in_bytes


def compile_program(program: Any, *arguments: Any) -> Compiled:
    """Compile a jitted function for arguments of the shapes of these."""
    traced = program.trace(*arguments)
    return Compiled(traced.jaxpr, traced.lower().compile())


def xla_cost(program: Compiled) -> tuple[XlaCost, XlaCost]:
    """Give what XLA says of a compiled program: as it says it, and with the turns of its loops.

        with turns = as said + Σ_loops (n − 1) · cost of the body, compiled by itself

    XLA counts the body of a loop once, whatever its length is. A loop of n turns is a scan; loops of unknown length
    stay at one turn.
    """
    said = program.run.cost_analysis()
    flops, accessed = float(said.get("flops", 0)), float(said.get("bytes accessed", 0))
    as_said = XlaCost(flops, accessed)
    for equation in _scans(program.jaxpr):
        n, unroll = equation.params["length"], min(equation.params["unroll"], equation.params["length"])
        # What is unrolled is there in full, and so is the rest that does not fill a turn.
        hidden = n - unroll - n % unroll
        if hidden:
            body = equation.params["jaxpr"]
            like = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
            of_body = xla_cost(compile_program(jax.jit(jaxpr_as_fun(body)), *like))[1]
            flops, accessed = flops + hidden * of_body.flops, accessed + hidden * of_body.bytes_accessed
    return as_said, XlaCost(flops, accessed)


def _of_equation(equation: Any) -> Operations:
    name, params = equation.primitive.name, equation.params
    out: Any = equation.outvars[0].aval if equation.outvars else None
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return Operations(products=2 * out.size * math.prod(equation.invars[0].aval.shape[k] for k in contracted))
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        n_outputs = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        return Operations(products=2 * out.size * kernel.size // n_outputs)
    if name == "cond":
        return max(map(count_operations, params["branches"]))
    if bodies := _bodies(equation):
        once = Operations()
        for body in bodies:
            once = _add(once, count_operations(body))
        times = {"scan": params.get("length"), "shard_map": getattr(params.get("mesh"), "size", 1)}.get(name, 1)
        return _add(Operations(*(times * n for n in once)), Operations(n_unknown=int(name == "while")))
    if out is None or name in MOVES or not jnp.issubdtype(out.dtype, jnp.inexact):
        return Operations()
    if name.startswith("scatter"):
        return Operations(elementwise=equation.invars[2].aval.size)
    sizes = [variable.aval.size for variable in (*equation.invars, *equation.outvars)]
    return Operations(elementwise=max(sizes))


def _bodies(equation: Any) -> list[ClosedJaxpr | Jaxpr]:
    """The programs within an equation; what a scatter or a reduction does with two numbers is none."""
    if equation.primitive.name.startswith(("scatter", "reduce")):
        return []
    values = (v if isinstance(v, tuple | list) else (v,) for v in equation.params.values())
    return [inner for each in values for inner in each if isinstance(inner, ClosedJaxpr | Jaxpr)]


def _scans(jaxpr: ClosedJaxpr | Jaxpr) -> Iterator[Any]:
    """The scans of a program that are not within another scan."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation
        elif equation.primitive.name == "cond":
            yield from _scans(max(equation.params["branches"], key=count_operations))
        else:
            for body in _bodies(equation):
                yield from _scans(body)


def _add(a: Operations, b: Operations) -> Operations:
    return Operations(*(x + y for x, y in zip(a, b, strict=True)))
