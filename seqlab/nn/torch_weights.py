"""Weights of torch.nn.RNN, LSTM and GRU as parameters of our layers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from seqlab.nn.affine import carry_dtype
from seqlab.nn.cell import Cell
from seqlab.nn.checks import check_weights
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.types import Array, Params, UserError, require

# The gates of each cell in torch's order of rows. Cells go by their names here, as in YAML: nothing imports one.
TORCH_GATES = {"RNN": "h", "LSTM": "ifgo", "GRU": "rzn"}


class Gate(NamedTuple):
    """One gate of torch: W x + b_ih + U h + b_hh.

    Shapes   W_DF, U_FF, b_ih_F, b_hh_F.
    """

    W: Array
    U: Array
    b_ih: Array
    b_hh: Array


def convert_torch_weights(layer: Stack | Recurrent | Bidirectional, state_dict: Mapping[str, Any]) -> Params:
    """Give the parameters with which a layer of ours computes what the torch module of a state dict computes.

        RNN, LSTM   b = b_ih + b_hh
        GRU         (W_z, U_z, b_z) = −(W_z, U_z, b_ih + b_hh of torch), as our z is torch's 1 − z = σ(−a_z);
                    the candidate's biases stay apart, as r multiplies b_hh alone

    Without biases (`bias=False`) ours are zeros. A state dict does not tell tanh from relu: the layer's cell decides.

    Shapes   state_dict: NumPy arrays by torch's names, weight_ih_l0 of shape (G, D) and so on for all layers and
             directions -> the tree of `layer.init(…)["params"]`.
    Raises   UserError for a layer that computes another function than torch's, and naming the key for one that is
             missing, is not expected or has another shape.
    Source   The equations in the documentation of torch.nn.RNN, LSTM and GRU.
    """
    if not isinstance(layer, Stack):
        return _convert_layer(layer, state_dict, n_layers=1)["layers_0"]
    require(
        not layer.residual and not layer.norm,
        "a Stack with residual or norm computes another function than torch's layers; expected both false.",
    )
    return _convert_layer(layer.layer(features=layer.features), state_dict, layer.n_layers)


def _convert_layer(layer: nn.Module, state_dict: Mapping[str, Any], n_layers: int) -> Params:
    require(
        isinstance(layer, Recurrent | Bidirectional),
        f"torch's weights fit Recurrent and Bidirectional layers, not {type(layer).__name__}.",
    )
    require(
        not layer.zoneout, f"the layer has zoneout {layer.zoneout}, but torch's layers have none, in evaluation too."
    )
    cell = layer.cell(features=layer.features)
    kind = type(cell).__name__
    _require_equation_of_torch(kind, cell)
    bidirectional = isinstance(layer, Bidirectional)
    require(
        not bidirectional or layer.merge == "concat",
        f"Bidirectional has merge {getattr(layer, 'merge', None)!r}, but torch's layers concatenate.",
    )

    suffixes = {"forward": "", "backward": "_reverse"} if bidirectional else {"": ""}
    weights = _take(state_dict, list(suffixes.values()), n_layers, layer.features, len(TORCH_GATES[kind]))

    def convert(suffix: str) -> Params:
        return {"core": _convert_cell(kind, _split(TORCH_GATES[kind], weights, suffix))}

    params: dict[str, Any] = {}
    for n in range(n_layers):
        directions = {name: convert(f"_l{n}{suffix}") for name, suffix in suffixes.items()}
        params[f"layers_{n}"] = directions if bidirectional else directions[""]
    return params


def _split(letters: str, weights: dict[str, Array], suffix: str) -> dict[str, Gate]:
    """The gates of one layer in one direction, by torch's letters."""
    arrays = [weights[f"{part}{suffix}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    blocks = zip(*(jnp.split(a.T, len(letters), axis=-1) for a in arrays), strict=True)
    return {letter: Gate(*block) for letter, block in zip(letters, blocks, strict=True)}


def _convert_cell(kind: str, t: dict[str, Gate]) -> Params:
    if kind == "RNN":
        return {"hidden": _affine(t["h"])}
    if kind == "LSTM":
        return {"gates": _affine(t["f"], t["i"], t["o"], t["g"])}
    minus_z = Gate(*(-a for a in t["z"]))
    return {
        "gates": _affine(minus_z, t["r"]),
        "candidate_input": {"kernel": t["n"].W, "bias": t["n"].b_ih},
        "candidate_recurrent": {"recurrent_kernel": t["n"].U, "bias": t["n"].b_hh},
    }


def _affine(*gates: Gate) -> dict[str, Array]:
    return {
        "kernel": jnp.concatenate([gate.W for gate in gates], axis=-1),
        "recurrent_kernel": jnp.concatenate([gate.U for gate in gates], axis=-1),
        "bias": jnp.concatenate([gate.b_ih + gate.b_hh for gate in gates]),
    }


def _require_equation_of_torch(kind: str, cell: Any) -> None:
    known = isinstance(cell, Cell) and kind in TORCH_GATES
    require(known, f"torch's weights fit the cells {', '.join(TORCH_GATES)} of seqlab, not {kind}.")
    require(not cell.layer_norm, f"{kind} has layer_norm true, but torch's cells have no layer normalisation.")
    require(
        kind != "RNN" or cell.activation in ("tanh", "relu"),
        f"RNN has activation {getattr(cell, 'activation', None)!r}, but torch's RNN is tanh or relu.",
    )
    require(kind != "LSTM" or not cell.peephole, "LSTM has peephole true, but torch's LSTM has no peepholes.")
    require(
        kind != "GRU" or cell.reset == "after",
        f"GRU has reset {getattr(cell, 'reset', None)!r}, but torch's GRU resets after the product, which is another "
        "function: use reset 'after'.",
    )


def _take(state_dict: Mapping[str, Any], suffixes: list[str], n_layers: int, F: int, n_gates: int) -> dict[str, Array]:
    """Every array that the layers need, each checked; zeros where torch has no biases."""
    G = n_gates * F
    shapes: dict[str, tuple[int, ...]] = {}
    for n in range(n_layers):
        d_input = F * len(suffixes) if n else jnp.shape(state_dict.get("weight_ih_l0", jnp.zeros(1)))[-1]
        for suffix in suffixes:
            parts = {"weight_ih": (G, d_input), "weight_hh": (G, F), "bias_ih": (G,), "bias_hh": (G,)}
            shapes |= {f"{part}_l{n}{suffix}": shape for part, shape in parts.items()}
    for key in state_dict:
        if key.startswith("weight_hr"):
            raise UserError(f"{key} is the projection of a torch LSTM with proj_size, which our LSTM does not have.")
    has_bias = any(key.startswith("bias") for key in state_dict)
    check_weights(state_dict, shapes, [] if has_bias else [key for key in shapes if key.startswith("bias")])
    weights = {key: jnp.asarray(state_dict.get(key, jnp.zeros(shape))) for key, shape in shapes.items()}
    return {key: a.astype(carry_dtype(a.dtype)) for key, a in weights.items()}
