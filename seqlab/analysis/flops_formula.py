"""Floating-point operations of a forward pass by formula, part by part."""

import math
from typing import Any

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict

from seqlab.analysis.probe import ENCODERS
from seqlab.nn.cell import Cell
from seqlab.nn.decoders.fixed_context import FixedContext
from seqlab.nn.decoders.soft_attention import SoftAttention
from seqlab.nn.decoders.transformer import TransformerDecoder
from seqlab.nn.identity import Identity
from seqlab.nn.inputs import LinearInputs, TokenInputs
from seqlab.nn.patches import Patches
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.transformer import Transformer
from seqlab.types import Params

KERNELS = ("kernel", "recurrent_kernel")


def flops_by_formula(model: Any, params: Params, arguments: tuple[Any, ...]) -> dict[str, int | None]:
    """The operations in the products of a forward pass, by part; None of a part that has no formula here.

        a kernel W_DG at n vectors                            2 n D G
        a recurrent layer of G gates                          2 B T G F (D + F)
        self-attention of D features                          8 B T D² + 4 B T² D
        a Transformer's layer, of d_ff numbers inside         that + 4 B T D d_ff  (6 B T D d_ff for swiglu)
        attention of T steps to S of a source                 4 B T D² + 4 B S D² + 4 B T S D
        the head                                              2 B T D V, or 2 B D V for one output a row
        biases of recurrent layers                            2 B T G F, since they are a column of the kernel

    All scores count, also those that a mask hides, which a program may leave out: causal attention in four blocks
    (from 128 steps on) computes 5/8 of them. Positions, norms and the like are no products.

    Names    the parts are the children of the model: inputs, encoder, decoder, pool, head; and "biases".
    Source   a kernel: one multiplication and one addition an entry; self-attention: Vaswani et al. 2017,
             arXiv:1706.03762, table 1.
    """
    x_BTD, outputs = _shapes(model, params, arguments)
    B, T, _ = x_BTD.shape
    found: dict[str, int | None] = {"inputs": _of_inputs(model.inputs, params.get("inputs", {}), B, T)}
    for name in ENCODERS:
        if name in params:
            encoder = model.encoder if name == "encoder" else model.encoder(parent=None)
            found[name] = _of_encoder(encoder, params[name], B, T)
    if "pool" in params:
        found["pool"] = 2 * B * T * _n_weights(params["pool"])
    if hasattr(model, "decoder"):
        found["decoder"] = _of_decoder(model.decoder, params["decoder"], B, outputs.shape[1], T)
    if "head" in params:
        found["head"] = 2 * outputs.size * params["head"]["kernel"].shape[0]
    else:
        V, D = jax.tree.leaves(params["targets" if hasattr(model, "decoder") else "inputs"])[0].shape
        found["head"] = 2 * math.prod(outputs.shape[:-1]) * V * D
    n_steps = {"decoder": outputs.shape[1]}
    biases = {name: _n_biases(own) for name, own in params.items() if name in (*ENCODERS, "decoder")}
    found["biases"] = sum(2 * B * n_steps.get(name, T) * n for name, n in biases.items())
    return found


def gradient_by_formula(parts: dict[str, int | None]) -> dict[str, int | None]:
    """The same of a loss and its gradient: besides the forward pass, each product has two factors to be told of.

    Data want no gradient, and a column of ones neither; a bias gets its own as a sum. Without `remat` and chunks of
    attention, which compute again what they do not keep.
    """
    times = {"inputs": 2, "biases": 1}
    return {name: None if n is None else times.get(name, 3) * n for name, n in parts.items()}


def _shapes(model: nn.Module, params: Params, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """What the encoder reads and what the model says, as shapes."""
    inputs, lengths_B, *_ = arguments

    def run(params: Params) -> Any:
        of_inputs = model.apply({"params": params}, method=lambda model: model.inputs(inputs, lengths_B, train=False))
        return of_inputs, model.apply({"params": params}, *arguments, train=False)

    return jax.eval_shape(run, params)


def _n_weights(params: Params, *, of: Any = lambda path: True) -> int:
    """The entries of all kernels below, or of those whose path `of` wants."""
    flat = flatten_dict(params).items()
    return sum(leaf.size for path, leaf in flat if of(path) and (path[-1] in KERNELS or path[-2:] == ("fit", "W")))


def _n_biases(params: Params) -> int:
    """The entries of all biases of recurrent layers."""
    flat = flatten_dict(params)
    beside_kernel = {path[:-1] for path in flat if path[-1] in KERNELS}
    return sum(
        leaf.size for path, leaf in flat.items() if path[-3::2] == ("core", "bias") and path[:-1] in beside_kernel
    )


def _of_inputs(inputs: nn.Module, params: Params, B: int, T: int) -> int | None:
    if isinstance(inputs, TokenInputs):
        return 0
    if isinstance(inputs, LinearInputs | Patches):
        return 2 * B * (T - ("x_class" in params)) * _n_weights(params)
    return None


def _of_encoder(encoder: nn.Module, params: Params, B: int, T: int) -> int | None:
    if isinstance(encoder, Identity):
        return 0
    if isinstance(encoder, Stack):
        layer = encoder.layer(features=encoder.features, parent=None)
        return 2 * B * T * _n_weights(params) if _is_recurrent(layer) else None
    if type(encoder) is Transformer:
        scores = _scores(encoder, B, T)
        return None if scores is None else 2 * B * T * _n_weights(params) + scores
    return None


def _of_decoder(decoder: nn.Module, params: Params, B: int, T: int, S: int) -> int | None:
    """Of the kernels, those of the bridge meet one vector a row, those of the keys and values the source."""

    def of_bridge(path: tuple[str, ...]) -> bool:
        return path[0] == "cross"

    def of_source(path: tuple[str, ...]) -> bool:
        return path[-2] in ("W_k", "W_v") and path[-3] in ("source", "attention")

    known = 2 * B * (_n_weights(params, of=of_bridge) + S * _n_weights(params, of=of_source))
    known += 2 * B * T * _n_weights(params, of=lambda path: not of_bridge(path) and not of_source(path))
    looks = 4 * B * T * S * decoder.features  # type: ignore[attr-defined]
    if isinstance(decoder, FixedContext):
        return known
    if isinstance(decoder, SoftAttention):
        return known + looks
    if isinstance(decoder, TransformerDecoder):
        scores = _scores(decoder, B, T)
        return None if scores is None else known + scores + decoder.n_layers * looks
    return None


def _scores(transformer: Transformer, B: int, T: int) -> int | None:
    """What the mixers of a Transformer do besides their kernels; None of a mixer that has no formula here."""
    mixer = transformer.mixer(features=transformer.features, parent=None)
    if isinstance(mixer, SelfAttention):
        return transformer.n_layers * 4 * B * T**2 * transformer.features
    return 0 if _is_recurrent(mixer) else None


def _is_recurrent(layer: Any) -> bool:
    """Whether each kernel of a layer meets each step once: so it is of our cells, whose products are affine maps."""
    if not isinstance(layer, Recurrent | Bidirectional):
        return False
    return isinstance(layer.cell(features=layer.features, parent=None), Cell)
