"""Weights of torch.nn.MultiheadAttention, TransformerEncoder and TransformerDecoder as parameters of ours.

torch keeps the heads of a projection one after another and multiplies from the right: W_q[h] = W[h K : (h + 1) K]ᵀ,
with W_q, W_k and W_v under each other where all read the same width.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from seqlab.nn.checks import check_weights
from seqlab.nn.decoders.transformer import TransformerDecoder
from seqlab.nn.heads import MultiHead
from seqlab.nn.scores import ScaledDot
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.source_attention import SourceAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import Params, require

StateDict = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]


def convert_torch_attention(layer: SelfAttention | SourceAttention, state_dict: StateDict) -> Params:
    """Give the parameters with which attention of ours computes what a torch.nn.MultiheadAttention computes.

    Keys and values read one source, so that its kdim and vdim must be equal; where they are not its embed_dim, they
    are read off the state dict.

    Shapes   state_dict: NumPy arrays by torch's names -> the tree of `layer.init(…)["params"]`.
    Raises   UserError for a layer that computes another function than torch's, and naming the key for one that is
             missing, is not expected or has another shape.
    Source   The equations in the documentation of torch.nn.MultiheadAttention.
    """
    d_source = layer.features
    if isinstance(layer, SourceAttention) and "k_proj_weight" in state_dict:
        d_source = jnp.shape(state_dict["k_proj_weight"])[-1]
    check_weights(state_dict, attention_shapes(layer, d_source))
    return attention(layer, state_dict)


def convert_torch_transformer(model: Transformer, state_dict: StateDict) -> Params:
    """Give the parameters with which a Transformer of ours computes what the torch module of a state dict computes.

    The module of a `Transformer` is torch.nn.TransformerEncoder, that of a `TransformerDecoder` torch's of the same
    name: with norm_first=True and a last LayerNorm for placement = pre, with neither for post.

    Shapes   state_dict: NumPy arrays by torch's names, layers.0.self_attn.in_proj_weight of shape (3 D, D) and so on
             -> the tree of `model.init(…)["params"]`.
    Raises   UserError as `convert_torch_attention`.
    Source   The equations in the documentation of torch.nn.TransformerEncoderLayer, TransformerDecoderLayer and
             MultiheadAttention.
    """
    shapes = block_shapes(model)
    wanted = {f"layers.{n}.{key}": shape for n in range(model.n_layers) for key, shape in shapes.items()}
    if model.placement == "pre":
        wanted |= norm_shapes("norm", model.features)
    check_weights(state_dict, wanted)
    blocks = [block(model, take(state_dict, f"layers.{n}.")) for n in range(model.n_layers)]
    params: dict[str, Params] = {"layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)}
    if model.placement == "pre":
        params["last_norm"] = norm(state_dict, "norm")
    return params


def convert_torch_block(model: Transformer, state_dict: StateDict) -> Params:
    """Give the parameters of one layer of a Transformer of ours, from one layer of torch.

    The module is torch.nn.TransformerEncoderLayer, or TransformerDecoderLayer for a `TransformerDecoder`.

    Shapes   state_dict: NumPy arrays by torch's names, self_attn.in_proj_weight of shape (3 D, D) and so on -> the
             tree of params["layers"] without the axis of the layers.
    Raises   UserError as `convert_torch_attention`.
    Source   As `convert_torch_transformer`.
    """
    check_weights(state_dict, block_shapes(model))
    return block(model, state_dict)


def parts(model: Transformer) -> dict[str, Any]:
    """The attentions of a block by torch's names."""
    found = {"self_attn": model.mixer(features=model.features, parent=None)}
    if isinstance(model, TransformerDecoder):
        found["multihead_attn"] = model.source_attention(features=model.features, parent=None)
    return found


def block_shapes(model: Transformer) -> Shapes:
    D, attentions = model.features, parts(model)
    for holds, what in (
        (all(isinstance(layer, MultiHead) and layer.bias for layer in attentions.values()), "attention with biases"),
        (model.activation == "relu", "activation=relu (torch's gelu is another formula)"),
        (model.norm == "layer", "norm=layer"),
    ):
        require(holds, f"the model computes another function than torch's, which has {what}")
    d_ff = 4 * D if model.d_ff is None else model.d_ff
    shapes: Shapes = {}
    for name, layer in attentions.items():
        shapes |= {f"{name}.{key}": shape for key, shape in attention_shapes(layer, D).items()}
    shapes |= {"linear1.weight": (d_ff, D), "linear1.bias": (d_ff,), "linear2.weight": (D, d_ff), "linear2.bias": (D,)}
    for n in range(1, len(attentions) + 2):
        shapes |= norm_shapes(f"norm{n}", D)
    return shapes


def attention_shapes(layer: SelfAttention | SourceAttention, d_source: int) -> Shapes:
    for holds, what in (
        (layer.n_kv_heads in (None, layer.n_heads), "a key head for each head"),
        (isinstance(layer.score(), ScaledDot), "scaled dot products"),
    ):
        require(holds, f"the model computes another function than torch's attention, which has {what}")
    D = layer.features
    if d_source == D:
        shapes: Shapes = {"in_proj_weight": (3 * D, D)}
    else:
        shapes = {"q_proj_weight": (D, D), "k_proj_weight": (D, d_source), "v_proj_weight": (D, d_source)}
    shapes["out_proj.weight"] = (D, D)
    return shapes | ({"in_proj_bias": (3 * D,), "out_proj.bias": (D,)} if layer.bias else {})


def norm_shapes(name: str, features: int) -> Shapes:
    return {f"{name}.weight": (features,), f"{name}.bias": (features,)}


def attention(layer: SelfAttention | SourceAttention, w: StateDict) -> Params:
    D = layer.features

    def rows(key: str, part: int) -> Any:
        return jnp.asarray(w[key])[part * D : (part + 1) * D]

    params: dict[str, Params] = {}
    for part, name in enumerate("qkv"):
        W_FD = rows("in_proj_weight", part) if "in_proj_weight" in w else jnp.asarray(w[f"{name}_proj_weight"])
        params[f"W_{name}"] = {"kernel": W_FD.T}
        if layer.bias:
            params[f"W_{name}"]["bias"] = rows("in_proj_bias", part)
    params["W_o"] = dense(w, "out_proj")
    return params


def block(model: Transformer, w: StateDict) -> Params:
    attentions = parts(model)
    params: dict[str, Params] = {"feed_forward": {"W_1": dense(w, "linear1"), "W_2": dense(w, "linear2")}}
    for ours, (name, layer) in zip(("mixer", "source"), attentions.items(), strict=False):
        params[ours] = attention(layer, take(w, f"{name}."))
    for n in range(1, len(attentions) + 2):
        params[f"norm_{n}"] = norm(w, f"norm{n}")
    return params


def dense(w: StateDict, name: str) -> Params:
    bias = {"bias": jnp.asarray(w[f"{name}.bias"])} if f"{name}.bias" in w else {}
    return {"kernel": jnp.asarray(w[f"{name}.weight"]).T} | bias


def norm(w: StateDict, name: str) -> Params:
    return {"scale": jnp.asarray(w[f"{name}.weight"]), "bias": jnp.asarray(w[f"{name}.bias"])}


def take(w: StateDict, prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): a for key, a in w.items() if key.startswith(prefix)}
