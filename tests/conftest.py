"""What all tests share: four CPU devices, so that every mesh can be tried, and configs composed from conf/."""

import functools
import logging
import os
from pathlib import Path

import seqlab  # noqa: F401  (before JAX, which sets a log level where there is none)

# isort: split

import hydra
import jax
import pytest
import yaml
from browser import CHROMIUM, Browser
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from small_data import STAND_INS, write_text

from seqlab.build import build
from seqlab.data.learned import keep_learned
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import start
from seqlab.training.programs import Programs

CONF = Path(__file__).parents[1] / "conf"

# Tests compile much and run little: without the emitters of fusions, and with each program in one piece, the compiler
# takes a third of the time. Command lines that a test starts inherit it.
os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
jax.config.update("jax_disable_most_optimizations", True)
# Four are more than many machines have, which is worth a warning elsewhere.
logging.disable(logging.WARNING)
start(4)
logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A Chromium to load pages in, where there is one."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here to load the page in")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def text_path(tmp_path_factory) -> str:
    """A small text, which stands in for the one that a task's YAML names: no law needs data."""
    path = tmp_path_factory.mktemp("text") / "small.txt"
    write_text(path)
    return str(path)


@pytest.fixture(scope="session")
def stand_in(text_path, tmp_path_factory):
    """Turn the node of a task into one that reads small data in the place of those that its YAML names."""
    directory = tmp_path_factory.mktemp("data")

    def stand_in(task: dict) -> dict:
        if "path" in task:
            return {**task, "path": text_path}
        if "source" not in task:
            return task
        source = task["source"]
        if "n" in source:  # of a source that draws its records
            return {**task, "source": {**source, "n": 211}}
        if "name" in source:  # of a data set in the catalogue: a table has its fields
            source = {"_target_": "seqlab.data.sources.labelled_text.LabelledText"}
        reader, given = task["_target_"].rpartition(".")[2], Path(source.get("path", "")).stem
        named = (reader, given, source["_target_"].removeprefix("seqlab.data.sources."))
        known = [STAND_INS[name] for name in named if name in STAND_INS]
        if not known:
            return task
        name, write = known[0]
        if not (directory / name).exists():
            write(directory / name)
        fields = {"fields": {"tokens": 0, "tags": 2}} if name == "small.conll" else {}
        return {**task, "source": {**source, **fields, "path": str(directory / name)}}

    return stand_in


@pytest.fixture(scope="session")
def build_task(stand_in):
    """Build the task of a YAML in conf/task, once."""

    @functools.cache
    def build_task(name: str):
        node = yaml.safe_load((CONF / f"task/{name}.yaml").read_text(encoding="utf-8"))
        for choice in node.pop("defaults", []):
            if "source" in choice:
                source = (CONF / f"task/source/{choice['source']}.yaml").read_text(encoding="utf-8")
                node["source"] = yaml.safe_load(source)
        return instantiate(stand_in(node))

    return build_task


@pytest.fixture(scope="session")
def compose(stand_in):
    """Compose the root config with overrides, as the command line does; what reads data reads the small ones."""

    def compose(*overrides: str) -> DictConfig:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose("config", overrides=[*overrides, "name=test"])
        config = OmegaConf.create({key: value for key, value in config.items()})
        config.task = stand_in(OmegaConf.to_container(config.task))
        return config

    return compose


@pytest.fixture(scope="session")
def keep_run(tmp_path_factory):
    """Write the directory of a run at its start."""

    def keep_run(config: DictConfig) -> Path:
        parts = build(config)
        programs = Programs(
            parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:1], parts.seeds
        )
        directory = tmp_path_factory.mktemp("run")
        (directory / "config.yaml").write_text(yaml.safe_dump(parts.config), encoding="utf-8")
        checkpoints, state = Checkpoints(directory / "checkpoints"), programs.init()
        checkpoints.save_best(0, state, {})
        checkpoints.save_latest(0, state, {})
        checkpoints.close()
        keep_learned(parts.task, directory)
        return directory

    return keep_run


@pytest.fixture(scope="session")
def make_run(compose, keep_run):
    """Write the directory of a run of a small model at its start, once: what another run may begin with."""

    @functools.cache
    def make_run(*overrides: str) -> Path:
        small = [
            "task=char_lm",
            "model.encoder.features=5",
            "model.inputs.features=5",
            "task.length=7",
            "task.n_eval=3",
        ]
        cell = [] if "model/encoder=transformer" in overrides else ["model/cell=rnn"]
        return keep_run(compose(*small, *cell, "seeds=2", *overrides))

    return make_run
