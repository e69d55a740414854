"""Weights of torch.nn.TransformerEncoder as parameters of our Transformer."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from seqlab.nn.checks import check_weights
from seqlab.nn.scores import ScaledDot
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import Array, Params, require


def convert_torch_transformer(model: Transformer, state_dict: Mapping[str, Any]) -> Params:
    """Give the parameters with which a Transformer of ours computes what the torch module of a state dict computes.

    The module is torch.nn.TransformerEncoder: with norm_first=True and a last LayerNorm for placement = pre, with
    neither for post. torch keeps W_q, W_k and W_v under each other, heads one after another, and multiplies from the
    right: W_q[h] = in_proj_weight[h K : (h + 1) K]ᵀ.

    Shapes   state_dict: NumPy arrays by torch's names, layers.0.self_attn.in_proj_weight of shape (3 D, D) and so on
             -> the tree of `model.init(…)["params"]`.
    Raises   UserError for a model that computes another function than torch's, and naming the key for one that is
             missing, is not expected or has another shape.
    Source   The equations in the documentation of torch.nn.TransformerEncoderLayer and MultiheadAttention.
    """
    mixer = model.mixer(features=model.features, parent=None)
    for holds, what in (
        (isinstance(mixer, SelfAttention) and mixer.bias, "self-attention with biases"),
        (getattr(mixer, "n_kv_heads", None) in (None, getattr(mixer, "n_heads", None)), "a key head for each head"),
        (isinstance(getattr(mixer, "score", ScaledDot)(), ScaledDot), "scaled dot products"),
        (model.activation == "relu", "activation=relu (torch's gelu is another formula)"),
        (model.norm == "layer", "norm=layer"),
    ):
        require(holds, f"the model computes another function than torch's encoder, which has {what}")
    D, H = model.features, mixer.n_heads
    d_ff = 4 * D if model.d_ff is None else model.d_ff
    shapes = {
        "self_attn.in_proj_weight": (3 * D, D),
        "self_attn.in_proj_bias": (3 * D,),
        "self_attn.out_proj.weight": (D, D),
        "self_attn.out_proj.bias": (D,),
        "linear1.weight": (d_ff, D),
        "linear1.bias": (d_ff,),
        "linear2.weight": (D, d_ff),
        "linear2.bias": (D,),
        **{f"norm{n}.{part}": (D,) for n in (1, 2) for part in ("weight", "bias")},
    }
    wanted = {f"layers.{n}.{key}": shape for n in range(model.n_layers) for key, shape in shapes.items()}
    if model.placement == "pre":
        wanted |= {"norm.weight": (D,), "norm.bias": (D,)}
    check_weights(state_dict, wanted)

    def layer(n: int) -> Params:
        w = {key: jnp.asarray(state_dict[f"layers.{n}.{key}"]) for key in shapes}

        def head(part: int) -> Params:
            rows = slice(part * D, (part + 1) * D)
            kernel_DHK = w["self_attn.in_proj_weight"][rows].T.reshape(D, H, D // H)
            return {"kernel": kernel_DHK, "bias": w["self_attn.in_proj_bias"][rows].reshape(H, D // H)}

        def dense(name: str) -> Params:
            return {"kernel": w[f"{name}.weight"].T, "bias": w[f"{name}.bias"]}

        def norm(name: str) -> Params:
            return {"scale": w[f"{name}.weight"], "bias": w[f"{name}.bias"]}

        W_o = dense("self_attn.out_proj")
        W_o["kernel"] = W_o["kernel"].reshape(H, D // H, D)
        return {
            "mixer": {"W_q": head(0), "W_k": head(1), "W_v": head(2), "W_o": W_o},
            "feed_forward": {"W_1": dense("linear1"), "W_2": dense("linear2")},
            "norm_1": norm("norm1"),
            "norm_2": norm("norm2"),
        }

    params: dict[str, Array | Params] = {
        "layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *(layer(n) for n in range(model.n_layers)))
    }
    if model.placement == "pre":
        params["norm"] = {"scale": jnp.asarray(state_dict["norm.weight"]), "bias": jnp.asarray(state_dict["norm.bias"])}
    return params
