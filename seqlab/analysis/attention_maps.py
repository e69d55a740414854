"""Attention maps: who looks at whom, by layer and head."""

import dataclasses
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict

from seqlab.analysis.attention_figure import draw_heads, draw_maps, draw_rollout, roll_out, tell_cut_of
from seqlab.analysis.attention_pictures import draw_over_picture, picture_of
from seqlab.analysis.findings import Findings, caption, first_rows, replicas
from seqlab.analysis.pages.attention import describe_layer, write_attention
from seqlab.analysis.probe import SEEN, name_layer, place
from seqlab.analysis.tokens import input_tokens, target_tokens
from seqlab.nn.checks import check_place, check_positive
from seqlab.types import Batch, Params, Task, model_arguments, require

if TYPE_CHECKING:
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

    Of hard attention the weights are the probabilities of its draw. Figures show the first `n_tokens` steps, and what
    is looked at of a picture over the picture.

    Raises   UserError for a model without such attention, a row or a replica that there is not, counts below 1.
    Source   Abnar & Zuidema 2020, arXiv:2005.00928, §3.1 (rollout; here only in a stack of self-attention); over
             pictures Xu et al. 2015, arXiv:1502.03044, fig. 2.
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
        check_place("row", self.row, len(batch.inputs))
        check_place("replica", self.replica, len(each))
        look = jax.jit(lambda params: attention_weights(model, params, batch))
        found_R = [look(params) for params in each]
        maps_R = [{layer: np.asarray(found[layer]) for layer in sorted(found, key=place)} for found in found_R]
        require(
            bool(maps_R[0]),
            f"{type(model).__name__} has no attention whose weights could be shown: this is for "
            "model/encoder=transformer with model/mixer=attention, model/decoder=soft, hard and transformer",
        )
        inputs = input_tokens(task, batch, self.row)
        targets = target_tokens(task, batch, self.row) if task.target_per == "sequence" else []
        numbers: dict[str, Any] = {"inputs": inputs, "targets": targets, "maps": {}, "rollout": {}}
        figures: dict[str, Figure] = {}
        over: dict[str, Figure] = {}
        of = f"row {self.row}, replica {self.replica}"
        # What the decoder reads at a step is the target before it.
        before = ["<start>", *targets][: len(targets)]
        own, of_source = split_by_kind({layer: w[self.row] for layer, w in maps_R[self.replica].items()})
        page: list[dict[str, Any]] = []
        picture, has_class = picture_of(batch, self.row), getattr(model.inputs, "class_token", False)
        for kind, maps in (("self", own), ("source", of_source)):
            for stack, layers in by_stack(maps).items():
                rows = targets if kind == "source" else before if stack == "decoder" else inputs
                columns = rows if kind == "self" else inputs
                cut = {layer: np.round(crop(w, rows, columns), 6) for layer, w in layers.items()}
                file = f"{stack}_{kind}_attention"
                first = tell_cut_of(next(iter(cut.values())), self.n_tokens, kind == "self")
                note = "; ".join(filter(None, (of, first, "white: not looked at")))
                numbers["maps"] |= cut
                figures[file] = draw_maps(cut, told(rows), told(columns), self.n_tokens, kind == "source")
                caption(figures[file], note)
                page += [describe_layer(layer, w, rows, columns, kind == "self") for layer, w in cut.items()]
                if kind == "self":
                    R_TT = numbers["rollout"][stack] = roll_out([w.mean(0) for w in cut.values()])
                    figures[f"{file}_rolled_out"] = draw_rollout(cut, told(rows), self.n_tokens)
                    caption(figures[f"{file}_rolled_out"], note)
                    page.append(describe_layer(f"{stack} rolled out", R_TT[None], rows, columns, True))
                if picture is not None and (kind == "source" or stack == "encoder"):
                    figure = draw_over_picture(picture, cut, told(rows), kind == "self", has_class, of)
                    over |= {f"{file}_over_picture": figure} if figure else {}
        numbers["heads"] = {
            layer: {name: np.stack([describe_heads(m[layer], batch, layer)[name] for m in maps_R]) for name in first}
            for layer, first in ((layer, describe_heads(w, batch, layer)) for layer, w in maps_R[0].items())
        }
        figures |= over | {"heads": draw_heads(numbers["heads"])}
        return Findings(numbers, figures, {"attention": write_attention(page, of)})


def attention_weights(model: nn.Module, params: Params, batch: Batch) -> dict[str, jax.Array]:
    """The weights_BHTS of every attention in a model that hands them out, by layer."""
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
    return maps


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
