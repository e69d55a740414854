"""Laws of the analyses, over every YAML that makes an encoder or a decoder, and against counts and loops by hand."""

import re
from functools import partial

import hydra
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from sparing import is_variant, sparing

from seqlab.analysis.attention_figure import roll_out
from seqlab.analysis.attention_maps import AttentionMaps, describe_heads
from seqlab.analysis.attention_pictures import draw_over_picture, find_grid
from seqlab.analysis.disturb import apply_disturbed, disturbances
from seqlab.analysis.findings import draw_band, first_rows, pick
from seqlab.analysis.gradients import Gradients, align_ends, jacobian_norms, make_norms, only_last_targets
from seqlab.analysis.gradients_figure import draw
from seqlab.analysis.probe import place
from seqlab.analysis.recurrent_parts import recurrent_parts
from seqlab.analyze import analyze
from seqlab.build import build
from seqlab.files import read_json
from seqlab.nn.transformer import Block
from seqlab.overrides import CONF
from seqlab.types import Batch, UserError, model_arguments

ROWS, T, F = 3, 7, 8  # four heads of two
TASKS = {
    "classifier": ("task=copy_first", f"task.length={T}", "task.vocab_size=3"),
    "tagger": ("task=char_lm", f"task.length={T}"),
    "bilm": ("task=bidirectional_lm", f"task.length={T}"),
    "encoder_decoder": ("task=copy_sequence", "task.n_symbols=3", "task.vocab_size=3"),
}
SMALL = (f"model.encoder.features={F}", f"model.inputs.features={F}")


