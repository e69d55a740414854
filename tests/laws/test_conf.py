"""Every YAML of conf/ composes, names constructors and fields that exist, and stands where the tree says."""

import jax
import pytest
import yaml
from sparing import sparing

from seqlab.build import build
from seqlab.overrides import CONF, bringing, groups, require_known_fields
from seqlab.types import model_arguments

# test_tasks.py has every task composed.
CHOICES = [(group, choice) for group, choices in groups().items() if group != "task" for choice in choices]
COMPOSED_BY_THEIR_LAWS = {"optim", "schedule", *(f"model/{part}" for part in ("cell", "decoder", "inputs", "pool"))}
ADDED = ("experiment", "debug")
SPARED = {
    "adding",
    "addition",
    "char_lm",
    "char_lm_lstm",
    "char_lm_stream",
    "copy_memory",
    "elmo",
    "imdb_bilstm",
    "lenet",
    "parity",
}
SPARED |= {"masked_lm", "periods", "pixels", "reverse", "seq2seq_attention", "seq2seq_transformer", "tagging"}
SPARED |= {"translation", "video", "vit"}


def select(group: str, choice: str) -> list[str]:
    """The overrides that take a choice, with those that bring its group: another one's defaults list may have it."""
    if group in ADDED:
        return [f"+{group}={choice}"]
    return [*home(group), f"{group}=[{choice}]" if group in ("logger", "analysis") else f"{group}={choice}"]


def home(group: str) -> list[str]:
    """The first choice that brings a group, after those that bring that one's."""
    first = bringing(group)[:1]
    return [*(choice for brought in first for choice in home(brought.partition("=")[0])), *first]


@pytest.mark.parametrize("case", sparing(CHOICES, lambda case: case[0] in COMPOSED_BY_THEIR_LAWS), ids="=".join)
def test_yaml_composes_and_names_fields_that_exist(compose, case):
    require_known_fields(compose(*select(*case)))


@pytest.mark.parametrize("experiment", sparing(groups()["experiment"], SPARED.__contains__))
def test_experiment_builds_and_gives_its_task_what_it_wants(compose, experiment):
    parts = build(compose(f"+experiment={experiment}", "+debug=tiny"))

    def loss(key):
        batch = parts.task.sample(key, 2)
        outputs, _ = parts.model.init_with_output(key, *model_arguments(parts.model, batch), train=False)
        return parts.task.measure(outputs, batch)["loss"]

    total, weight = jax.eval_shape(loss, jax.random.key(0))
    assert total.shape == weight.shape == ()


@pytest.mark.parametrize("experiment", groups()["experiment"])
def test_experiment_opens_with_its_package_and_its_command(experiment):
    package, command = (CONF / "experiment" / f"{experiment}.yaml").read_text().splitlines()[:2]
    assert package == "# @package _global_"
    assert command.startswith("# ") and command.endswith(f"python -m seqlab.train +experiment={experiment}")


@pytest.mark.parametrize("experiment", groups()["experiment"])
def test_experiment_says_a_width_once(experiment):
    """What is as wide as something else follows it, by default or by reference: +debug=tiny shrinks them together."""
    model = yaml.safe_load((CONF / "experiment" / f"{experiment}.yaml").read_text()).get("model", {})
    widths = {part: node.get("features") for part, node in model.items() if isinstance(node, dict)}
    for follower, leader in (
        (widths.get("decoder"), widths.get("encoder")),
        (model.get("target_features"), widths.get("inputs")),
        (model.get("target_features"), widths.get("decoder")),
    ):
        assert follower is None or follower != leader


@pytest.mark.parametrize("debug", groups()["debug"])
def test_debug_opens_with_its_package(debug):
    assert (CONF / "debug" / f"{debug}.yaml").read_text().splitlines()[0] == "# @package _global_"


@pytest.mark.parametrize("cell", groups()["model/cell"])
def test_cell_opens_with_its_package(cell):
    # So that `model/cell=gru` is the whole override.
    assert (CONF / "model/cell" / f"{cell}.yaml").read_text().startswith("# @package model.encoder.layer.cell\n")


@pytest.mark.parametrize("model", groups()["model"])
def test_a_cell_lands_in_the_layer_of_every_model(compose, model):
    config = compose(f"model={model}", "model/cell=gru")
    assert config.model.encoder.layer.cell._partial_, "a node that is used several times is partial"
    assert "cell" not in config.model and "cell" not in config
