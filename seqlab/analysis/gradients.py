"""Gradients through time: how much of a loss at the end of a row reaches each step before it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seqlab.analysis.disturb import apply_disturbed, by_layer, disturbances
from seqlab.analysis.findings import Findings, first_rows, replicas
from seqlab.analysis.gradients_figure import Jacobians, Norms, draw
from seqlab.analysis.probe import carry_names, count_targets, is_decoding, is_turned
from seqlab.analysis.recurrent_parts import RecurrentPart, recurrent_parts, walk
from seqlab.models.bilm import reverse_rows
from seqlab.nn.checks import check_positive
from seqlab.types import Array, Batch, Params, Task, model_arguments


@dataclasses.dataclass(frozen=True)
class Gradients:
    """How the gradient of the last loss of a row, L_T, and the last state, s_T, depend on what was k steps before.

        ‖∂L_T/∂x_t‖, ‖∂L_T/∂s_t‖, ‖∂L_T/∂y_t‖    x_t: what the encoder reads ("inputs"), and the decoder ("targets");
                                                 s_t: the carry of a recurrent layer, of an LSTM both C and h;
                                                 y_t: what a Transformer's block gives out
        largest and mean singular value of ∂h_T/∂h_t = the h–h part of J_T J_{t+1 …},  J_t = ∂s_t/∂s_{t−1}
        of C besides: the same of ∂C_T/∂C_t, and "alone", of the product of ∂C_t/∂C_{t−1} with h held fast: of an
        LSTM without peepholes the product of its forget gates

    ∂L_T/∂s_t is along all paths from s_t on. Norms and singular values are averaged over `rows` rows (`jacobian_rows`
    for the latter), which are aligned at their ends; T is the last step of a row. L_T is the loss of the last target
    of a row alone. Gradients are float32, as in training, and 0 beyond its range; the products are float64.

    The steps t of a decoder are those of the targets, of which it is told the one before; those of all else are the
    source's. Of a layer "backward", ∂L_T/∂s_t stands at the step that it has just read, and its Jacobians go on in the
    order of its reading. In ∂s_T/∂s_t all that a layer reads is held fast: of a decoder what it saw of the source too,
    though that depends on its state. Hard attention looks at the likeliest place, and has no gradient through where.

    Raises   UserError for counts below 1.
    Source   Hochreiter 1991; Bengio et al. 1994; Pascanu et al. 2013, arXiv:1211.5063, §2.1.
    """

    rows: int = 32
    jacobian_rows: int = 4
    n_lags: int = 50

    def __post_init__(self) -> None:
        for name in ("rows", "jacobian_rows", "n_lags"):
            check_positive(name, getattr(self, name))

    def __call__(self, model: nn.Module, params_R: Params, task: Task, batch: Batch) -> Findings:
        batch = first_rows(batch, self.rows)
        few = first_rows(batch, self.jacobian_rows)
        norms_of = make_norms(model, task, batch)
        norms = stack([norms_of(params) for params in replicas(params_R)])
        jacobians = stack([self._jacobians(model, params, few) for params in replicas(params_R)])
        counts = len(batch.inputs), len(few.inputs)
        figure = draw(norms, jacobians, counts, "places of the picture" if batch.inputs.ndim == 4 else None)
        followed = {
            f"{layer.replace(' ', '_')}/{name}/{where}": norm_RT[:, at]
            for layer, named in norms.items()
            for name, norm_RT in named.items()
            for where, at in (("first_step", 0), ("last_step", -1))
        }
        return Findings({"gradients": norms, "jacobians": jacobians}, {"gradients": figure}, followed=followed)

    def _jacobians(self, model: nn.Module, params: Params, batch: Batch) -> Jacobians:
        parts = recurrent_parts(model, params, model_arguments(model, batch))
        return {part.name: jacobian_norms(part, self.n_lags) for part in parts}


def make_norms(model: nn.Module, task: Task, batch: Batch) -> Callable[[Params], Norms]:
    """The function `params -> ‖∂L_T/∂ …‖` by layer and name, each _T against t − T = −T+1 … 0, a mean over rows."""
    last, arguments = only_last_targets(batch), model_arguments(model, batch)

    @jax.jit
    def gradient(params: Params) -> Params:
        def loss(disturbance: Params) -> Array:
            outputs = apply_disturbed(model, params, disturbance, arguments)
            return task.measure(outputs, last)["loss"][0]

        return jax.grad(loss)(disturbances(model, params, arguments))

    def norms(params: Params) -> Norms:
        found: Norms = {}
        for layer, name, d_BTF in by_layer(model, gradient(params)):
            lengths_B = count_targets(batch.weights) if is_decoding(layer) else batch.lengths
            d_BTF = reverse_rows(d_BTF, lengths_B) if is_turned(layer) else d_BTF
            norm_BT = np.linalg.norm(np.asarray(d_BTF, np.float64), axis=-1)
            found.setdefault(layer, {})[name] = np.nanmean(align_ends(norm_BT, lengths_B), 0)
        return found

    return norms


def only_last_targets(batch: Batch) -> Batch:
    """The batch with weight on the last target of each row alone."""
    if batch.weights.ndim == 1:
        return batch
    T = batch.weights.shape[1]
    real_BT = batch.weights.reshape(*batch.weights.shape[:2], -1).any(-1)
    last_B = T - 1 - jnp.argmax(real_BT[:, ::-1], 1)
    kept_BT = (jnp.arange(T) == last_B[:, None]).reshape(*real_BT.shape, *[1] * (batch.weights.ndim - 2))
    return batch.replace(weights=batch.weights * kept_BT)  # type: ignore[attr-defined]


def align_ends(a_BT: np.ndarray, lengths_B: Array | None) -> np.ndarray:
    """Move each row to the right until its last real step is the last, of as many as the longest has; NaN where nothing
    was."""
    n_B1 = np.full((len(a_BT), 1), a_BT.shape[1]) if lengths_B is None else np.asarray(lengths_B)[:, None]
    T = max(1, int(n_B1.max()))
    from_BT = np.arange(T) - (T - n_B1)
    return np.where(from_BT >= 0, np.take_along_axis(a_BT, np.maximum(from_BT, 0), 1), np.nan)


def jacobian_norms(part: RecurrentPart, n_lags: int) -> dict[str, dict[str, np.ndarray]]:
    """Singular values of ∂s_T/∂s_{T−k} of one layer, by part of its carry, at `n_lags` lags k from 1 to T − 1 at most.

    Names    "lag", and for each leaf of the carry "largest" and "mean"; for all but h also those of the path "alone".
    """
    s_BTS, x_BTD, step = walk(part)
    B, T, S = s_BTS.shape
    names = carry_names(part.start)
    n_B = np.full(B, T) if part.lengths_B is None else np.asarray(part.lengths_B)
    # Of a row of length 1 nothing comes before; of a batch of such there is nothing to say.
    lags = np.unique(np.linspace(1, max(1, n_B.max() - 1), n_lags).astype(int))

    @jax.jit
    def jacobian(params: Params, s_BTS: Array, x_BTD: Array, t_B: Array) -> Array:
        b_B = jnp.arange(B)
        of_row = jax.jacrev(step, argnums=1)
        return jax.vmap(of_row, (None, 0, 0))(params, s_BTS[b_B, t_B], x_BTD[b_B, t_B])

    F = S // len(names)
    places = [slice(k * F, (k + 1) * F) for k in range(len(names))]
    whole_BSS = np.broadcast_to(np.eye(S), (B, S, S))
    alone = {name: np.broadcast_to(np.eye(F), (B, F, F)) for name in names[:-1]}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}

    def note(name: str, what: str, J_BFF: np.ndarray, known_B: np.ndarray) -> None:
        σ_BF = np.linalg.svd(J_BFF[known_B], compute_uv=False)
        for statistic, value in (("largest", σ_BF.max(-1)), ("mean", σ_BF.mean(-1))):
            found[name].setdefault(f"{statistic}{what}", []).append(float(value.mean()) if known_B.any() else np.nan)

    for lag in range(1, int(lags[-1]) + 1):
        t_B = np.maximum(n_B - lag, 0)
        J_BSS = np.asarray(jacobian(part.params, s_BTS, x_BTD, t_B), np.float64)
        whole_BSS = whole_BSS @ J_BSS
        alone = {name: alone[name] @ J_BSS[:, at, at] for name, at in zip(alone, places, strict=False)}
        if lag in lags:
            for name, at in zip(names, places, strict=True):
                note(name, "", whole_BSS[:, at, at], n_B > lag)
                if name in alone:
                    note(name, "_alone", alone[name], n_B > lag)
    return {name: {"lag": lags} | {k: np.array(v) for k, v in values.items()} for name, values in found.items()}


def stack(trees: list[Any]) -> Any:
    """Trees of the same keys as one, with the replicas first; lags, which are the same, once."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: first[key] if key == "lag" else stack([tree[key] for tree in trees]) for key in first}
    return np.stack(trees)
