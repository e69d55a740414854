"""Gates and states: what each unit of a recurrent layer does at each step of a row, and how often it is stuck."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import struct

from seqlab.analysis.findings import Findings, first_rows, replicas
from seqlab.analysis.gates_figure import draw_saturation, draw_values
from seqlab.analysis.pages.gates import write_gates
from seqlab.analysis.probe import carry_names, is_decoding, is_turned
from seqlab.analysis.recurrent_parts import RecurrentPart, recurrent_parts
from seqlab.analysis.tokens import input_tokens, target_tokens
from seqlab.models.bilm import reverse_rows
from seqlab.nn.checks import check_place, check_positive
from seqlab.nn.gates import watch_gates
from seqlab.types import Array, Batch, Params, Task, model_arguments, require

LEFT, RIGHT = 0.1, 0.9


@struct.dataclass
class Walked:
    """A layer's values along its rows, in the order of the rows.

    Shapes   values_BTF by name, of the gates, of the candidates, and of the state that each step leaves; lengths_B.
    """

    layer: str = struct.field(pytree_node=False)
    gates: tuple[str, ...] = struct.field(pytree_node=False)
    others: tuple[str, ...] = struct.field(pytree_node=False)
    values: dict[str, Array]
    lengths_B: Array | None


@dataclasses.dataclass(frozen=True)
class Gates:
    """What the gates g_t, the candidates and the state s_t of every recurrent layer are along a row.

        values      g_t and s_t at each step of row `row` of the set, of replica `replica`; of a layer that reads from
                    the end s_t is the state after it has read step t, on its way back
        left        share of the steps with g_t < 0.1, right: with g_t > 0.9; of a gate, for each of its units
        beyond      share of the steps with |s_t| > 0.9; of candidates and states
        mean        over the same steps: the real ones of `rows` rows; for each unit, with all replicas

    The steps of a decoder are those of the targets, of which it is told the one before; those of an encoder are the
    inputs'. Hard attention looks at the likeliest place.
    A cell names its gates in its equation: an LSTM f, i, o and the candidate C̃, beside its state (C, h); a GRU z, r and
    h̃. Of cells that name none, as those of Flax, the states alone. Figures and the page show the first `n_tokens`
    steps and at most `n_units` units.

    Raises   UserError for a model without recurrent layers, a row or a replica that there is not, counts below 1.
    Source   Karpathy et al. 2015, arXiv:1506.02078, §4.1 (left and right).
    """

    row: int = 0
    replica: int = 0
    rows: int = 64
    n_tokens: int = 64
    n_units: int = 64

    def __post_init__(self) -> None:
        for name in ("rows", "n_tokens", "n_units"):
            check_positive(name, getattr(self, name))

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings:
        batch, each = first_rows(batch, self.rows), replicas(params_R)
        check_place("row", self.row, len(batch.inputs))
        check_place("replica", self.replica, len(each))
        arguments = model_arguments(model, batch)

        @jax.jit
        def look(params: Params) -> list[Walked]:
            return [walk_gates(part) for part in recurrent_parts(model, params, arguments)]

        # On the host one after the other: values of all rows are many.
        told: list[dict[str, Any]] = []
        for r, params in enumerate(each):
            walked = jax.device_get(look(params))
            told.append({layer.layer: describe(layer) for layer in walked})
            if r == self.replica:
                shown = walked
        require(
            bool(shown),
            f"this {type(model).__name__} has no recurrent layer whose gates and states could be shown: this is for "
            "model/encoder=stack with any model/cell, for model/encoder=transformer with a recurrent model/mixer, and "
            "for model/decoder=fixed, context, soft and hard",
        )
        said = {"inputs": input_tokens(task, batch, self.row)}
        if task.target_per == "sequence":
            said["targets"] = target_tokens(task, batch, self.row)
        values, tokens = {}, {}
        for layer in shown:
            named = in_order(layer)
            n = len(named["h"][self.row]) if layer.lengths_B is None else int(layer.lengths_B[self.row])
            values[layer.layer] = {name: np.round(a_BTF[self.row, :n], 4) for name, a_BTF in named.items()}
            of_side = said["targets" if is_decoding(layer.layer) else "inputs"]
            tokens[layer.layer] = of_side if len(of_side) == n else [str(t) for t in range(n)]
        gates = {layer.layer: layer.gates for layer in shown}
        saturation = {
            layer: {
                name: {what: np.stack([of_replica[layer][name][what] for of_replica in told]) for what in shares}
                for name, shares in named.items()
            }
            for layer, named in told[0].items()
        }
        numbers = {**said, "values": values, "saturation": saturation}
        shape = self.n_tokens, self.n_units, f"row {self.row}, replica {self.replica}"
        figures = {
            f"values_{layer.replace(' ', '_')}": draw_values(layer, named, gates[layer], tokens[layer], *shape)
            for layer, named in values.items()
        }
        figures["saturation"] = draw_saturation(saturation, gates)
        followed = {
            f"{layer}/{name}/{what}": share_RF.mean(-1)
            for layer, named in saturation.items()
            for name, shares in named.items()
            for what, share_RF in shares.items()
        }
        return Findings(numbers, figures, {"gates": write_gates(values, gates, tokens, *shape)}, followed)


def walk_gates(part: RecurrentPart) -> Walked:
    """The gates, candidates and states of a recurrent layer at each step of its rows.

    Shapes   values_BTF; past a row's length they are those of a layer that reads on.
    """
    layer, x_BTD = part.layer, part.x_BTD
    if part.reverse:
        x_BTD = reverse_rows(x_BTD, part.lengths_B)
    gates: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def body(carry: Any, x_BD: Array) -> tuple[Any, dict[str, Array]]:
        nonlocal gates, others
        with watch_gates() as seen:
            carry, _ = layer.apply({"params": part.params}, carry, x_BD, method="step")
        state = dict(zip(carry_names(carry), jax.tree.leaves(carry), strict=True))
        gates, others = tuple(seen.gates), (*seen.candidates, *state)
        return carry, {name: a_FB.T for name, a_FB in (seen.gates | seen.candidates).items()} | state

    _, values_TBF = jax.lax.scan(body, part.start, x_BTD.swapaxes(0, 1))
    values_BTF = {name: a.swapaxes(0, 1) for name, a in values_TBF.items()}
    if part.reverse or is_turned(part.name):
        values_BTF = {name: reverse_rows(a, part.lengths_B) for name, a in values_BTF.items()}
    return Walked(part.name, gates, others, values_BTF, part.lengths_B)


def in_order(walked: Walked) -> dict[str, np.ndarray]:
    """The values as the equation has them: gates, candidates, state."""
    return {name: np.asarray(walked.values[name]) for name in (*walked.gates, *walked.others)}


def describe(walked: Walked) -> dict[str, dict[str, np.ndarray]]:
    """The shares and the mean of each gate, candidate and state, _F: over the real steps of all rows."""
    described, n_B = {}, walked.lengths_B
    for name, a_BTF in in_order(walked).items():
        B, T, _ = a_BTF.shape
        real_BT = np.ones((B, T), bool) if n_B is None else np.arange(T) < np.asarray(n_B)[:, None]
        a_NF = a_BTF[real_BT]
        n = max(1, len(a_NF))
        over = {"left": a_NF < LEFT, "right": a_NF > RIGHT} if name in walked.gates else {"beyond": abs(a_NF) > RIGHT}
        described[name] = {what: is_so.sum(0) / n for what, is_so in over.items()} | {"mean": a_NF.sum(0) / n}
    return described