def names(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def of_model(model, *overrides):
    return (*TASKS[model], f"model={model}", *SMALL, *overrides)


RNN = "model/cell=rnn"
CASES = {
    **{f"model={name}": of_model(name, RNN) for name in names("model")},
    **{f"encoder={name}": of_model("classifier", f"model/encoder={name}") for name in ("stack", "identity")},
    **{f"layer={name}": of_model("classifier", f"model/layer={name}", RNN) for name in names("model/layer")},
    **{f"cell={name}": of_model("classifier", f"model/cell={name}") for name in names("model/cell")},
    **{
        f"mixer={name}": of_model("tagger", "model/encoder=transformer", f"model/mixer={name}")
        for name in names("model/mixer")
    },
    **{f"decoder={name}": of_model("encoder_decoder", RNN, f"model/decoder={name}") for name in names("model/decoder")},
    "reverse": of_model("classifier", RNN, "model.encoder.layer.reverse=true", "model.encoder.layer.zoneout=0.3"),
    "deep": of_model("tagger", RNN, "model.encoder.n_layers=2", "model.encoder.norm=true"),
}
SPARED = [
    *(f"cell={path.stem}" for path in (CONF / "model/cell").glob("*.yaml") if is_variant(path)),
    *(f"cell={name}" for name in ("rnn", "lstm", "gru", "flax_gru", "gru_layer_norm", "lstm_peephole")),
    *("encoder=stack", "layer=recurrent", "mixer=lstm", "mixer=gru", "model=tagger", "model=classifier"),
    *("decoder=context", "decoder=soft", "decoder=hard", "decoder=fixed", "decoder=transformer", "deep"),
    *("model=encoder_decoder", "mixer=attention", "model=bilm", "mixer=rnn", "reverse", "cell=flax_lstm"),
]


@pytest.fixture(scope="module")
def looked_at(compose):
    """The parts of a case, parameters of replicas drawn without compiling, and a few rows."""

    def looked_at(overrides, n_replicas=1):
        parts = build(compose("+debug=tiny", *overrides))
        batch = first_rows(parts.sets["test"], ROWS)
        shapes = jax.eval_shape(
            lambda: parts.model.init(jax.random.key(0), *model_arguments(parts.model, batch), train=False)
        )["params"]
        rng = np.random.default_rng(1)
        draw = lambda a: rng.normal(scale=0.5, size=(n_replicas, *a.shape)).astype(a.dtype)  # noqa: E731
        return parts.model, jax.tree.map(draw, shapes), parts.task, batch

    return looked_at


def at(params_R, r):
    return jax.tree.map(lambda leaf: leaf[r], params_R)


def given(model, params, batch):
    return model, params, model_arguments(model, batch)


@pytest.mark.parametrize("name", sparing(CASES, SPARED.__contains__))
def test_gradients_reach_every_layer_of_every_model(looked_at, name):
    model, params_R, task, batch = looked_at(CASES[name])
    arguments = model_arguments(model, batch)

    @jax.jit
    def both(params):
        δ = disturbances(model, params, arguments)
        return model.apply({"params": params}, *arguments, train=False), apply_disturbed(model, params, δ, arguments)

    # What is disturbed by nothing is the model.
    np.testing.assert_allclose(*both(at(params_R, 0)), rtol=1e-4, atol=1e-5)
    numbers, figures, *_ = Gradients(rows=ROWS, jacobian_rows=2, n_lags=2)(model, params_R, task, batch)
    assert "inputs" in numbers["gradients"] and (len(numbers["gradients"]) > 1 or "identity" in name)
    for layer, named in numbers["gradients"].items():
        for what, norm_RT in named.items():
            assert norm_RT.shape[0] == 1 and norm_RT.ndim == 2
            assert np.isfinite(norm_RT).all() and (norm_RT > 0).any(), f"{layer} {what}"
    recurrent = [named for named in numbers["gradients"].values() if "h" in named]
    assert len(numbers["jacobians"]) == len(recurrent)
    for named in numbers["jacobians"].values():
        for values in named.values():
            lag = values["lag"]
            for statistic in values.keys() - {"lag"}:
                assert values[statistic].shape == (1, len(lag)) and (values[statistic] >= 0).all()
            assert (values["largest"] >= values["mean"]).all() and (values["largest"][0, 0] > 0)
    panels = [axis for axis in figures["gradients"].axes if axis.axison]
    n_sides = 1 + hasattr(model, "decoder")
    assert n_sides == 1 or any(layer.startswith("decoder") for layer in numbers["gradients"])
    assert len(panels) == n_sides + len(recurrent) and all(axis.lines for axis in panels)
    of_jacobians = ", of the Jacobians 2; " if recurrent else "; "
    assert figures["gradients"].get_supxlabel().startswith(f"{ROWS} rows{of_jacobians}")


def walk_by_hand(params, x_BTD, lengths):
    """The states (C, h) of an LSTM before each step and its forget gates, row by row in loops, and its step's vjp."""
    gates = params["encoder"]["layers_0"]["core"]["gates"]

    @jax.jit
    def step(s, x):
        C, h = s
        f, i, o, c = jnp.split(x @ gates["kernel"] + h @ gates["recurrent_kernel"] + gates["bias"], 4)
        C = jax.nn.sigmoid(f) * C + jax.nn.sigmoid(i) * jnp.tanh(c)
        return (C, jax.nn.sigmoid(o) * jnp.tanh(C)), jax.nn.sigmoid(f)

    rows = []
    for x_TD, n in zip(x_BTD, lengths, strict=True):
        states, forget = [(jnp.zeros(F), jnp.zeros(F))], []
        for t in range(n):
            s, f = step(states[-1], x_TD[t])
            states.append(s)
            forget.append(f)
        rows.append((states, forget))
    return rows, jax.jit(lambda s, x, cotangent: jax.vjp(lambda s: step(s, x)[0], s)[1](cotangent)[0])


def test_gradients_and_jacobians_equal_an_explicit_loop_of_vjps(looked_at):
    model, params_R, task, batch = looked_at(of_model("classifier", "model/cell=lstm"), n_replicas=2)
    lengths = np.array([T, 4, 2])
    batch = batch.replace(lengths=lengths)
    analysis = Gradients(rows=ROWS, jacobian_rows=ROWS, n_lags=T)
    numbers, *_ = analysis(model, params_R, task, batch)
    for r in range(2):
        params = at(params_R, r)
        x_BTD = recurrent_parts(model, params, model_arguments(model, batch))[0].x_BTD
        rows, pull = walk_by_hand(params, x_BTD, lengths)
        gradients = {name: np.full((ROWS, T), np.nan) for name in ("C", "h")}
        σ = {name: np.full((ROWS, T - 1, 3), np.nan) for name in ("C", "h")}
        for b, (states, forget) in enumerate(rows):
            n = lengths[b]

            def loss(s, b=b, params=params):
                logits = s[1] @ params["head"]["kernel"] + params["head"]["bias"]
                return -jax.nn.log_softmax(logits)[batch.targets[b]]

            λ = jax.grad(loss)(states[n])
            units = [jax.tree.map(lambda e: jnp.asarray(e, jnp.float32), (np.eye(F)[k], np.zeros(F))) for k in range(F)]
            units += [(h, C) for C, h in units]
            cotangents, gone = units, np.ones(F)
            for k in range(n):
                for name, leaf in zip(("C", "h"), λ, strict=True):
                    gradients[name][b, T - 1 - k] = np.linalg.norm(leaf)
                t = n - 1 - k
                λ, *cotangents = [pull(states[t], x_BTD[b, t], u) for u in (λ, *cotangents)]
                gone = gone * forget[t]
                if k < n - 1:
                    for j, name in enumerate(("C", "h")):
                        J = np.stack([u[j] for u in cotangents[j * F : (j + 1) * F]])
                        values = np.linalg.svd(J, compute_uv=False)
                        σ[name][b, k] = values.max(), values.mean(), np.mean(gone)
        for j, name in enumerate(("C", "h")):
            found = numbers["gradients"]["layer 1"][name][r]
            np.testing.assert_allclose(found, np.nanmean(gradients[name], 0), rtol=1e-4, atol=1e-7)
            jacobians = numbers["jacobians"]["layer 1"][name]
            assert (jacobians["lag"] == np.arange(1, T)).all()
            for k, what in enumerate(("largest", "mean", "mean_alone")[: 3 - j]):
                np.testing.assert_allclose(jacobians[what][r], np.nanmean(σ[name][..., k], 0), rtol=1e-4, atol=1e-7)


S, TARGET_LENGTHS = 3, (4, 3)
LSTM_DECODER = "model/cell@model.decoder.layer.layer.cell=lstm"
DECODERS = {
    name: of_model("encoder_decoder", RNN, f"model/decoder={name}", LSTM_DECODER)
    for name in names("model/decoder")
    if name != "transformer"
}


def padded(batch):
    """Two rows with something in the padding of their sources and their targets, and without it."""
    n_B1 = np.array(TARGET_LENGTHS)[:, None]
    weights = (np.arange(5) < n_B1).astype(np.float32)
    targets = np.where(weights > 0, np.resize(batch.targets, (2, 5)), 2)
    inputs = np.pad(np.resize(batch.inputs, (2, S)), ((0, 0), (0, 1)), constant_values=1)
    rows = [(inputs[b : b + 1, :S], targets[b : b + 1, :n]) for b, n in enumerate(TARGET_LENGTHS)]
    return batch.replace(inputs=inputs, lengths=np.full(2, S), targets=targets, weights=weights), rows


def decoder_by_hand(model, params):
    """Its own steps of a recurrent decoder of one layer, whose carry is `layers`:

    read(source_1S, targets_1T) -> its state at the start, and what it is told at each step
    step(start, layers, x_1D) -> layers, [s_t; c_t]
    """

    def encode(model, source):
        return model.decoder.start(model.encoder(model.inputs(source, train=False), train=False))

    start = jax.jit(lambda source: model.apply({"params": params}, source, method=encode))

    def read(source, targets):
        return start(source), params["targets"]["E"]["embedding"][[[model.n_outputs, *targets[0, :-1]]]]

    def step(start, layers, x_1D):
        state, y_1F = model.apply(
            {"params": params}, method=lambda model: model.decoder.step(start._replace(layer=layers), x_1D)
        )
        return state.layer, y_1F

    return read, step


def decoders_gradients_by_hand(model, params, rows):
    """By row the norms of ∂L_T/∂s_t of C and h, and ∂s_t/∂s_{t−1} with what is read held fast, at each step."""
    read, step = decoder_by_hand(model, params)

    def core(s_S, read_1D):
        layers = ((s_S[None, :F], s_S[None, F:]),)
        layers, _ = model.apply({"params": params}, method=lambda model: model.decoder.core.step(layers, read_1D))
        return jnp.concatenate(layers[0], -1)[0]

    def loss(y_1F, target):
        return -jax.nn.log_softmax(model.apply({"params": params}, y_1F, method="_say"))[0, target]

    @jax.jit
    def back(start, layers, x, cotangents):
        (_, y), pull = jax.vjp(lambda layers: step(start, layers, x), layers)
        read_1D = jnp.concatenate([x, y[:, F:]], -1)
        return pull(cotangents)[0], jax.jacrev(core)(jnp.concatenate(layers[0], -1)[0], read_1D)

    forth = jax.jit(step)
    for source, targets in rows:
        start, x_1TD = read(source, targets)
        layers = [start.layer]
        for x in x_1TD[0]:
            out, y = forth(start, layers[-1], x[None])
            layers.append(out)
        last, dy = jax.grad(loss)(y, targets[0, -1]), jnp.zeros_like(y)
        # After the last step h is said as it is; what was seen of the source hangs on the state before.
        λ, norms, J = ((dy[:, :F], last[:, :F]),), [], []
        for t in reversed(range(len(x_1TD[0]))):
            norms.append([np.linalg.norm(leaf) for leaf in λ[0]])
            first = t == len(x_1TD[0]) - 1
            cotangents = (jax.tree.map(jnp.zeros_like, λ), last) if first else (λ, dy)
            λ, j = back(start, layers[t], x_1TD[:, t], cotangents)
            J.append(np.asarray(j, np.float64))
        yield norms[::-1], J[:-1]


@pytest.mark.parametrize("name", sparing(DECODERS, {"fixed", "context", "soft", "hard"}.__contains__))
def test_a_decoders_gradients_equal_an_explicit_loop_of_vjps_over_its_own_steps(looked_at, name):
    model, params_R, task, batch = looked_at(DECODERS[name])
    (batch, rows), params = padded(batch), at(params_R, 0)
    T = max(TARGET_LENGTHS)
    norms, σ = np.full((2, T, 2), np.nan), np.full((2, T - 1, 2, 2), np.nan)
    for b, (norms_T2, J) in enumerate(decoders_gradients_by_hand(model, params, rows)):
        norms[b, T - len(norms_T2) :] = norms_T2
        whole = np.eye(2 * F)
        for k, j in enumerate(J):
            whole = whole @ j
            for part in range(2):
                values = np.linalg.svd(whole.reshape(2, F, 2, F)[part, :, part], compute_uv=False)
                σ[b, k, part] = values.max(), values.mean()
    found = make_norms(model, task, batch)(params)["decoder layer 1"]
    (of_decoder,) = [part for part in recurrent_parts(*given(model, params, batch)) if "decoder" in part.name]
    jacobians = jacobian_norms(of_decoder, n_lags=9)
    for part, name in enumerate(("C", "h")):
        np.testing.assert_allclose(found[name], np.nanmean(norms, 0)[:, part], rtol=1e-4, atol=1e-7)
        for k, what in enumerate(("largest", "mean")):
            np.testing.assert_allclose(jacobians[name][what], np.nanmean(σ, 0)[:, part, k], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_a_transformer_decoders_gradients_equal_those_of_its_upper_layers_alone(looked_at):
    model, params_R, task, batch = looked_at(of_model("encoder_decoder", RNN, "model/decoder=transformer"))
    (batch, ((source, targets), _)), params = padded(batch), at(params_R, 0)
    decoder, own = model.decoder, params["decoder"]["layers"]
    inner = decoder.activation, decoder.norm, decoder.placement, 0.0
    block = Block(decoder.mixer, decoder.source_attention, F, 4 * F, *inner)

    @jax.jit
    def by_hand(params):
        def start(model):
            encoding = model.encoder(model.inputs(source, train=False), train=False)
            told = np.append(np.full((1, 1), model.n_outputs), targets[:, :-1], 1)
            return model.decoder.start(encoding).memories, model.targets(told, train=False)

        memories, y = model.apply({"params": params}, method=start)

        def up(n, y):
            of_layer, memory = jax.tree.map(lambda a: a[n], own), jax.tree.map(lambda a: a[:, n], memories)
            return block.apply({"params": of_layer}, y, None, memory, None, train=False)[0]

        def loss(y):
            logits = model.apply({"params": params}, y, method=lambda model, y: model._say(model.decoder._leave(y)))
            return -jax.nn.log_softmax(logits[0, -1])[targets[0, -1]]

        y_1 = up(0, y)
        y_2, pull = jax.vjp(partial(up, 1), y_1)
        dy_2 = jax.grad(loss)(y_2)
        return pull(dy_2)[0], dy_2

    found = make_norms(model, task, first_rows(batch, 1))(params)
    for n, dy_1TD in enumerate(by_hand(params)):
        expected = np.linalg.norm(dy_1TD[0], axis=-1)
        np.testing.assert_allclose(found[f"decoder layer {n + 1}"]["y"], expected, rtol=1e-4, atol=1e-7)


BACK = {
    "bilm": ("backward layer 1", of_model("bilm", RNN)),
    "reverse": (
        "layer 1 backward",
        ("task=masked_lm", f"task.length={T}", "model=tagger", *SMALL, RNN, "model.encoder.layer.reverse=true"),
    ),
}


@pytest.mark.parametrize("name", sparing(BACK, {"bilm"}.__contains__))
def test_what_reads_from_the_end_says_so_and_has_read_one_step_at_the_last(looked_at, name):
    layer, case = BACK[name]
    model, params_R, task, batch = looked_at(case)
    batch = batch.replace(lengths=np.array([T, 4, 2]), weights=batch.weights * 0 + 1)
    at_last = np.isin(np.arange(T), [1, 3, T - 1]).reshape(1, T, *[1] * (batch.weights.ndim - 2))
    norms = make_norms(model, task, batch.replace(weights=batch.weights * at_last))(at(params_R, 0))
    norm_T = norms[layer]["h"]
    assert norm_T[-1] > 0 and (norm_T[:-1] == 0).all()
    figure = draw(
        {layer: {name: a[None] for name, a in named.items()} for layer, named in norms.items()}, {}, (3, 0), None
    )
    assert "a dot: the loss at $T$ reaches the state at $T$ alone" in figure.get_supxlabel().replace("\n", " ")


@pytest.mark.parametrize("places, words", [(None, "steps of the source"), ("places of the picture",) * 2])
def test_what_is_averaged_and_what_a_step_is_stands_in_the_figure_of_gradients(places, words):
    norms = {"inputs": {"x": np.ones((1, 3))}, "encoder layer 1 backward": {"h": np.ones((1, 3))}}
    norms["targets"] = {"x": np.ones((1, 2))}
    h = {"lag": np.array([1]), "largest": np.ones((1, 1)), "mean": np.ones((1, 1))}
    figure = draw(norms, {"decoder layer 1": {"h": h}}, (5, 2), places)
    told = figure.get_supxlabel().replace("\n", " ")
    assert told.startswith("5 rows, of the Jacobians 2; ") and "the vector of the target before $t$" in told
    assert "a dot" not in told
    assert [axis.get_xlabel() for axis in figure.axes] == [
        f"$t - T$, {words}",
        *["$t - T$, steps of the targets"] * 2,
    ]


def test_a_product_of_jacobians_keeps_its_bound_and_does_not_end_where_float32_does(looked_at):
    """σ' ≤ 1 and spectral norm ½ give at most 2⁻ᵏ; the product is far below float32's least at the end."""
    long = [o for o in of_model("classifier", RNN) if "length" not in o]
    model, params_R, task, batch = looked_at([*long, "task.length=199"])
    core = params_R["encoder"]["layers_0"]["core"]
    (map_,) = core.values()
    U = map_["recurrent_kernel"]
    map_["recurrent_kernel"] = (0.5 * U / np.linalg.norm(U[0], 2)).astype(np.float32)
    numbers, *_ = Gradients(rows=1, jacobian_rows=1, n_lags=199)(model, params_R, task, batch)
    h = numbers["jacobians"]["layer 1"]["h"]
    assert (h["largest"][0] <= 0.5 ** h["lag"] * 1.0001).all() and 0 < h["largest"][0, -1] < 1e-50


LOOKING = {
    "self": of_model("tagger", "model/encoder=transformer"),
    "bilm": of_model("bilm", "model/encoder=transformer", "model.encoder.n_layers=1"),
    "mixer": of_model("tagger", "model/encoder=transformer", "model.encoder.mixer.window=3"),
    **{
        f"decoder={name}": of_model("encoder_decoder", "model/encoder=transformer", f"model/decoder={name}")
        for name in names("model/decoder")
    },
}


@pytest.mark.parametrize(
    "name",
    sparing(
        LOOKING,
        {
            "bilm",
            "mixer",
            *(f"decoder={name}" for name in ("fixed", "context", "soft", "hard", "transformer")),
        }.__contains__,
    ),
)
def test_rows_of_attention_sum_to_one_over_what_may_be_looked_at(looked_at, name):
    model, params_R, task, batch = looked_at(LOOKING[name], n_replicas=2)
    numbers, figures, *_ = AttentionMaps(rows=ROWS, n_tokens=5)(model, params_R, task, batch)
    n = len(numbers["inputs"])
    for file, figure in figures.items():
        if file != "heads":
            lengths = (
                n if "source" in file or "decoder" not in file else 0,
                len(numbers["targets"]) if "decoder" in file else 0,
            )
            told = [int(k) for k in re.findall(r"the first 5 of (\d+) steps", figure.get_supxlabel())]
            assert sorted(told) == sorted(k for k in lengths if k > 5), file
    for layer, w_HTS in numbers["maps"].items():
        of_source = layer == "decoder" or layer.endswith("source")
        assert w_HTS.shape[1:] == (
            (len(numbers["targets"]), n)
            if of_source
            else 2 * (len(numbers["targets"] if "dec" in layer else range(n)),)
        )
        np.testing.assert_allclose(w_HTS.sum(-1), 1, atol=1e-4)
        if not of_source:
            assert (np.triu(w_HTS, 1) == 0).all() and (name != "mixer" or (np.tril(w_HTS, -3) == 0).all())
    for R_TT in numbers["rollout"].values():
        np.testing.assert_allclose(R_TT.sum(-1), 1, atol=1e-4)
    for named in numbers["heads"].values():
        assert (named["entropy"] >= 0).all() and (named["entropy"] <= np.log(len(batch.inputs[0])) + 1e-4).all()
        assert all(len(values) == 2 and np.isfinite(values).all() for values in named.values())
    n_decoding = {"decoder=transformer": 4, "decoder=soft": 1, "decoder=hard": 1}.get(name, 0)
    assert ("decoder_source_attention" in figures) == (n_decoding > 0)
    n_layers = {"bilm": 2}.get(name, 2 + n_decoding)
    assert len(numbers["maps"]) == n_layers and "heads" in figures


def test_a_rollout_is_the_product_of_the_layers_with_their_residuals():
    w = [np.array([[1.0, 0], [0.5, 0.5]]), np.array([[1.0, 0], [1.0, 0]])]
    np.testing.assert_allclose(roll_out(w), [[1, 0], [0.5 + 0.5 * 0.25, 0.5 * 0.75]])
    # Who looks at nothing stays what it was.
    np.testing.assert_allclose(roll_out([np.zeros((2, 2))]), np.eye(2))


@pytest.mark.parametrize(
    "n_places, n_before, shape, expected",
    [
        (49, 0, (28, 28), (7, 7, 0)),
        (50, 1, (28, 28), (7, 7, 1)),
        (9, 0, (28, 28), (3, 3, 0)),  # 28 → 14 → 7 → 3
        (7, 1, (8, 12), (2, 3, 1)),
        (6, 0, (8, 12), (2, 3, 0)),
        (8, 0, (20, 36), (2, 4, 0)),  # 20 → 10 → 5 → 2 and 36 → 18 → 9 → 4
        (25, 0, (20, 30), None),
        (1, 0, (28, 28), None),
        (30, 0, (28, 28), None),
    ],
)
def test_places_are_the_grid_that_covers_the_picture(n_places, n_before, shape, expected):
    assert find_grid(n_places, n_before, *shape) == expected


PICTURED = "task=captioning", "model=encoder_decoder", "model/encoder=identity"
PICTURES = {
    "a grid": (*PICTURED, "model/inputs=grid", "model/decoder=soft"),
    "hard": (*PICTURED, "model/inputs=lenet_grid", "model/decoder=hard"),
    "no grid": (*PICTURED, "model/inputs=lenet", "model/decoder=soft"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_attention_to_a_picture_is_drawn_over_it(looked_at, name):
    model, params_R, task, batch = looked_at(PICTURES[name])
    numbers, figures, *_ = AttentionMaps(rows=ROWS)(model, params_R, task, batch)
    w_HTS = numbers["maps"]["decoder"]
    np.testing.assert_allclose(w_HTS.sum(-1), 1, atol=1e-4)
    if name == "no grid":
        assert "decoder_source_attention_over_picture" not in figures
        return
    figure = figures["decoder_source_attention_over_picture"]
    grid = find_grid(w_HTS.shape[-1], 0, *batch.inputs.shape[1:3])
    panels = [axis for axis in figure.axes if len(axis.images) == 2]
    assert [axis.get_title() for axis in panels] == numbers["targets"][:18]
    for axis, w_S in zip(panels, w_HTS.mean(0), strict=False):
        shown = np.asarray(axis.images[1].get_array())
        assert shown.shape == (grid.rows, grid.columns)
        np.testing.assert_allclose(shown.sum(), 1, atol=1e-4)
        np.testing.assert_array_equal(shown.ravel(), w_S)


def test_what_the_class_token_and_each_word_look_at_is_drawn_over_the_picture():
    w_HTS = np.random.default_rng(0).dirichlet(np.ones(7), (2, 7))
    figure = draw_over_picture(np.zeros((8, 12)), {"layer 1": w_HTS}, [], True, True, "row 0")
    panels = {axis.get_title(): axis.images[1].get_array() for axis in figure.axes if len(axis.images) == 2}
    assert [*panels] == ["head 1", "head 2", "rolled out"]
    np.testing.assert_array_equal(panels["head 2"], w_HTS[1, 0, 1:].reshape(2, 3))
    words = ["a", "b"]
    figure = draw_over_picture(np.zeros((8, 12, 3)), {"layer 1": w_HTS[:, :2, 1:]}, words, False, False, "row 0")
    panels = {axis.get_title(): axis.images[1].get_array() for axis in figure.axes if len(axis.images) == 2}
    assert [*panels] == words
    np.testing.assert_allclose(panels["b"], w_HTS[:, 1, 1:].mean(0).reshape(2, 3))
    assert draw_over_picture(np.zeros((8, 12)), {"layer 1": w_HTS[..., :5]}, [], True, False, "row 0") is None
    for n, told in ((2, "each word that is written"), (19, "the first 18 of 19 words that are written")):
        many = {"decoder": np.ones((1, n, 6)) / 6}
        figure = draw_over_picture(np.zeros((8, 12)), many, ["a"] * n, False, False, "row 0")
        assert figure.get_supxlabel().replace("\n", " ").endswith(told)


def test_heads_are_described_over_real_steps():
    w_BHTS = np.zeros((2, 1, 3, 3))
    w_BHTS[0, 0] = [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]
    w_BHTS[1, 0, :, 0] = 1
    batch = Batch(inputs=np.zeros((2, 3)), lengths=np.array([2, 3]), targets=None, weights=None)
    found = describe_heads(w_BHTS, batch, "layer 1")
    np.testing.assert_allclose(found["entropy"], [np.log(2) / 5])
    np.testing.assert_allclose(found["distance"], [(0.5 + 0 + 1 + 2) / 5])


@pytest.mark.parametrize("extra", [(), (2,)])
def test_the_last_target_alone_keeps_its_weight(extra):
    weights = np.array([[1, 2, 0, 3], [0, 0.5, 0, 0], [0, 0, 0, 0]])
    expected = np.array([[0, 0, 0, 3], [0, 0.5, 0, 0], [0, 0, 0, 0]])
    wide = lambda a: jnp.asarray(np.broadcast_to(a.reshape(*a.shape, *[1] * len(extra)), (*a.shape, *extra)))  # noqa: E731
    batch = Batch(inputs=jnp.zeros((3, 4)), lengths=None, targets=jnp.zeros((3, 4)), weights=wide(weights))
    np.testing.assert_array_equal(only_last_targets(batch).weights, wide(expected))


def test_rows_are_aligned_at_their_ends():
    a = np.arange(1.0, 7).reshape(2, 3)
    np.testing.assert_array_equal(align_ends(a, np.array([3, 1])), [[1, 2, 3], [np.nan, np.nan, 4]])
    np.testing.assert_array_equal(align_ends(a, None), a)


def test_a_band_is_the_interval_of_logarithms_and_has_gaps_at_zeros():
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw_band(axis, np.arange(3), np.array([[1.0, 10, 0], [100.0, 10, 5]]), "x", "red")
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [10, 10, np.nan])


@pytest.fixture
def command(make_run, text_path):
    """Run `seqlab.analyze` on a run of two replicas that has not been trained yet."""

    def command(*overrides):
        small = "task=char_lm", RNN, "task.length=7", "task.n_eval=3", "seeds=2", f"task.path={text_path}", "name=test"
        sizes = "model.encoder.features=5", "model.inputs.features=5", "trainer.cpu_devices=4"
        given = [*small, *sizes, f"run={make_run()}", *overrides]
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose("analyze", given, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        analyze(OmegaConf.create({key: value for key, value in config.items() if key != "hydra"}))
        return make_run() / "analyses"

    yield command
    HydraConfig.instance().cfg = None


@pytest.mark.slow
def test_the_command_leaves_numbers_and_figures_and_init_is_where_a_run_begins(command, capsys):
    fields = (
        "analysis=[gradients,gates]",
        "analysis.gradients.rows=2",
        "analysis.gradients.jacobian_rows=1",
        "analysis.gradients.n_lags=2",
    )
    found = []
    for checkpoint, folder in (("best", "gradients"), ("init", "gradients_init")):
        analyses = command(*fields, f"checkpoint={checkpoint}")
        directory = analyses / folder
        # The title has the run's name.
        page = (analyses / folder.replace("gradients", "gates") / "gates.html").read_text(encoding="utf-8")
        assert f"<p>test-{analyses.parent.name}, {checkpoint} (step 0), test set</p>" in page
        record = read_json(directory / "numbers.json")
        assert (record["checkpoint"], record["step"], record["seeds"]) == (checkpoint, 0, [0, 1])
        assert (directory / "gradients.png").stat().st_size > 1000
        assert str(directory / "gradients.png") in capsys.readouterr().out
        found.append(record["numbers"])
    assert np.shape(found[0]["gradients"]["layer 1"]["h"]) == (2, 7)
    # Up to rounding: a run begins on as many devices as it has.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), *found)


def test_mistakes_are_told(looked_at):
    with pytest.raises(UserError, match=r"split is 'tst': expected one of validation, test .nearest: test."):
        pick("split", "tst", {"validation": 1, "test": 2})
    with pytest.raises(UserError, match="n_lags is 0"):
        Gradients(n_lags=0)
    parts = looked_at(of_model("classifier", RNN))
    with pytest.raises(UserError, match="Classifier has no attention whose weights could be shown"):
        AttentionMaps()(*parts)
    with pytest.raises(UserError, match="row is 3, but there are 3: expected 0 to 2"):
        AttentionMaps(row=3)(*parts)


def test_a_number_in_a_name_counts():
    names = ["encoder layer 10", "decoder layer 2 source", "encoder layer 2", "decoder", "decoder layer 11"]
    expected = ["decoder", "decoder layer 2 source", "decoder layer 11", "encoder layer 2", "encoder layer 10"]
    assert sorted(names, key=place) == expected


@pytest.mark.slow
def test_layers_come_in_their_order(looked_at):
    """Also past the ninth, and in a stack as in a Transformer."""
    wide = "model.encoder.n_layers=11"
    model, params_R, task, batch = looked_at(of_model("tagger", "model/encoder=transformer", wide))
    numbers, *_ = AttentionMaps(rows=ROWS)(model, params_R, task, batch)
    assert list(numbers["maps"]) == [f"encoder layer {n}" for n in range(1, 12)]
    model, params_R, task, batch = looked_at(of_model("tagger", RNN, wide))
    parts = recurrent_parts(model, at(params_R, 0), model_arguments(model, batch))
    assert [part.name for part in parts] == [f"layer {n}" for n in range(1, 12)]
