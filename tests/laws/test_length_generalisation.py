"""Laws of accuracy against length: the rows are as long as they are said to be, and groups make up the whole."""

import dataclasses

import jax
import numpy as np
import pytest
from sparing import sparing
from test_analysis import CASES, ROWS, SPARED, looked_at  # noqa: F401 (a fixture)

from seqlab.analysis.length_generalisation import LengthGeneralisation, draw, make_measure_replicas
from seqlab.evaluation.evaluate import finalise
from seqlab.overrides import CONF
from seqlab.training.batches import has_examples
from seqlab.types import UserError

COSTLY = "model=encoder_decoder", "mixer=attention", "layer=bidirectional"
MAKING = {"adding", "addition", "char_lm", "copy_first", "copy_memory", "copy_sequence", "parity", "periods", "reverse"}
LIKE_OTHERS = {"addition", "copy_sequence", "masked_lm", "periods", "reverse", "reverse_sequence", "sort_sequence"}
TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


@pytest.mark.parametrize("name", sparing(CASES, [*SPARED, *COSTLY].__contains__))
def test_every_model_is_measured_at_every_length(looked_at, name):  # noqa: F811
    model, params_R, task, batch = looked_at(CASES[name], n_replicas=2)
    numbers, figures, *_ = LengthGeneralisation([2, 3], ROWS)(model, params_R, task, batch)
    assert numbers["length"] == [2, 3] and numbers["ends"] is None
    assert "loss" in numbers["metrics"]
    for values_RL in numbers["metrics"].values():
        assert values_RL.shape == (2, 2) and np.isfinite(values_RL).all()
    figure = figures["length_generalisation"]
    assert len([axis for axis in figure.axes if axis.lines]) == len(numbers["metrics"])
    told = figure.get_supxlabel().replace("\n", " ")
    assert f"{ROWS} rows of each length, made anew" in told
    assert ("teacher forcing" in told) == hasattr(model, "decoder")


@pytest.mark.parametrize("name", sparing(TASKS, LIKE_OTHERS.__contains__))
def test_a_task_that_makes_its_rows_makes_them_of_any_length(build_task, name):
    task = build_task(name)
    fields = getattr(task, "length_fields", ())
    # What reads examples has the rows that it has, and a newcomer's task may name none.
    assert fields or name not in MAKING
    assert not (fields and has_examples(task))
    if fields:
        sizes = [
            dataclasses.replace(task, **dict.fromkeys(fields, n), n_eval=7).evaluation_sets()["test"].inputs.shape[1]
            for n in (7, 8)
        ]
        assert sizes[0] < sizes[1]


def test_at_its_own_length_it_measures_what_the_set_does(looked_at):  # noqa: F811
    model, params_R, task, _ = looked_at(("task=copy_first", "task.length=7", "model/cell=rnn"), 2)
    sets, split = task.evaluation_sets(), "validation"
    numbers, figures, *_ = LengthGeneralisation([5, 7], task.n_eval)(model, params_R, task, sets[split])
    expected = finalise(jax.device_get(make_measure_replicas(model, task)(params_R, sets[split])))
    at = numbers["length"].index(7)
    assert numbers["length"] == [5, 7] and numbers["trained"] == [7] and numbers["ends"] is None
    for name, values_R in expected.items():
        np.testing.assert_allclose(numbers["metrics"][name][:, at], values_R, rtol=1e-5)
        assert numbers["metrics"][name].shape == (2, 2)
    assert len([axis for axis in figures["length_generalisation"].axes if axis.axison]) == len(expected)


@pytest.mark.parametrize("gap, is_cut", [(0.001, False), (0.5, True)])
def test_a_band_that_does_not_fit_is_told(gap, is_cut):
    accuracy_RL = np.array([[0.1, 0.9], [0.1 + gap, 0.9]])
    figure = draw(np.array([3, 5]), {"accuracy": accuracy_RL}, [], "steps", ["7 rows"], None)
    told = figure.get_supxlabel().replace("\n", " ")
    assert ("a band that leaves its panel is wider still" in told) == is_cut and told.endswith("7 rows")


def test_groups_of_rows_make_up_the_set(looked_at):  # noqa: F811
    model, params_R, task, _ = looked_at(("task=sentiment", "model/cell=rnn"), 2)
    batch = task.evaluation_sets()["test"]
    numbers, figures, *_ = LengthGeneralisation()(model, params_R, task, batch)
    assert len(numbers["length"]) > 2 and numbers["length"] == sorted(numbers["length"])
    told = figures["length_generalisation"].get_supxlabel().replace("\n", " ")
    assert f"the first {len(batch.inputs)} rows of the set, in groups by length" in told
    whole = jax.device_get(make_measure_replicas(model, task)(params_R, batch))
    lengths_B = np.asarray(batch.lengths)
    # The group of a row is that whose mean is nearest: groups do not overlap.
    nearest_B = np.argmin(np.abs(lengths_B[:, None] - np.array(numbers["length"])), 1)
    assert len(set(nearest_B)) == len(numbers["length"])
    n_G = np.bincount(nearest_B)
    assert n_G.sum() == len(lengths_B)
    accuracy = finalise(whole)["accuracy"]
    low, high = numbers["metrics"]["accuracy"].min(1), numbers["metrics"]["accuracy"].max(1)
    assert ((low <= accuracy) & (accuracy <= high)).all()


@pytest.mark.slow
def test_a_model_without_room_says_where_it_ends(looked_at):  # noqa: F811
    small = "model.encoder.n_layers=1", "model/positions=learned", "model.encoder.positions.max_length=9"
    model, params_R, task, _ = looked_at(("task=copy_first", "task.length=7", "model/encoder=transformer", *small))
    numbers, *_ = LengthGeneralisation(lengths=[5, 9, 11], rows=5)(
        model, params_R, task, task.evaluation_sets()["test"]
    )
    assert numbers["length"] == [5, 9]
    assert numbers["ends"].startswith("not at 11: ") and "9" in numbers["ends"]


def test_mistakes_are_told(looked_at):  # noqa: F811
    with pytest.raises(UserError, match="lengths is 20: expected a list"):
        LengthGeneralisation(lengths=20)
    with pytest.raises(UserError, match=r"lengths is \[5, 0\]: expected a list of whole numbers from 1"):
        LengthGeneralisation(lengths=[5, 0])
    model, params_R, task, _ = looked_at(("task=image_classification", "model/inputs=lenet", "model/encoder=identity"))
    with pytest.raises(UserError, match="ImageClassification has rows of one length alone"):
        LengthGeneralisation()(model, params_R, task, task.evaluation_sets()["test"])
