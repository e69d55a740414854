"""What all tests share: four CPU devices, so that every mesh can be tried, and configs composed from conf/."""

import functools
from pathlib import Path

import hydra
import jax
import numpy as np
import pytest
import yaml
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqlab.build import build
from seqlab.data.vocabulary import keep_vocabulary
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.devices import start
from seqlab.training.programs import Programs

CONF = Path(__file__).parents[1] / "conf"

start(4)
# Tests compile much and run little.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def text_path(tmp_path_factory) -> str:
    """A small text, which stands in for the one that a task's YAML names: no law needs data."""
    words = ["to", "be", "or", "not", "that", "is", "the", "question", "'tis", "nobler", "in", "mind", "café"]
    lines = np.random.default_rng(0).choice(words, (503, 5))
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(" ".join(line) for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def build_task(text_path):
    """Build the task of a YAML in conf/task, once."""

    @functools.cache
    def build_task(name: str):
        node = yaml.safe_load((CONF / f"task/{name}.yaml").read_text(encoding="utf-8"))
        node.pop("defaults", None)
        return instantiate({**node, "path": text_path} if "path" in node else node)

    return build_task


@pytest.fixture(scope="session")
def compose(text_path):
    """Compose the root config with overrides, as the command line does; what reads a text reads the small one."""

    def compose(*overrides: str) -> DictConfig:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose("config", overrides=[*overrides, "name=test"])
        config = OmegaConf.create({key: value for key, value in config.items()})
        if "path" in config.task:
            config.task.path = text_path
        return config

    return compose


@pytest.fixture(scope="session")
def make_run(compose, tmp_path_factory):
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
        parts = build(compose(*small, *cell, "seeds=2", *overrides))
        programs = Programs(
            parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:1], parts.seeds
        )
        directory = tmp_path_factory.mktemp("run")
        (directory / "config.yaml").write_text(yaml.safe_dump(parts.config), encoding="utf-8")
        checkpoints, state = Checkpoints(directory / "checkpoints"), programs.init()
        checkpoints.save_best(0, state, {})
        checkpoints.save_latest(0, state, {})
        checkpoints.close()
        keep_vocabulary(parts.task, directory)
        return directory

    return make_run
