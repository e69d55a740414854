"""A few rows of what a model reads, should say and says, to be read by people."""

import json
import logging
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from seqlab.analysis.findings import first_rows, replicas
from seqlab.analysis.tokens import input_tokens, show
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling
from seqlab.evaluation.written import write_texts
from seqlab.files import to_json, write_whole
from seqlab.types import Batch, Exhibit, Params, Table, Task, model_arguments

_log = logging.getLogger(__name__)
N_ROWS = 8
N_CHARACTERS, N_NUMBERS = 300, 16
N_PROMPTS, N_PROMPT_TOKENS, N_TOKENS, TEMPERATURE = 3, 32, 128, 0.8


def leave_samples(
    task: Task,
    sets: dict[str, Batch],
    model: nn.Module,
    params_R: Params,
    written: list[dict[str, Any]] | None,
    path: Path,
    step: int | None,
    seed: int,
) -> dict[str, Table] | None:
    """Keep in `path` what the first replica says of a few rows, as `take_samples`; a run is whole without: None."""
    try:
        tables = take_samples(task, sets, model, replicas(params_R)[0], written)
    except Exception as error:
        told = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        _log.warning("There are no samples of what the model says (%s)", told)
        return None
    keep_samples(tables, path, step, seed)
    return tables


def take_samples(
    task: Task, sets: dict[str, Batch], model: nn.Module, params: Params, written: list[dict[str, Any]] | None = None
) -> dict[str, Table]:
    """Say what a model says of the first rows of the test set, and how a language model goes on from a text.

        predictions    input, target and prediction: the most probable class or token of each step that has a target, a
                       number, or a sequence as it is written greedily; of rows that are `written` already, these texts
        generations    prompt, of validation text, and generation: drawn at temperature 0.8

    `params` are those of one replica, the first of those that have written.
    """
    if written is not None:
        rows = [{**row, "written": row["written"][0]} for row in written[:N_ROWS]]
        tables = {"predictions": Table(tuple(rows[0]), [tuple(_cut(text) for text in row.values()) for row in rows])}
    else:
        batch = first_rows(sets["test"], N_ROWS)
        wanted, said = _say(task, model, params, batch)
        inputs = [_read(task, batch, row) for row in range(len(wanted))]
        tables = {"predictions": Table(("input", "target", "prediction"), list(zip(inputs, wanted, said, strict=True)))}
    if getattr(task, "targets_stand_ahead", False) and hasattr(model, "begin"):
        tables["generations"] = _go_on(task, model, params)
    return tables


def keep_samples(tables: dict[str, Table], path: Path, step: int | None, seed: int) -> None:
    """Write a line of JSON for each row, with the step and the seed of who says it; for pictures there are words."""
    lines = [
        {"step": step, "seed": seed, "table": name, **dict(zip(table.columns, row, strict=True))}
        for name, table in tables.items()
        for row in table.texts()
    ]
    write_whole(path, "".join(to_json(line) + "\n" for line in lines))


def read_samples(path: Path) -> Exhibit:
    """The samples of a file, as loggers are shown them."""
    tables: dict[str, Table] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        step, _, name = (row.pop(key) for key in ("step", "seed", "table"))
        tables.setdefault(name, Table(tuple(row), [])).rows.append(tuple(row.values()))
    return Exhibit(step, "samples", path, tables=tables)


def _read(task: Any, batch: Batch, row: int) -> Any:
    inputs = np.asarray(batch.inputs[row])
    if inputs.ndim >= 3:
        return _picture(inputs if inputs.ndim == 3 else inputs[0])  # A film is told by how it begins.
    inputs = inputs if batch.lengths is None else inputs[: int(batch.lengths[row])]
    if task.vocab_size is None:
        return _write_numbers(inputs)
    if hasattr(task, "decode_target") and not hasattr(task, "vocabulary"):
        return _cut(task.decode_target(inputs))
    return _join(task, input_tokens(task, batch, row))


