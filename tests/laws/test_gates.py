"""Laws of gates and states: what is handed out rebuilds each cell's state, in every model with a recurrent layer."""

import jax
import numpy as np
import pytest
from sparing import sparing
from test_analysis import (
    CASES,
    DECODERS,
    LSTM_DECODER,
    ROWS,
    SPARED,
    F,
    T,
    at,
    decoder_by_hand,
    given,
    looked_at,  # noqa: F401 (a fixture)
    of_model,
    padded,
)

from seqlab.analysis.gates import Gates, Walked, describe, walk_gates
from seqlab.analysis.gates_figure import choose_units, draw_saturation
from seqlab.analysis.recurrent_parts import recurrent_parts
from seqlab.nn.gates import candidate, gate, watch_gates
from seqlab.types import UserError

NAMES = {"LSTM": ("f", "i", "o", "C̃", "C", "h"), "GRU": ("z", "r", "h̃", "h"), "RNN": ("h",)}
COSTLY = "model=encoder_decoder", "mixer=attention", "encoder=identity"


@pytest.mark.parametrize("name", sparing(CASES, [*SPARED, *COSTLY].__contains__))
def test_every_recurrent_layer_hands_out_its_gates_and_states(looked_at, name):  # noqa: F811
    model, params_R, task, batch = looked_at(CASES[name], n_replicas=2)
    parts = recurrent_parts(*given(model, at(params_R, 0), batch))
    analysis = Gates(rows=ROWS, row=1, replica=1, n_tokens=5, n_units=3)
    if not parts:
        with pytest.raises(UserError, match="has no recurrent layer whose gates and states could be shown: this is"):
            analysis(model, params_R, task, batch)
        return
    numbers, figures, pages, *_ = analysis(model, params_R, task, batch)
    n_steps = {"inputs": T if batch.lengths is None else batch.lengths[1]}
    if hasattr(model, "decoder"):
        n_steps["targets"] = np.sum(batch.weights[1])
    assert {side: len(numbers[side]) for side in n_steps} == n_steps
    assert [*numbers["values"]] == [part.name for part in parts] == [*numbers["saturation"]]
    assert {f"values_{part.name.replace(' ', '_')}" for part in parts} | {"saturation"} == {*figures}
    for part in parts:
        figure = figures[f"values_{part.name.replace(' ', '_')}"]
        told, x = (
            figure.get_supxlabel().replace("\n", " "),
            figure.axes[len(numbers["values"][part.name]) - 1].get_xlabel(),
        )
        n_all = n_steps["targets" if part.name.startswith("decoder") else "inputs"]
        assert f"3 of its {F} units, evenly spaced in the order of the mean of " in told
        assert (f"the first 5 of {n_all} steps" in told) == (n_all > 5)
        assert x.startswith("target that is said" if part.name.startswith("decoder") else "input that is read")
        assert x.endswith("from the right to the left") == ("backward" in part.name)
        cell = type(part.layer.bind({"params": part.params}).core)
        values, saturation = numbers["values"][part.name], numbers["saturation"][part.name]
        assert (*values,) == (*saturation,)
        # A newcomer's cell may name its gates or not.
        if cell.__name__ in NAMES:
            assert (*values,) == NAMES[cell.__name__]
        for what, a_TF in values.items():
            side = "targets" if part.name.startswith("decoder") else "inputs"
            assert a_TF.shape[0] == n_steps[side] and np.isfinite(a_TF).all() and a_TF.any()
            shares = saturation[what]
            if "left" in shares:
                assert (a_TF > 0).all() and (a_TF < 1).all() and (shares["left"] + shares["right"] <= 1 + 1e-6).all()
            for share_RF in shares.values():
                assert share_RF.shape == (2, a_TF.shape[1]) and np.isfinite(share_RF).all()
    assert pages["gates"].startswith("<!doctype html>")


