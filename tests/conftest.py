"""What all tests share: four CPU devices, so that every mesh can be tried, and configs composed from conf/."""

from pathlib import Path

import hydra
import jax
import pytest
from omegaconf import DictConfig, OmegaConf

from seqlab.training.devices import start

CONF = Path(__file__).parents[1] / "conf"

start(4)
# Tests compile much and run little.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def compose():
    """Compose the root config with overrides, as the command line does."""

    def compose(*overrides: str) -> DictConfig:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose("config", overrides=[*overrides, "name=test"])
        return OmegaConf.create({key: value for key, value in config.items()})

    return compose
