"""Attention maps: who looks at whom, by layer and head."""

import dataclasses
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict

from seqlab.analysis.findings import Findings, caption, colour, dress, first_rows, replicas
from seqlab.analysis.probe import SEEN, name_layer
from seqlab.analysis.tokens import input_tokens, target_tokens
from seqlab.nn.checks import check_positive
from seqlab.types import Batch, Params, Task, model_arguments, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Maps = dict[str, np.ndarray]
"""weights_BHTS by layer."""


@dataclasses.dataclass(frozen=True)
class AttentionMaps:
    """The weights w_ts with which step t looks at step s, of self-attention and of attention to a source.

        maps      w_HTS of each layer, of row `row` of the set and of replica `replica`
        averaged  w̄_TS = 1/H Σ_h w_hts
        rollout   R_l = ½ (w̄_l + I) R_{l−1}, rows divided by their sums, R_0 = I: how much of step s there is in step t
                  after l layers, if a residual counts as much as what attention adds
        entropy   −Σ_s w_ts ln w_ts, in nats;   distance   Σ_s w_ts |t − s|, of self-attention alone
                  means over the real steps of `rows` rows, for each head, with all replicas

    Figures show the first `n_tokens` steps.

    Raises   UserError for a model without such attention, a row or a replica that there is not, counts below 1.
    Source   Abnar & Zuidema 2020, arXiv:2005.00928, §3.1 (rollout; here only in a stack of self-attention).
    Differs  Hard attention draws one place and hands out no weights.
    """

    row: int = 0
    replica: int = 0
    rows: int = 64
    n_tokens: int = 32

    def __post_init__(self) -> None:
        for name in ("rows", "n_tokens"):
            check_positive(name, getattr(self, name))

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings:
        batch = first_rows(batch, self.rows)
        each = replicas(params_R)
        for name, value, n in (("row", self.row, len(batch.inputs)), ("replica", self.replica, len(each))):
            require(0 <= value < n, f"{name} is {value}, but there are {n}: expected 0 to {n - 1}")
        look = jax.jit(lambda params: attention_weights(model, params, batch))
        maps_R = [{layer: np.asarray(w) for layer, w in look(params).items()} for params in each]
        require(
            bool(maps_R[0]),
            f"{type(model).__name__} has no attention whose weights could be shown: this is for "
            "model/encoder=transformer with model/mixer=attention, model/decoder=soft and model/decoder=transformer",
        )
        inputs = input_tokens(task, batch, self.row)
        targets = target_tokens(task, batch, self.row) if task.target_per == "sequence" else []
        numbers: dict[str, Any] = {"inputs": inputs, "targets": targets, "maps": {}, "rollout": {}}
        figures: dict[str, Figure] = {}
        # What the decoder reads at a step is the target before it.
        before = ["<start>", *targets][: len(targets)]
        own, of_source = split_by_kind({layer: w[self.row] for layer, w in maps_R[self.replica].items()})
        for kind, maps in (("self", own), ("source", of_source)):
            for stack, layers in by_stack(maps).items():
                is_decoder = stack == "decoder"
                rows, columns = (
                    (targets, inputs) if kind == "source" else (before,) * 2 if is_decoder else (inputs,) * 2
                )
                cut = {layer: np.round(crop(w, rows, columns), 6) for layer, w in layers.items()}
                file = f"{stack}_{kind}_attention"
                numbers["maps"] |= cut
                figures[file] = draw_maps(cut, told(rows), told(columns), self.n_tokens)
                if kind == "self":
                    numbers["rollout"][stack] = roll_out([w.mean(0) for w in cut.values()])
                    figures[f"{file}_rolled_out"] = draw_rollout(cut, told(rows), self.n_tokens)
        numbers["heads"] = {
            layer: {name: np.stack([describe_heads(m[layer], batch, layer)[name] for m in maps_R]) for name in first}
            for layer, first in ((layer, describe_heads(w, batch, layer)) for layer, w in maps_R[0].items())
        }
        for figure in figures.values():
            caption(figure, f"row {self.row}, replica {self.replica}; white: not looked at")
        figures["heads"] = draw_heads(numbers["heads"])
        return Findings(numbers, figures)


