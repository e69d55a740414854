"""Our layers with torch's weights against the files of golden/make_torch_golden.py."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from seqlab.nn.cells.gru import GRU
from seqlab.nn.cells.lstm import LSTM
from seqlab.nn.cells.rnn import RNN
from seqlab.nn.decoders.transformer import TransformerDecoder
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.recurrent import Bidirectional, Recurrent, Stack
from seqlab.nn.scores import Additive
from seqlab.nn.self_attention import SelfAttention
from seqlab.nn.source_attention import SourceAttention
from seqlab.nn.torch_transformer import convert_torch_attention, convert_torch_block, convert_torch_transformer
from seqlab.nn.torch_weights import convert_torch_weights
from seqlab.nn.transformer import Transformer
from seqlab.types import Encoding, UserError

GOLDEN = Path(__file__).parent / "golden"
CELLS = {
    "rnn_tanh": partial(RNN, activation="tanh"),
    "rnn_relu": partial(RNN, activation="relu"),
    "lstm": LSTM,
    "gru": partial(GRU, reset="after"),
}
F = 5


def stack(kind, n_layers, direction):
    layer = {"uni": Recurrent, "bi": Bidirectional}[direction]
    return Stack(layer=partial(layer, cell=CELLS[kind]), features=F, n_layers=n_layers)


def read(kind, n_layers, direction):
    with np.load(GOLDEN / f"torch_{kind}_{n_layers}_{direction}.npz") as file:
        return dict(file)


def take(golden, prefix):
    return {name.removeprefix(prefix): a for name, a in golden.items() if name.startswith(prefix)}


def run(layer, weights, x_BTD, lengths_B):
    """Our layer with torch's weights: outputs and final states in torch's layout."""
    encoding = layer.apply({"params": convert_torch_weights(layer, weights)}, x_BTD, lengths_B, train=False)
    leaves = jax.tree.leaves(encoding.state)  # layer by layer, direction by direction: h, or C and h
    out = {"y_BTF": encoding.y_BTF}
    if len(take(weights, "weight_hh_l0")[""]) == 4 * F:
        return out | {"h_NBF": jnp.stack(leaves[1::2]), "c_NBF": jnp.stack(leaves[0::2])}
    return out | {"h_NBF": jnp.stack(leaves)}


# Two layers in both directions show the most; the rest is left to `make test-all`.
@pytest.mark.parametrize("direction", [pytest.param("uni", marks=pytest.mark.slow), "bi"])
@pytest.mark.parametrize("n_layers", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("kind", CELLS)
def test_values_and_gradients_equal_torchs(kind, n_layers, direction):
    golden = read(kind, n_layers, direction)
    layer, weigh = stack(kind, n_layers, direction), take(golden, "weigh/")

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def differentiate(weights, x_BTD):
        out = run(layer, weights, x_BTD, golden["lengths_B"])
        return sum((weigh[name] * a).sum() for name, a in out.items()), out

    (loss, out), (gradients, gradient_x) = differentiate(take(golden, "weights/"), golden["x_BTD"])
    assert 1 in golden["lengths_B"] and out.keys() == weigh.keys()
    found = {"loss": loss, "grad/x_BTD": gradient_x} | out | {f"grad/{name}": a for name, a in gradients.items()}
    for name, a in found.items():
        np.testing.assert_allclose(a, golden[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", CELLS)
def test_single_layers_convert_as_a_stack_of_one(kind):
    for direction, cls in (("uni", Recurrent), ("bi", Bidirectional)):
        weights = take(read(kind, 1, direction), "weights/")
        params = convert_torch_weights(cls(cell=CELLS[kind], features=F), weights)
        jax.tree.map(
            np.testing.assert_array_equal,
            convert_torch_weights(stack(kind, 1, direction), weights),
            {"layers_0": params},
        )


@pytest.mark.parametrize("kind", CELLS)
def test_no_biases_are_zero_biases(kind):
    layer, golden = stack(kind, 2, "bi"), read(kind, 2, "bi")
    weights = take(golden, "weights/")
    bare = {key: a for key, a in weights.items() if not key.startswith("bias")}
    zeroed = {key: a if key in bare else np.zeros_like(a) for key, a in weights.items()}
    params = convert_torch_weights(layer, bare)
    jax.tree.map(np.testing.assert_array_equal, params, convert_torch_weights(layer, zeroed))
    own = jax.eval_shape(lambda: layer.init(jax.random.key(0), golden["x_BTD"], train=False)["params"])
    jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), params, own)


def with_key(weights, key, shape):
    return weights | {key: np.zeros(shape, np.float32)}


def without(weights, key):
    return {k: a for k, a in weights.items() if k != key}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: without(w, "weight_hh_l1_reverse"), "^weight_hh_l1_reverse is missing"),
        (lambda w: without(w, "weight_ih_l0"), "^weight_ih_l0 is missing"),
        (lambda w: without(w, "bias_hh_l0"), "^bias_hh_l0 is missing"),
        (lambda w: with_key(w, "weight_ih_l2", (20, 10)), "^weight_ih_l2 in the state dict is not expected"),
        (lambda w: with_key(w, "lstm.weight_hh_l1", (20, 5)), "the nearest is weight_hh_l1"),
        (lambda w: with_key(w, "weight_hr_l0", (2, 5)), "^weight_hr_l0 is the projection.*proj_size"),
        (lambda w: with_key(w, "weight_ih_l0", (15, 2)), r"^weight_ih_l0 has shape \(15, 2\).*\(20, 2\)"),
        (lambda w: with_key(w, "weight_ih_l1", (20, 5)), r"^weight_ih_l1 has shape \(20, 5\).*\(20, 10\)"),
        (
            lambda w: with_key(w, "weight_ih_l0_reverse", (20, 3)),
            r"^weight_ih_l0_reverse has shape \(20, 3\).*\(20, 2\)",
        ),
        (lambda w: with_key(w, "bias_hh_l0", (20, 1)), r"^bias_hh_l0 has shape \(20, 1\).*\(20,\)"),
    ],
)
def test_weights_that_do_not_fit_are_told_by_key(change, told):
    weights = take(read("lstm", 2, "bi"), "weights/")
    with pytest.raises(UserError, match=told):
        convert_torch_weights(stack("lstm", 2, "bi"), change(weights))


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (Recurrent(cell=GRU, features=F), "^GRU has reset 'before'.*another function"),
        (Recurrent(cell=partial(RNN, activation="sigmoid"), features=F), "activation 'sigmoid'"),
        (Recurrent(cell=partial(LSTM, peephole=True), features=F), "peephole"),
        (Recurrent(cell=partial(LSTM, layer_norm=True), features=F), "layer_norm"),
        (Recurrent(cell=linen.GRUCell, features=F), "not GRUCell"),
        (Recurrent(cell=LSTM, features=F, zoneout=0.1), "zoneout 0.1"),
        (Bidirectional(cell=LSTM, features=F, merge="sum"), "merge 'sum'"),
        (Stack(layer=partial(Recurrent, cell=LSTM), features=F, residual=True), "residual"),
        (Stack(layer=partial(Recurrent, cell=LSTM), features=F, norm=True), "norm"),
        (Stack(layer=linen.Dense, features=F), "not Dense"),
    ],
)
def test_layers_that_compute_another_function_are_refused(layer, told):
    with pytest.raises(UserError, match=told):
        convert_torch_weights(layer, {})


MIXER = partial(SelfAttention, n_heads=3)
SIZES: dict[str, Any] = {"features": 6, "n_layers": 2, "d_ff": 7, "activation": "relu"}


def transformer(placement="pre", **change):
    return Transformer(partial(MIXER, causal=placement == "post"), **(SIZES | {"placement": placement} | change))


def decoder(placement, **change):
    fields = SIZES | {"placement": placement, "source_attention": partial(SourceAttention, n_heads=3)} | change
    return TransformerDecoder(MIXER, **fields)


def read_attentive(kind):
    with np.load(GOLDEN / f"torch_{kind}.npz") as file:
        return dict(file)


def over_source(decoder, x_BTD, lengths_B, z_BSD, source_lengths_B):
    source = Encoding(z_BSD, last_step(z_BSD, source_lengths_B), None)
    return decoder(x_BTD, lengths_B, state=decoder.start(source, source_lengths_B))


def look(attention, x_BTD, lengths_B, z_BSD, source_lengths_B):
    y_BTF = attention(x_BTD, attention.memory(z_BSD, source_lengths_B))
    return Encoding(jnp.where(valid_mask(lengths_B, x_BTD.shape[1])[..., None], y_BTF, 0), None, None)


ATTENTIVE = {
    "transformer_pre": (transformer("pre"), convert_torch_transformer, None),
    "transformer_post": (transformer("post"), convert_torch_transformer, None),
    "decoder_pre": (decoder("pre"), convert_torch_transformer, over_source),
    "decoder_post": (decoder("post"), convert_torch_transformer, over_source),
    "attention_self": (MIXER(6), convert_torch_attention, None),
    "attention_cross": (SourceAttention(6, n_heads=3), convert_torch_attention, look),
    "attention_other": (SourceAttention(6, n_heads=3), convert_torch_attention, look),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind.endswith("_post") else []) for kind in ATTENTIVE]
)
def test_what_attends_equals_torchs(kind):
    """Outputs, and gradients in the inputs and in every weight, with lengths."""
    golden, (model, convert, method) = read_attentive(kind), ATTENTIVE[kind]
    inputs = [name for name in ("x_BTD", "z_BSD") if name in golden]
    lengths = [golden[name] for name in ("lengths_B", "source_lengths_B") if name in golden]

    @jax.jit
    def run(weights, inputs):
        arguments = [a for pair in zip(inputs, lengths, strict=True) for a in pair]
        y_BTF = model.apply({"params": convert(model, weights)}, *arguments, method=method).y_BTF
        return (golden["weigh/y_BTF"] * y_BTF).sum(), y_BTF

    weights = take(golden, "weights/")
    run = jax.value_and_grad(run, (0, 1), has_aux=True)
    (loss, y_BTF), (dweights, dinputs) = run(weights, [golden[name] for name in inputs])
    np.testing.assert_allclose(y_BTF, golden["y_BTF"], atol=2e-5)
    np.testing.assert_allclose(loss, golden["loss"], rtol=1e-4)
    for key, gradient in (dweights | dict(zip(inputs, dinputs, strict=True))).items():
        np.testing.assert_allclose(gradient, golden[f"grad/{key}"], atol=2e-4, err_msg=key)


@pytest.mark.parametrize("kind", ["transformer_pre", "decoder_post"])
def test_single_layers_of_torch_are_the_layers_of_a_stack(kind):
    weights, (model, convert, _) = take(read_attentive(kind), "weights/"), ATTENTIVE[kind]
    second = convert_torch_block(model, take(weights, "layers.1."))
    layers = convert(model, weights)["layers"]
    jax.tree.map(np.testing.assert_array_equal, second, jax.tree.map(lambda a: a[1], layers))


def test_attention_without_biases_converts():
    weights = take(read_attentive("attention_other"), "weights/")
    bare = {key: a for key, a in weights.items() if "bias" not in key}
    layer = SourceAttention(6, n_heads=3, bias=False)
    own = jax.eval_shape(lambda: layer.init(jax.random.key(0), jnp.zeros((1, 5, 5)), method="memory"))
    found = convert_torch_attention(layer, bare)
    assert own["params"]["W_k"]["kernel"].shape == found["W_k"]["kernel"].shape and "bias" not in found["W_o"]
    with pytest.raises(UserError, match="in_proj_bias is missing"):
        convert_torch_attention(SourceAttention(6, n_heads=3), bare)


@pytest.mark.parametrize(
    ("model", "drop", "message"),
    [
        (transformer(activation="gelu"), None, "activation=relu"),
        (transformer(norm="rms"), None, "norm=layer"),
        (transformer(n_layers=1), None, r"layers\.1\.\S+ in the state dict is not expected"),
        (transformer("post"), None, r"norm\.\w+ in the state dict is not expected"),
        (transformer(d_ff=11), None, r"linear1\.weight has shape \(7, 6\), but this layer needs \(11, 6\)"),
        (transformer(), "layers.1.linear2.bias", r"layers\.1\.linear2\.bias is missing"),
        (decoder("pre"), None, r"multihead_attn\.in_proj_weight is missing"),
        (decoder("pre", source_attention=partial(SourceAttention, n_heads=3, n_kv_heads=1)), None, "a key head for"),
        (decoder("pre", source_attention=partial(SourceAttention, n_heads=3, score=Additive)), None, "scaled dot"),
        (Transformer(partial(Recurrent, cell=GRU), **SIZES), None, "attention with biases"),
    ],
)
def test_a_transformer_of_another_function_is_refused(model, drop, message):
    weights = take(read_attentive("transformer_pre"), "weights/")
    weights.pop(drop, None)
    with pytest.raises(UserError, match=message):
        convert_torch_transformer(model, weights)