def reader(overrides, looked_at):  # noqa: F811
    """The function `lengths -> walked layers, and what they say themselves` of a model."""
    model, params_R, _, batch = looked_at(overrides)

    @jax.jit
    def read(lengths):
        parts = recurrent_parts(*given(model, at(params_R, 0), batch.replace(lengths=lengths)))
        own = [
            part.layer.clone(reverse=part.reverse).apply({"params": part.params}, part.x_BTD, lengths) for part in parts
        ]
        return [walk_gates(part) for part in parts], own

    return lambda lengths: read(np.array(lengths))


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("gru", marks=pytest.mark.slow), "flax_gru"])
def test_the_states_are_the_models_own_and_padding_changes_nothing(looked_at, cell, reverse):  # noqa: F811
    case = of_model("classifier", f"model/cell={cell}", f"model.encoder.layer.reverse={reverse}")
    lengths, read = [T, 4, 1], reader(case, looked_at)
    (walked,), (own,) = read(lengths)
    for b, n in enumerate(lengths):
        states = {name: walked.values[name][b, :n] for name in ("C", "h") if name in walked.values}
        # The output at each step, of a layer that reads from the end too.
        np.testing.assert_allclose(states["h"], own.y_BTF[b, :n], **CLOSE)
        last = [a[0 if reverse else n - 1] for a in states.values()]
        for found, leaf in zip(last, jax.tree.leaves(own.state), strict=True):
            np.testing.assert_allclose(found, leaf[b], **CLOSE)
    if not reverse:
        (full,), _ = read([T, T, T])
        for name, a_BTF in walked.values.items():
            np.testing.assert_allclose(a_BTF[1, :4], full.values[name][1, :4], **CLOSE)


def test_an_lstm_is_rebuilt_from_what_it_hands_out(looked_at):  # noqa: F811
    (walked,), _ = reader(of_model("classifier", "model/cell=lstm"), looked_at)([T, T, T])
    f, i, o, c, C, h = (np.asarray(walked.values[name]) for name in NAMES["LSTM"])
    before = np.pad(C[:, :-1], ((0, 0), (1, 0), (0, 0)))
    np.testing.assert_allclose(C, f * before + i * c, **CLOSE)
    np.testing.assert_allclose(h, o * np.tanh(C), **CLOSE)


