"""Laws of samples: what a model reads, should say and says of a row, in words, for every task."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from sparing import sparing

from seqlab.analysis.findings import first_rows
from seqlab.analysis.samples import N_CHARACTERS, _read, keep_samples, take_samples, write_outputs
from seqlab.build import build
from seqlab.types import Table

CONF = Path(__file__).parents[2] / "conf"
TASKS = sorted(path.stem for path in CONF.glob("task/*.yaml"))
LIKE_OTHERS = "addition captioning char_stream parity periods pixels reverse reverse_sequence sort_sequence translation"


@pytest.mark.parametrize("name", sparing(TASKS, LIKE_OTHERS.split().__contains__))
def test_who_solves_a_task_says_the_targets(build_task, name):
    """And of a task that nobody can solve, a baseline says as much of each row, in the same words."""
    task = build_task(name)
    batch = first_rows(task.evaluation_sets()["test"], 5)
    wanted, said = write_outputs(task, batch, task.solve(batch))
    assert len(wanted) == len(said) == len(batch.inputs) and any(wanted)
    for row, (target, answer) in enumerate(zip(wanted, said, strict=True)):
        assert len(target) <= N_CHARACTERS + 1
        if hasattr(task, "classes"):
            assert set(answer.split()) <= {word for label in task.classes.names for word in label.split()}
        if hasattr(task, "guess") or not hasattr(task, "baseline"):
            assert answer == target
        shown = _read(task, batch, row)
        assert isinstance(shown, str) if np.ndim(batch.inputs) < 4 else shown.dtype == np.uint8


def test_words_by_hand(build_task):
    masked = build_task("masked_lm")
    batch = first_rows(masked.evaluation_sets()["test"], 1)
    [target], _ = write_outputs(masked, batch, masked.solve(batch))
    text = masked.vocabulary.decode(np.asarray(batch.targets[0])).replace(" ", "␣").replace("\n", "↵")
    told = np.asarray(batch.weights[0]) > 0
    assert target == "".join(character if here else "·" for character, here in zip(text, told, strict=True))
    addition = build_task("addition")
    batch = first_rows(addition.evaluation_sets()["test"], 2)
    wanted, _ = write_outputs(addition, batch, addition.solve(batch))
    for row in range(2):
        a, b = _read(addition, batch, row).split("+")
        assert wanted[row].replace(" ", "").startswith(str(int(a) + int(b)))
    tagging = build_task("tagging")
    batch = first_rows(tagging.evaluation_sets()["test"], 2)
    wanted, _ = write_outputs(tagging, batch, tagging.solve(batch))
    assert [len(row.split()) for row in wanted] == np.asarray(batch.lengths).tolist()


MODELS = {
    "language model": ("task=char_lm", "task.length=7", "model/cell=rnn"),
    "no room": ("task=char_lm", "task.length=7", "model/encoder=transformer", "model.encoder.mixer.max_length=11"),
    "sequence": ("task=reverse_sequence", "task.n_symbols=3", "model/cell=rnn"),
    "pictures": ("task=image_classification", "model/encoder=identity"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("no room", "sequence") else []) for name in MODELS]
)
def test_a_model_is_sampled(compose, tmp_path, name):
    parts = build(compose(*MODELS[name], "task.n_eval=11"))
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: parts.model.init(key, *_arguments(parts), train=False))["params"]
    params = jax.tree.map(lambda leaf: np.random.default_rng(0).normal(size=leaf.shape).astype(np.float32), shapes)
    tables = take_samples(parts.task, parts.sets, parts.model, params)
    predictions = tables["predictions"]
    assert predictions.columns == ("input", "target", "prediction") and len(predictions.rows) == 8
    if name == "sequence":
        for source, target, said in predictions.texts():
            assert target.split() == source.split()[::-1] and re.fullmatch(r"(\d( \d)*)?", said)
    if parts.task.target_per == "step":
        generations = tables["generations"]
        for prompt, text in generations.rows:
            assert len(prompt) == 7 and set(text.replace("<unk>", "")) <= set("".join(parts.task.vocabulary.tokens))
            assert len(text.replace("<unk>", "?")) == (128 if name == "language model" else 11 - 7)
        assert len(generations.rows) == 3
    keep_samples(tables, tmp_path / "samples.jsonl", step=5, seed=0)
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == sum(len(table.rows) for table in tables.values())
    assert lines[0] == {
        "step": 5,
        "seed": 0,
        "table": "predictions",
        **dict(zip(predictions.columns, predictions.texts()[0], strict=True)),
    }


def test_rows_that_are_written_are_not_written_again():
    written = [{"source": f"s{i}", "reference": "r" * 500, "written": [f"first {i}", "second"]} for i in range(11)]
    tables = take_samples(None, {}, None, None, written)  # type: ignore[arg-type]
    assert tables == {
        "predictions": Table(
            ("source", "reference", "written"), [(f"s{i}", "r" * 300 + "…", f"first {i}") for i in range(8)]
        )
    }


def _arguments(parts):
    batch = parts.task.sample(jax.random.key(0), 1)
    taught = getattr(parts.model, "teacher_forced", False)
    inputs = batch.inputs / 255 if batch.inputs.dtype == np.uint8 else batch.inputs
    return (inputs, batch.lengths, batch.targets, batch.weights) if taught else (inputs, batch.lengths)