def attention_weights(model: nn.Module, params: Params, batch: Batch) -> dict[str, jax.Array]:
    """The weights_BHTS of every attention in a model that hands them out, by layer, in the order of the layers."""
    arguments = model_arguments(model, batch)
    sown = model.apply({"params": params}, *arguments, train=False, mutable=[SEEN])[1].get(SEEN, {})
    maps = {}
    for path, (weights,) in flatten_dict(sown).items():
        if path[-1] != "weights":
            continue
        stacked = weights.ndim == 5
        # The inputs may hold a network of their own; the mixer's name says nothing that "layer" does not.
        words = tuple(word for word in path[:-1] if word not in ("mixer", "attention"))
        for n in range(len(weights) if stacked else 1):
            name = name_layer(words, n if stacked else None)
            name = name if words[0] != "encoder" else f"encoder {name}".removesuffix(" encoder")
            maps[name] = weights[n] if stacked else weights
    return dict(sorted(maps.items()))


def split_by_kind(maps: Maps) -> tuple[Maps, Maps]:
    """The maps of self-attention, and those of attention to a source."""
    of_source = {layer: w for layer, w in maps.items() if layer == "decoder" or layer.endswith("source")}
    return {layer: w for layer, w in maps.items() if layer not in of_source}, of_source


def by_stack(maps: Maps) -> dict[str, Maps]:
    """The maps of each stack of layers: those of the encoder, of the decoder."""
    stacks: dict[str, Maps] = {}
    for layer, w in maps.items():
        stacks.setdefault(layer.split()[0], {})[layer] = w
    return stacks


def crop(w_HTS: np.ndarray, rows: list[str], columns: list[str]) -> np.ndarray:
    """The map of the real steps; of inputs that are no tokens, of all."""
    return w_HTS[:, : len(rows) or None, : len(columns) or None]


def told(tokens: list[str]) -> list[str]:
    """Tokens to write on an axis, none where they are the numbers of steps."""
    return [] if tokens == [str(t) for t in range(len(tokens))] else tokens


def roll_out(averaged_NTT: list[np.ndarray]) -> np.ndarray:
    """R_N, the product of ½ (w̄ + I) over the layers, each row divided by its sum."""
    R_TT = np.eye(len(averaged_NTT[0]))
    for w_TT in averaged_NTT:
        mixed_TT = (w_TT + np.eye(len(w_TT))) / 2
        R_TT = mixed_TT / mixed_TT.sum(-1, keepdims=True) @ R_TT
    return R_TT


def describe_heads(w_BHTS: np.ndarray, batch: Batch, layer: str) -> dict[str, np.ndarray]:
    """The mean entropy of each head, and of self-attention the mean distance, over the real steps."""
    B, _, T, S = w_BHTS.shape
    is_source = layer == "decoder" or layer.endswith("source")
    if layer.startswith("decoder"):
        real_BT = np.asarray(batch.weights)[:, :T] > 0
    elif batch.lengths is None:
        real_BT = np.ones((B, T), bool)
    else:
        real_BT = np.arange(T) < np.asarray(batch.lengths)[:, None]
    n = max(1, real_BT.sum())
    logs = np.log(np.where(w_BHTS > 0, w_BHTS, 1))
    described = {"entropy": np.einsum("bhts,bhts,bt->h", w_BHTS, -logs, real_BT) / n}
    if not is_source:
        distance_TS = np.abs(np.arange(T)[:, None] - np.arange(S))
        described["distance"] = np.einsum("bhts,ts,bt->h", w_BHTS, distance_TS, real_BT) / n
    return described