@pytest.mark.parametrize("reset", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_gru_is_rebuilt_from_what_it_hands_out(looked_at, reset):  # noqa: F811
    case = of_model("classifier", "model/cell=gru", f"model.encoder.layer.cell.reset={reset}")
    (walked,), _ = reader(case, looked_at)([T, T, T])
    z, _, new, h = (np.asarray(walked.values[name]) for name in NAMES["GRU"])
    before = np.pad(h[:, :-1], ((0, 0), (1, 0), (0, 0)))
    np.testing.assert_allclose(h, (1 - z) * before + z * new, **CLOSE)


# Also where the decoder alone is recurrent.
LONELY = {"in a Transformer": of_model("encoder_decoder", "model/encoder=transformer", LSTM_DECODER)}


@pytest.mark.parametrize("name", sparing(DECODERS | LONELY, {"fixed", "context", "soft", "hard", *LONELY}.__contains__))
def test_a_decoders_gates_equal_a_loop_by_hand_over_its_own_steps(looked_at, name):  # noqa: F811
    model, params_R, task, batch = looked_at((DECODERS | LONELY)[name])
    (batch, rows), params = padded(batch), at(params_R, 0)
    read, step = decoder_by_hand(model, params)
    step = jax.jit(step)
    learned = params["decoder"]["core"]["layers_0"]["core"]["gates"]
    by_row = []
    for row in rows:
        start, x_1TD = read(*row)
        ((C, h),), seen = start.layer, []
        for x in x_1TD[0]:
            _, y = step(start, ((C, h),), x[None])
            a = np.append(x, y[0, F:]) @ learned["kernel"] + h @ learned["recurrent_kernel"] + learned["bias"]
            f, i, o = jax.nn.sigmoid(a.reshape(4, F)[:3])
            c = np.tanh(a.reshape(4, F)[3])
            C = f * C + i * c
            h = o * np.tanh(C)
            seen.append(dict(zip(NAMES["LSTM"], (f, i, o, c, C[0], h[0]), strict=True)))
        by_row.append({name: np.array([of_step[name] for of_step in seen]) for name in NAMES["LSTM"]})
    numbers, figures, *_ = Gates(rows=2, row=1, n_units=3)(model, params_R, task, batch)
    assert numbers["targets"] == [
        axis.get_text() for axis in figures["values_decoder_layer_1"].axes[5].get_xticklabels()
    ]
    for name, values in numbers["values"]["decoder layer 1"].items():
        np.testing.assert_allclose(values, by_row[1][name], atol=1e-4)
        all_steps, found = np.concatenate([of_row[name] for of_row in by_row]), numbers["saturation"]["decoder layer 1"]
        np.testing.assert_allclose(found[name]["mean"][0], all_steps.mean(0), **CLOSE)
        if "left" in found[name]:
            np.testing.assert_allclose(found[name]["left"][0], (all_steps < 0.1).mean(0))
            np.testing.assert_allclose(found[name]["right"][0], (all_steps > 0.9).mean(0))


def test_shares_are_counted_over_real_steps():
    values = {"f": np.array([[0.05, 0.95, 0.5], [0.01, 0.99, 0.99]])[..., None], "h": np.full((2, 3, 1), -0.95)}
    found = describe(Walked("layer 1", ("f",), ("h",), values, np.array([3, 1])))
    assert {name: float(a[0]) for name, a in found["f"].items()} == pytest.approx(
        {"left": 0.5, "right": 0.25, "mean": 1.51 / 4}
    )
    assert found["h"]["beyond"] == [1] and found["h"]["mean"] == pytest.approx(-0.95)


def test_units_are_sorted_and_thinned_evenly():
    by, units = choose_units({"f": np.array([[0.1, 0.9, 0.5, 0.7, 0.3]]), "h": np.zeros((1, 5))}, ("f",), 3)
    assert by == "f" and units.tolist() == [1, 2, 0]
    assert choose_units({"h": np.array([[0.0, 1.0]])}, (), 7)[1].tolist() == [1, 0]


def test_no_layer_hides_another_in_the_figure_of_saturation():
    shares = {what: np.zeros((2, F)) for what in ("left", "right", "mean")}
    states = {what: np.zeros((2, F)) for what in ("beyond", "mean")}
    saturation = {
        "encoder layer 1": {"z": shares, "h": states},
        "encoder layer 2": {"h": states},
        "decoder layer 1": {"z": shares, "h": states},
    }
    figure = draw_saturation(saturation, {layer: ("z",) if "z" in named else () for layer, named in saturation.items()})
    titles = [axis.get_title("left").split("\n") for axis in figure.axes]
    assert [title[0] for title in titles[::2]] == [*saturation] and not figure.legends
    for title, axis in zip(titles, figure.axes, strict=True):
        n_shown = sum(len(dots.get_offsets()) > 0 for dots in axis.collections) + sum(
            len(line.get_xdata()) == F for line in axis.lines
        )
        assert n_shown == (0 if not axis.axison else 1 if title[-1] == "$z$" else 2)


def test_nobody_looks_and_nothing_is_seen():
    a = object()
    assert gate("f", a) is a and candidate("C̃", a) is a
    with watch_gates() as seen:
        assert gate("f", a) is a
    gate("i", a)
    assert seen == ({"f": a}, {})


def test_mistakes_are_told(looked_at):  # noqa: F811
    with pytest.raises(UserError, match="n_units is 0"):
        Gates(n_units=0)
    with pytest.raises(UserError, match="replica is 2, but there are 1: expected 0 to 0"):
        Gates(replica=2)(*looked_at(CASES["model=tagger"]))
