"""A trained run is brought back as it learned its data: what would fit them otherwise is refused, not passed over."""

import dataclasses
import json
import subprocess
import sys

import jax
import pytest
import yaml
from conftest import CONF
from hydra.utils import get_class
from omegaconf import OmegaConf
from small_data import Given

from seqlab.analysis.examples import describe_examples, print_changes
from seqlab.files import read_json
from seqlab.restore import restore
from seqlab.training.batches import hold_examples
from seqlab.training.run_directory import read_config
from seqlab.types import UserError

FITS = {"kind", "lower", "min_count", "max_size"}
TASKS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (CONF / "task").glob("*.yaml")}


@pytest.mark.parametrize("name", [name for name, node in TASKS.items() if "learned_from" in node])
def test_a_task_says_which_of_its_fields_fit_what_it_learns(name):
    task = get_class(TASKS[name]["_target_"])
    assert set(task.fitted_by) == FITS & {field.name for field in dataclasses.fields(task)}


def test_a_field_that_would_change_nothing_is_refused(make_run):
    run = make_run()
    config = OmegaConf.create({**read_config(run), "run": str(run), "checkpoint": "best"})
    restore(OmegaConf.merge(config, {"task": {"n_eval": 2}}), jax.devices()[:1])
    for name, value in (("max_size", 7), ("kind", "byte")):
        told = rf"^task\.{name}={value} would change nothing: the vocabulary is that of .*, which was learned with "
        with pytest.raises(UserError, match=told):
            restore(OmegaConf.merge(config, {"task": {name: value}}), jax.devices()[:1])


def test_rows_that_are_not_those_of_training_are_told(tmp_path, build_task, capsys):
    def describe(task):
        return describe_examples(task, *hold_examples(task), 7)

    task = build_task("sentiment")
    train, validation, test = task.records.values()
    then, fewer = describe(task), describe(dataclasses.replace(task, n_eval=len(validation) - 1))
    other = describe(dataclasses.replace(task, source=Given((train, validation, test[::-1]))))
    print_changes(tmp_path, then)
    (tmp_path / "summary.json").write_text(json.dumps({"examples": then}), encoding="utf-8")
    print_changes(tmp_path, then)
    print_changes(tmp_path, None)
    assert capsys.readouterr().err == ""
    print_changes(tmp_path, other)
    n = len(test)
    told = f"The {n} rows of test are not those of the training, {n}: some may have been trained on.\n"
    assert capsys.readouterr().err == told
    print_changes(tmp_path, fewer)
    assert f"The {len(validation) - 1} rows of validation are not those of the training" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_evaluated_stands_beside_the_baseline(tmp_path):
    def seqlab(command, *arguments):
        done = subprocess.run([sys.executable, "-m", f"seqlab.{command}", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    seqlab("train", "task=periods", "+debug=tiny", "logger=[]", f"hydra.run.dir={tmp_path}/run")
    told = seqlab("evaluate", f"run={tmp_path}/run")
    (file,) = (tmp_path / "run/evaluations").glob("*.json")
    trained, evaluated = read_json(tmp_path / "run/summary.json"), read_json(file)
    assert evaluated["baseline"] == trained["baseline"] and "always 0" in told
