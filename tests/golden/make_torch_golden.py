"""Write what modules of torch compute into small files for tests/test_torch_parity.py.

The modules are torch.nn.RNN, LSTM, GRU, MultiheadAttention, TransformerEncoder and TransformerDecoder.
Run by hand, with PyTorch (2.13.0 wrote the files in the repository; the tests need the files only):

    python tests/golden/make_torch_golden.py

One file for each kind, number of layers (1, 2) and direction (uni, bi), named `torch_<kind>_<layers>_<direction>.npz`:
    x_BTD, lengths_B              packed input; one row has length 1
    weights/<key>                 the state dict, biases random and not zero
    y_BTF, h_NBF, c_NBF           outputs (zeros past the length) and final states (c of the LSTM alone)
    weigh/y_BTF, /h_NBF, /c_NBF   random G of the scalar loss L = Σ G_y y + Σ G_h h + Σ G_c c
    loss, grad/x_BTD, grad/<key>  L, and its gradients in the input and in every weight
and likewise, with z_BSD, source_lengths_B and grad/z_BSD of a source where there is one,
    torch_transformer_<pre|post>.npz             of two layers, pre without and post with a causal mask
    torch_decoder_<pre|post>.npz                 of two layers, causal
    torch_attention_<self|cross|other>.npz       causal; over a source of the same width; of another
Everything is computed in float64 from numbers that float32 holds, and rounded to float32 once.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

B, T, S, D, F = 3, 7, 5, 2, 5
LENGTHS, SOURCE_LENGTHS = np.array([4, 7, 1]), np.array([5, 1, 3])
KINDS = {
    "rnn_tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
}
ATTENTIVE = (
    *("transformer_pre", "transformer_post", "decoder_pre", "decoder_post"),
    *("attention_self", "attention_cross", "attention_other"),
)


def make(kind: str, n_layers: int, bidirectional: bool, seed: int) -> dict[str, np.ndarray]:
    """Draw weights and a batch, run torch forward and backward, and give every array of the file."""
    rng = np.random.default_rng(seed)

    def draw(shape, scale=1.0):
        return torch.tensor(rng.normal(scale=scale, size=shape).astype(np.float32), dtype=torch.float64)

    build, options = KINDS[kind]
    module = build(D, F, n_layers, batch_first=True, bidirectional=bidirectional, **options).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(draw(weight.shape, scale=0.5))
    x_BTD = draw((B, T, D)).requires_grad_()

    packed = pack_padded_sequence(x_BTD, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    y, state = module(packed)
    y_BTF, _ = pad_packed_sequence(y, batch_first=True, total_length=T)
    out = {"y_BTF": y_BTF} | dict(zip(("h_NBF", "c_NBF"), state if kind == "lstm" else (state,), strict=False))
    weigh = {name: draw(value.shape) for name, value in out.items()}
    loss = sum((weigh[name] * value).sum() for name, value in out.items())
    loss.backward()

    arrays = {"x_BTD": x_BTD, "loss": loss, "grad/x_BTD": x_BTD.grad} | out
    arrays |= {f"weigh/{name}": value for name, value in weigh.items()}
    arrays |= {f"weights/{key}": weight for key, weight in module.named_parameters()}
    arrays |= {f"grad/{key}": weight.grad for key, weight in module.named_parameters()}
    return {name: a.detach().numpy().astype(np.float32) for name, a in arrays.items()} | {"lengths_B": LENGTHS}


def make_attention(kind: str, seed: int) -> dict[str, np.ndarray]:
    """The same for what attends: one attention, or an encoder or decoder of two Transformer layers."""
    rng = np.random.default_rng(seed)

    def draw(shape, scale=1.0):
        return torch.tensor(rng.normal(scale=scale, size=shape).astype(np.float32), dtype=torch.float64)

    name, _, variant = kind.partition("_")
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": variant == "pre"}
    norm = torch.nn.LayerNorm(6) if variant == "pre" else None
    d_source = 5 if variant == "other" else 6
    module: torch.nn.Module
    if name == "attention":
        module = torch.nn.MultiheadAttention(6, 3, kdim=d_source, vdim=d_source, batch_first=True).double()
    elif name == "transformer":
        layer = torch.nn.TransformerEncoderLayer(6, 3, 7, **options)
        module = torch.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False).double()
    else:
        module = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(6, 3, 7, **options), 2, norm).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(draw(weight.shape, scale=0.5))
    x_BTD = draw((B, T, 6)).requires_grad_()
    padding_BT = torch.arange(T) >= torch.tensor(LENGTHS)[:, None]
    future_TT = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    inputs, lengths = {"x_BTD": x_BTD}, {"lengths_B": LENGTHS}
    if name == "transformer":
        y_BTF = module(x_BTD, None if variant == "pre" else future_TT, padding_BT)
    elif variant == "self":
        y_BTF, _ = module(x_BTD, x_BTD, x_BTD, attn_mask=future_TT, key_padding_mask=padding_BT)
    else:
        z_BSD = inputs["z_BSD"] = draw((B, S, d_source)).requires_grad_()
        lengths["source_lengths_B"] = SOURCE_LENGTHS
        padding_BS = torch.arange(S) >= torch.tensor(SOURCE_LENGTHS)[:, None]
        if name == "attention":
            y_BTF, _ = module(x_BTD, z_BSD, z_BSD, key_padding_mask=padding_BS)
        else:
            y_BTF = module(x_BTD, z_BSD, future_TT, None, padding_BT, padding_BS)
    y_BTF = y_BTF.masked_fill(padding_BT[..., None], 0)
    weigh = draw(y_BTF.shape)
    loss = (weigh * y_BTF).sum()
    loss.backward()
    arrays = {"loss": loss, "y_BTF": y_BTF, "weigh/y_BTF": weigh} | inputs
    arrays |= {f"grad/{name}": a.grad for name, a in inputs.items()}
    arrays |= {f"weights/{key}": weight for key, weight in module.named_parameters()}
    arrays |= {f"grad/{key}": weight.grad for key, weight in module.named_parameters()}
    return {name: a.detach().numpy().astype(np.float32) for name, a in arrays.items()} | lengths


if __name__ == "__main__":
    for seed, kind in enumerate(ATTENTIVE):
        path = Path(__file__).parent / f"torch_{kind}.npz"
        np.savez_compressed(path, **make_attention(kind, seed))  # type: ignore[arg-type]
        print(path.name, path.stat().st_size)
    for seed, (kind, n_layers, bidirectional) in enumerate(product(KINDS, (1, 2), (False, True))):
        path = Path(__file__).parent / f"torch_{kind}_{n_layers}_{'bi' if bidirectional else 'uni'}.npz"
        np.savez_compressed(path, **make(kind, n_layers, bidirectional, seed))  # type: ignore[arg-type]
        print(path.name, path.stat().st_size)
