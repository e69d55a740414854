# mypy: disable-error-code="arg-type,union-attr"
"""Laws of a trained network as the inputs of the next model."""

import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import yaml
from hydra.utils import instantiate

from seqlab.build import build, resolve
from seqlab.cli import _explain
from seqlab.data.vocabulary import Vocabulary
from seqlab.generate import ask
from seqlab.models.bilm import BiLM, reverse_rows
from seqlab.pretrained import pretrained
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.run_directory import read_config
from seqlab.types import UserError

TRANSFORMER = ("model/encoder=transformer", "model.encoder.features=8", "model.inputs.features=8")
TWO_LAYERS = ("model.encoder.n_layers=2",)
NARROW_INPUTS = ("model.encoder.n_layers=2", "model.inputs.features=3", "trainer.ema=0.9")
MASKED = ("task=masked_lm", *TRANSFORMER, "model.encoder.mixer.causal=false")
BILM = ("task=bidirectional_lm", *TWO_LAYERS)
RUNS = [
    pytest.param(TWO_LAYERS, id="stack"),
    pytest.param(MASKED, id="masked transformer", marks=pytest.mark.slow),
    pytest.param(BILM, id="bilm", marks=pytest.mark.slow),
    pytest.param(NARROW_INPUTS, id="narrow inputs, moving average", marks=pytest.mark.slow),
    pytest.param(("model.tied=true",), id="tied", marks=pytest.mark.slow),
    pytest.param(("task=masked_lm", "model/layer=bidirectional"), id="both ways", marks=pytest.mark.slow),
    pytest.param(("task=bidirectional_lm", *TRANSFORMER), id="bilm of transformers", marks=pytest.mark.slow),
]
LENGTHS = np.array([7, 3, 0])
IDS = np.random.default_rng(0).integers(0, 11, (3, 7))
NEW = ("task=char_lm", "model/cell=rnn", "model.encoder.features=3", "task.length=7", "task.n_eval=3")


def network_of(run: Path, replica: int):
    """The model of a run, and its parameters."""
    params = Checkpoints(run / "checkpoints").restore_params("best")
    return instantiate(read_config(run)["model"]), jax.tree.map(lambda leaf: leaf[replica], params)


def begin_with(run: Path, *overrides: str) -> list[str]:
    return [*NEW, "model/inputs=pretrained", f"model.inputs.run={run}", *overrides]


def say_layers(model, params, ids):
    """What the layers of the old network say, one after the other."""
    parts = model.bind({"params": params})
    x_BTD = parts.inputs(ids, LENGTHS, train=False)

    def layers_of(encoder, x_BTD):
        if not hasattr(encoder, "layer"):
            return [encoder(x_BTD, LENGTHS, train=False).y_BTF]
        layers = [x_BTD]
        for layer in encoder.layers:
            layers.append(layer(layers[-1], LENGTHS, train=False).y_BTF)
        return layers

    if not isinstance(model, BiLM):
        return layers_of(parts.encoder, x_BTD)
    ahead, back = layers_of(parts.forward, x_BTD), layers_of(parts.backward, reverse_rows(x_BTD, LENGTHS))
    return [jnp.concatenate([a, reverse_rows(b, LENGTHS)], -1) for a, b in zip(ahead, back, strict=True)]


@pytest.mark.parametrize("run", RUNS)
def test_it_begins_with_what_the_network_says(compose, make_run, run):
    directory, replica = make_run(*run), 1
    config = compose(*begin_with(directory, f"model.inputs.replica={replica}"))
    # Built by itself: the task would refuse networks that read from both ends.
    new_model = instantiate(resolve(config, instantiate(config.task)).model)
    model, params = network_of(directory, replica)

    @jax.jit
    def run_both(key):
        variables = new_model.init(key, IDS, LENGTHS, train=False)
        features = new_model.bind(variables).inputs(IDS, LENGTHS, train=False)
        return variables["params"], features, say_layers(model, params, IDS)

    new, features, layers = run_both(jax.random.key(3))
    same = [h for h in layers if h.shape == layers[-1].shape]
    assert len(same) == {TWO_LAYERS: 3, MASKED: 1, BILM: 3, NARROW_INPUTS: 2}.get(run, len(same))
    np.testing.assert_allclose(features, np.mean(same, 0), rtol=1e-5, atol=1e-6)
    assert np.any(features[0, :, 0] != 0) and not np.any(features[1, 3:])
    # The network is there whole, but for its head; nothing is added to it but the mix.
    network = {name: part for name, part in params.items() if name not in ("head", "bias")}
    jax.tree.map(np.testing.assert_array_equal, new["inputs"]["frozen"], network)
    n_mix = sum(leaf.size for leaf in jax.tree.leaves(new["inputs"].get("mix", {})))
    assert n_mix == (len(same) + 1 if len(same) > 1 else 0)
    assert set(new["inputs"]) <= {"frozen", "mix"}