def _say(task: Any, model: nn.Module, params: Params, batch: Batch) -> tuple[list[str], list[str]]:
    targets, told = np.asarray(batch.targets), np.asarray(batch.weights) > 0
    rows = range(len(targets))
    if task.target_per == "sequence" and hasattr(task, "decode_target"):
        wanted = [task.decode_target(targets[row][told[row] & (targets[row] != task.eos)]) for row in rows]
        said = write_texts(task, model, params, batch, len(targets), n_tokens=targets.shape[1])
        return list(map(_cut, wanted)), list(map(_cut, said))
    return write_outputs(task, batch, _apply(model, params, batch))


def write_outputs(task: Task, batch: Batch, outputs: Any) -> tuple[list[str], list[str]]:
    """The targets of each row in words, and what the outputs of a model say in their place."""
    targets, told = np.asarray(batch.targets), np.asarray(batch.weights) > 0
    rows = range(len(targets))
    if np.issubdtype(targets.dtype, np.floating):
        both = targets, np.asarray(outputs).reshape(targets.shape)
        wanted, said = ([_write_numbers(a[row][told[row]]) for row in rows] for a in both)
    else:
        both = targets, np.asarray(outputs).reshape(*targets.shape, -1).argmax(-1)
        wanted, said = ([_write_ids(task, a[row], told[row]) for row in rows] for a in both)
    return wanted, said


def _apply(model: nn.Module, params: Params, batch: Batch) -> Any:
    # An argument, and no constant: the program is then the same for every run, and can be taken from the cache.
    arguments = model_arguments(model, batch)
    return jax.jit(lambda params, arguments: model.apply({"params": params}, *arguments, train=False))(
        params, arguments
    )


def _go_on(task: Any, model: Any, params: Params) -> Table:
    ids_N, decode = task.ids["validation"], task.vocabulary.decode
    n_prompt = min(N_PROMPT_TOKENS, task.length)
    room = model.room(n_prompt)
    n_tokens = N_TOKENS if room is None else min(N_TOKENS, room)
    if n_tokens < 1:
        n_prompt, n_tokens = 1, model.room(1)
    starts = np.linspace(0, len(ids_N) - n_prompt, N_PROMPTS).astype(int)
    prompts = [np.asarray(ids_N[start : start + n_prompt], np.int32) for start in starts]
    stretches = generate(model, params, prompts, n_tokens, Sampling(TEMPERATURE))
    texts = [decode(np.concatenate(pieces)) for pieces in zip(*stretches, strict=True)]
    return Table(("prompt", "generation"), list(zip(map(decode, prompts), texts, strict=True)))


def _write_ids(task: Any, ids: np.ndarray, told: np.ndarray) -> str:
    """The names of the ids that are told; in a text, which is compared letter by letter, a dot for the others."""
    if ids.ndim == 2:  # what is said of two directions
        return " | ".join(_write_ids(task, ids[:, k], told) for k in range(ids.shape[1]))
    ids, told = np.atleast_1d(ids), np.atleast_1d(told)
    if hasattr(task, "classes"):
        return _cut(" ".join(task.classes.decode(ids[told])))
    if getattr(task, "vocabulary", None) is None:
        return _cut(" ".join(str(i) for i in ids[told]))
    names = (show(task.vocabulary.decode([i])) if is_told else "·" for i, is_told in zip(ids, told, strict=True))
    return _join(task, names)


def _join(task: Any, tokens: Any) -> str:
    vocabulary = getattr(task, "vocabulary", None)
    keeps_spaces = vocabulary is not None and vocabulary.kind != "token" and vocabulary.spaces
    return _cut(("" if keeps_spaces else " ").join(tokens))


def _write_numbers(values: np.ndarray) -> str:
    flat = np.ravel(values)
    told = " ".join(f"{value:.3g}" for value in flat[:N_NUMBERS])
    return told if len(flat) <= N_NUMBERS else f"{told} … ({' × '.join(map(str, values.shape))} numbers)"


def _picture(image_HWC: np.ndarray) -> np.ndarray:
    """The picture in bytes, with one channel or three."""
    image_HWC = image_HWC[..., : 3 if image_HWC.shape[-1] >= 3 else 1]
    if image_HWC.dtype == np.uint8:
        return image_HWC
    low, high = image_HWC.min(), image_HWC.max()
    return (255 * (image_HWC - low) / max(high - low, 1e-9)).astype(np.uint8)


def _cut(text: str) -> str:
    return text if len(text) <= N_CHARACTERS else f"{text[:N_CHARACTERS]}…"