def draw_maps(maps: Maps, rows: list[str], columns: list[str], n_tokens: int) -> "Figure":
    """Draw each head of each layer: a row of panels for each layer."""
    n_heads = max(len(w) for w in maps.values())
    figure, axes = _grid(len(maps), n_heads, maps, n_tokens)
    for panels, (layer, w_HTS) in zip(axes, maps.items(), strict=True):
        for h, axis in enumerate(panels):
            if h < len(w_HTS):
                image = _draw_map(axis, w_HTS[h], f"{layer}, head {h + 1}", rows, columns, n_tokens)
            else:
                axis.set_axis_off()
    figure.colorbar(image, ax=list(axes.flat), label="weight", shrink=0.8, aspect=40, pad=0.01)
    return figure


def draw_rollout(maps: Maps, tokens: list[str], n_tokens: int) -> "Figure":
    """Draw the average over the heads of each layer, and below it the rollout up to that layer."""
    figure, axes = _grid(2, len(maps), maps, n_tokens)
    averaged = [w.mean(0) for w in maps.values()]
    for n, layer in enumerate(maps):
        _draw_map(axes[0, n], averaged[n], f"{layer}, averaged", tokens, tokens, n_tokens)
        image = _draw_map(axes[1, n], roll_out(averaged[: n + 1]), "rolled out", tokens, tokens, n_tokens)
    figure.colorbar(image, ax=list(axes.flat), label="weight", shrink=0.8, aspect=40, pad=0.01)
    return figure


def draw_heads(heads: dict[str, dict[str, np.ndarray]]) -> "Figure":
    """Draw entropy and distance of each head, a dot a replica: heads of two seeds have nothing but a number in common,
    so nothing is averaged over them."""
    from matplotlib.figure import Figure

    measures = sorted({name for of_layer in heads.values() for name in of_layer}, reverse=True)
    n_lines = sum(named["entropy"].shape[1] + 1 for named in heads.values())
    figure = Figure(figsize=(5.0 * len(measures), 1.4 + 0.22 * n_lines), layout="constrained")
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    units = {"entropy": "entropy (nats)", "distance": "distance (steps)"}
    for axis, measure in zip(axes, measures, strict=True):
        place, ticks = 0, {}
        for n, (layer, named) in enumerate(heads.items()):
            for h, values_R in enumerate(named[measure].T if measure in named else ()):
                axis.plot(values_R, [place] * len(values_R), "o", color=colour(n), markersize=5, alpha=0.6)
                ticks[place] = f"{layer}, head {h + 1}"
                place += 1
            place += 1
        axis.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
        axis.invert_yaxis()
        dress(axis, f"Mean {measure} of each head", f"{units[measure]}, a dot a seed", "")
        axis.set_xlim(left=0)
    return figure


def _grid(n_rows: int, n_columns: int, maps: Maps, n_tokens: int) -> tuple["Figure", np.ndarray]:
    from matplotlib.figure import Figure

    T, S = (min(n_tokens, max(w.shape[axis] for w in maps.values())) for axis in (1, 2))
    width, height = (min(3.6, max(2.0, 0.1 * n + 0.8)) for n in (S, T))
    figure = Figure(figsize=(width * n_columns + 0.8, height * n_rows + 0.5), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _draw_map(axis: "Axes", w_TS: np.ndarray, title: str, rows: list[str], columns: list[str], n: int) -> Any:
    from matplotlib.colors import PowerNorm

    # The square root makes weights of 1/T visible beside those of 1.
    # White where nothing is looked at.
    w_TS = np.ma.masked_equal(w_TS[:n, :n], 0)
    image = axis.imshow(w_TS, cmap="magma_r", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
    axis.set_title(title, fontsize=8, loc="left")
    for tokens, size, ticks in ((columns, w_TS.shape[1], axis.set_xticks), (rows, w_TS.shape[0], axis.set_yticks)):
        if tokens:
            turn = 90 if ticks == axis.set_xticks and max(map(len, tokens[:size])) > 1 else 0
            ticks(range(size), tokens[:size], fontsize=6, rotation=turn)
    axis.tick_params(length=1.5, pad=1, labelsize=6)
    return image
