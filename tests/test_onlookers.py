"""The law of who looks on: it is no difference to a run that is gone on with, to a report, or to what is learned."""

import copy
from pathlib import Path
from typing import Any

import pytest

from seqlab.analysis.report.runs import Run, flatten
from seqlab.analysis.report.settings import differing_settings
from seqlab.training.loggers.tensorboard import hyperparameters
from seqlab.training.onlookers import ONLOOKERS
from seqlab.training.run_directory import open_run_directory
from seqlab.types import UserError

CONFIG = {"seed": 3, "name": "é", "task": {"_target_": "x", "_partial_": True, "length": 7}, "trainer": {"ema": None}}


def changed(key: str) -> dict:
    config: dict[str, Any] = copy.deepcopy(CONFIG)
    node, (*parents, last) = config, key.split(".")
    for parent in parents:
        node = node[parent]
    node[last] = {"inside": 5} if key in ("logger", "analysis") else 5
    return config


def compare(config: dict) -> list[str]:
    configs = [flatten(each) for each in (CONFIG, config)]
    runs = [Run(Path(), "", "completed", "", (), each, (), {}, {}, {}, {}, ()) for each in configs]
    return [setting.key for setting in differing_settings(runs)]


@pytest.mark.parametrize("key", ONLOOKERS)
def test_who_looks_on_is_no_difference(tmp_path, key):
    with open_run_directory(tmp_path, CONFIG, [], resume="auto") as directory:
        directory.record()
    with open_run_directory(tmp_path, changed(key), [], resume="auto"):
        pass
    assert compare(changed(key)) == []
    assert hyperparameters(changed(key)) == hyperparameters(CONFIG)


@pytest.mark.parametrize("key", ["task.length", "trainer.ema", "loggers", "task.logger", "trainer.profiles"])
def test_whatever_else_differs_is_one(tmp_path, key):
    with open_run_directory(tmp_path, CONFIG, [], resume="auto") as directory:
        directory.record()
    with pytest.raises(UserError, match=f"another config: {key}"):
        open_run_directory(tmp_path, changed(key), [], resume="auto")
    assert compare(changed(key)) == [key]
    assert hyperparameters(changed(key)) != hyperparameters(CONFIG)


def test_hyperparameters_are_plain():
    assert hyperparameters(CONFIG) == {"seed": 3, "task._target_": "x", "task.length": 7, "trainer.ema": "None"}