@pytest.mark.slow
@pytest.mark.parametrize("frozen", (True, pytest.param(False, marks=pytest.mark.slow)))
def test_frozen_numbers_stay_and_others_are_trained(compose, make_run, frozen):
    overrides = [*begin_with(make_run(), f"model.inputs.frozen={frozen}"), "optim=adamw", "optim.weight_decay=0.5"]
    parts = build(compose(*overrides, "model.inputs.features=7"))

    @jax.jit
    def update(key):
        batch = parts.task.sample(key, 5)
        before = parts.model.init(key, batch.inputs, train=False)["params"]

        def loss(params):
            logits = parts.model.apply({"params": params}, batch.inputs, train=True, rngs={"dropout": key})
            return parts.task.measure(logits, batch)["loss"][0]

        gradient = jax.grad(loss)(before)
        change, _ = parts.optimiser.update(gradient, parts.optimiser.init(before), before, 0)
        return before, optax.apply_updates(before, change)

    before, after = update(jax.random.key(0))
    name = "frozen" if frozen else "network"
    assert set(before["inputs"]) == {name, "mix", "W"}
    changed = jax.tree.map(lambda old, new: bool(np.any(old != new)), before, after)
    assert set(jax.tree.leaves(changed["inputs"].pop(name))) == {not frozen}
    assert all(jax.tree.leaves(changed))


def refused(make) -> str:
    """The one sentence that the command line makes of it."""
    with pytest.raises(Exception) as error:
        make()
    sentence = _explain(error.value)
    assert sentence is not None and "\n" not in sentence
    return sentence


def copy_run(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_what_is_no_run_is_refused(compose, make_run, tmp_path):
    assert "nowhere holds no run" in refused(lambda: build(compose(*begin_with(tmp_path / "nowhere"))))
    run = copy_run(make_run(), tmp_path)
    shutil.rmtree(run / "checkpoints/best")
    assert "best holds no checkpoint" in refused(lambda: build(compose(*begin_with(run))))


def test_another_vocabulary_is_refused(compose, make_run, tmp_path):
    run = copy_run(make_run(), tmp_path)
    vocabulary = Vocabulary.load(run / "vocabulary.json")
    first, second, *others = vocabulary.tokens
    Vocabulary(vocabulary.kind, (second, first, *others)).save(run / "vocabulary.json")
    assert "another vocabulary" in refused(lambda: build(compose(*begin_with(run))))
    (run / "vocabulary.json").unlink()
    assert "another vocabulary" in refused(lambda: build(compose(*begin_with(run))))


def test_what_does_not_fit_is_refused(make_run, tmp_path):
    run = str(make_run())
    V = network_of(Path(run), 0)[0].inputs.vocab_size
    assert f"the run knows {V} ids, but the task has {V + 1}" in refused(lambda: pretrained(run, V + 1))
    assert "replica=2: the run has 2; expected 0 to 1" in refused(lambda: pretrained(run, V, replica=2))
    assert "features=0: expected at least 1" in refused(lambda: pretrained(run, V, features=0))
    vectors = copy_run(make_run(), tmp_path)
    config = read_config(vectors)
    config["model"]["inputs"] = {"_target_": "seqlab.nn.inputs.LinearInputs", "features": 5}
    (vectors / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert "the run is of a Tagger over LinearInputs" in refused(lambda: pretrained(str(vectors), V))


@pytest.mark.slow
def test_what_reads_from_both_ends_writes_nothing(compose, make_run, build_task):
    with pytest.raises(UserError, match="must not see: a BiLM reads from both ends: it cannot take one step at a time"):
        build(compose(*begin_with(make_run(*BILM))))
    for task in ("masked_lm", "bidirectional_lm"):
        with pytest.raises(UserError, match="does not say which token comes next alone"):
            ask(build_task(task), "to be", None)


@pytest.mark.slow
def test_a_run_that_begins_with_another_is_a_run_like_others(text_path, tmp_path):
    tiny = ["+debug=tiny", "task.length=5", f"task.path={text_path}", "logger=[]", "trainer.cpu_devices=1"]

    def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", f"seqlab.{name}", *arguments], capture_output=True, text=True, timeout=300
        )

    old, new, whole = tmp_path / "old", tmp_path / "new", tmp_path / "whole"
    first = command("train", "task=char_lm", *tiny, f"hydra.run.dir={old}")
    assert first.returncode == 0, first.stderr
    given = ["task=char_lm", *tiny, "model/inputs=pretrained", f"model.inputs.run={old}", "model.inputs.frozen=false"]
    for arguments in ([*given, "trainer.steps=3", f"hydra.run.dir={new}"], [f"resume={new}", "trainer.steps=6"]):
        trained = command("train", *arguments)
        assert trained.returncode == 0, trained.stderr
    assert command("train", *given, f"hydra.run.dir={whole}").returncode == 0
    resumed, straight = (Checkpoints(run / "checkpoints").restore_params("latest") for run in (new, whole))
    jax.tree.map(np.testing.assert_array_equal, resumed, straight)
    assert command("evaluate", f"run={new}").returncode == 0
    written = command("generate", f"run={new}", "prompt=to be", "n_tokens=7", "temperature=0")
    assert written.returncode == 0 and written.stdout.startswith("to be"), written.stderr
    old.rename(tmp_path / "moved")
    missing = command("evaluate", f"run={new}")
    assert missing.returncode == 2 and f"{old} holds no run" in missing.stderr and missing.stderr.count("\n") == 1
