"""Laws of analyses while a model is trained: their files, what loggers are shown of them, and what cannot be lost."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from seqlab.analysis.attention_maps import AttentionMaps
from seqlab.analysis.findings import Findings, replicas
from seqlab.analysis.gradients import Gradients
from seqlab.analysis.watch import Watch, look_first
from seqlab.build import build
from seqlab.files import read_json
from seqlab.overrides import merge_overrides
from seqlab.training.settings import Settings
from seqlab.types import UserError

SMALL = ("task=copy_first", "task.length=5", "task.n_eval=7", "model/cell=rnn", "model.encoder.features=3")
GRADIENTS = Gradients(rows=3, jacobian_rows=1, n_lags=2)


@pytest.fixture(scope="module")
def parts(compose):
    return build(compose(*SMALL, "model.inputs.features=2", "seeds=2"))


@pytest.fixture(scope="module")
def params_R(parts):
    def init(key):
        batch = parts.task.sample(key, 1)
        return parts.model.init(key, batch.inputs, batch.lengths, train=False)["params"]

    return jax.device_get(jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), 2)))


def watch(parts, analyses, directory, shown, first=None):
    told = parts.seeds, "a run", directory, shown.append, first or {}
    return Watch(analyses, parts.model, parts.task, parts.sets, "validation", *told)


@dataclasses.dataclass(frozen=True)
class Failing:
    """An analysis that fails."""

    error: Exception

    def __call__(self, model, params_R, task, batch) -> Findings:
        raise self.error


def test_what_is_shown_lies_in_files_and_a_failure_later_stops_nothing(parts, params_R, tmp_path, caplog):
    shown = []
    analyses = {"broken": Failing(UserError("row is 9\nand more")), "gradients": GRADIENTS}
    watch(parts, analyses, tmp_path, shown)(500, params_R)
    [exhibit] = shown
    assert (exhibit.step, exhibit.name, exhibit.place) == (500, "gradients", tmp_path / "gradients" / "step_000500")
    record = read_json(exhibit.place / "numbers.json")
    assert {key: record[key] for key in ("analysis", "step", "seeds", "split")} == {
        "analysis": "gradients",
        "step": 500,
        "seeds": [0, 1],
        "split": "validation",
    }
    expected = record["numbers"]["gradients"]
    assert exhibit.values.keys() == {
        f"{layer.replace(' ', '_')}/{name}/{where}"
        for layer, named in expected.items()
        for name in named
        for where in ("first_step", "last_step")
    }
    assert record["followed"] == exhibit.values
    assert exhibit.values["layer_1/h/first_step"] == [norm_T[0] for norm_T in expected["layer 1"]["h"]]
    assert exhibit.values["inputs/x/last_step"] == [norm_T[-1] for norm_T in expected["inputs"]["x"]]
    assert exhibit.figures == {"gradients": exhibit.place / "gradients.png"} and exhibit.pages == {}
    assert exhibit.figures["gradients"].read_bytes().startswith(b"\x89PNG")
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert warning.getMessage() == "The analysis broken failed at step 500; the run goes on (UserError: row is 9)"


def test_what_does_not_fit_is_refused_before_anything_is_written(parts, params_R, tmp_path, caplog):
    """But an analysis that is broken then is not the user's mistake, and loses nothing either."""
    given = parts.model, params_R, parts.task, parts.sets["validation"]
    with pytest.raises(UserError, match="analysis=attention: Classifier has no attention"):
        look_first({"attention": AttentionMaps()}, *given)
    assert look_first({"broken": Failing(RuntimeError("no SVD"))}, *given) == {}
    watch(parts, {"broken": Failing(RuntimeError("no SVD"))}, tmp_path, [])(0, params_R)
    assert "(RuntimeError: no SVD)" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_replicas_are_taken_apart(params_R):
    assert all((a == b[1]).all() for a, b in zip(*map(jax.tree.leaves, (replicas(params_R)[1], params_R)), strict=True))


@pytest.mark.parametrize("value", [0, -3, True, 2.5, "often"])
def test_a_count_that_is_none_is_refused(parts, value):
    with pytest.raises(UserError, match=r"trainer\.analyze_every is .*: expected a whole number from 1"):
        dataclasses.replace(parts.settings, analyze_every=value)
    assert isinstance(dataclasses.replace(parts.settings, analyze_every=None), Settings)


def test_analyses_are_those_that_were_chosen_last():
    earlier = ["task=parity", "analysis=[gradients,cost]", "analysis.gradients.rows=2", "trainer.analyze_every=5"]
    assert merge_overrides(earlier, ["analysis=gates"]) == ["task=parity", "trainer.analyze_every=5", "analysis=gates"]
    assert merge_overrides(earlier, ["analysis.gradients.rows=3"]) == [
        *earlier[:2],
        "trainer.analyze_every=5",
        "analysis.gradients.rows=3",
    ]


def test_what_was_found_first_is_shown_at_the_start(parts, params_R, tmp_path):
    shown = []
    found = Findings({"x": [1.0]}, {}, followed={"y": np.array([2.0, 3.0])})
    looks = watch(parts, {"broken": Failing(RuntimeError("asked again"))}, tmp_path, shown, {"broken": found})
    looks(0, params_R)
    looks(5, params_R)
    assert [(exhibit.step, exhibit.values) for exhibit in shown] == [(0, {"y": [2.0, 3.0]})]
