"""From a config to objects: the only place where YAML becomes a task, a model, an optimiser, loggers."""

import dataclasses
import difflib
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqlab.analysis.findings import Analysis
from seqlab.tasks.checks import check_batch
from seqlab.training.batches import has_examples, hold_examples, make_epoch
from seqlab.training.carry import goes_on, initial_state
from seqlab.training.optimiser import Optimiser
from seqlab.training.settings import Settings
from seqlab.types import Batch, ContinuousTask, Logger, Task, UserError, model_arguments, require

SIZES = ("vocab_size", "d_input", "image_shape", "n_outputs")
OUTPUTS = {"row": "one output for each row", "step": "one output for each step", "sequence": "a sequence of its own"}
MODELS = {"row": "classifier", "step": "tagger", "sequence": "encoder_decoder"}


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of. `config` is the resolved config, plain containers all the way down; `sets` are
    the task's evaluation sets."""

    config: dict[str, Any]
    task: Task
    sets: dict[str, Batch]
    model: nn.Module
    optimiser: Optimiser
    settings: Settings
    seeds: list[int]


def build(config: DictConfig) -> Parts:
    """Build the parts of a run and check that they fit each other; the model is not compiled and nothing is written.

    Raises   UserError for a value that a part refuses, a batch that breaks its task's promises, and a model that does
             not fit its task.
    """
    require(bool(str(config.name or "").strip()), "name is empty: a run needs one, and so does its directory")
    task = instantiate(config.task)
    config = resolve(config, task)
    settings, seeds = instantiate(config.trainer), replica_seeds(config.seed, config.seeds)
    sets = task.evaluation_sets()
    for batch in (*sets.values(), *([task.examples()] if has_examples(task) else [])):
        check_batch(batch, task)
    parts = Parts(
        config=OmegaConf.to_container(config),  # type: ignore[arg-type]
        task=task,
        sets=sets,
        model=instantiate(config.model),
        optimiser=instantiate(config.optim, factor=instantiate(config.schedule)),
        settings=settings,
        seeds=seeds,
    )
    require_fit(parts.model, task)
    if goes_on(task):
        require_carry(parts.model, task, settings.batch_size)
    elif getattr(task, "targets_stand_ahead", False):
        require_blindness(parts.model, task)
    require_vocabulary(parts.model, task)
    return parts


def resolve(config: DictConfig, task: Task) -> DictConfig:
    """The config with every interpolation replaced by its value.

    `${task_size:name}` reads a size of the task; `${epochs:n}` is the number of updates in n passes over its examples.
    """

    def task_size(name: str) -> Any:
        nearest = difflib.get_close_matches(name, SIZES, n=1, cutoff=0.0)[0]
        require(name in SIZES, f"${{task_size:{name}}}: expected one of {', '.join(SIZES)} (nearest: {nearest})")
        return getattr(task, name, None)

    @functools.cache
    def epoch_steps(batch_size: int) -> int:
        return make_epoch(task, hold_examples(task)[0], batch_size).n_steps

    def epochs(*counts: Any) -> int:
        count = counts[0] if len(counts) == 1 else None
        told = ", ".join(map(str, counts))
        positive = isinstance(count, int | float) and not isinstance(count, bool) and count > 0
        require(positive, f"${{epochs:{told}}}: expected a positive number of epochs")
        trainer: Any = OmegaConf.to_container(config.trainer, resolve=False)
        batch_size = trainer["batch_size"]
        require(isinstance(batch_size, int), f"trainer.batch_size is {batch_size}: expected a whole number")
        return max(1, round(count * epoch_steps(batch_size)))  # type: ignore[operator]

    OmegaConf.register_new_resolver("task_size", task_size, replace=True)
    OmegaConf.register_new_resolver("epochs", epochs, replace=True)
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True))  # type: ignore[return-value]


def replica_seeds(seed: int, seeds: int) -> list[int]:
    """The seeds of the replicas: `seeds` of them from `seed` on."""
    for name, value, least in (("seed", seed, 0), ("seeds", seeds, 1)):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= least
        require(is_count, f"{name} is {value!r}: expected a whole number from {least}")
    require(seed + seeds <= 2**32, f"seed is {seed}: expected less than 2³²")
    return list(range(seed, seed + seeds))


def build_analyses(config: dict[str, Any]) -> dict[str, Analysis]:
    """The analyses of the node `analysis`, by name."""
    return {name: instantiate(node) for name, node in (config.get("analysis") or {}).items()}


def build_loggers(config: dict[str, Any]) -> list[Logger]:
    """The loggers of the node `logger`."""
    return [instantiate(node) for node in (config.get("logger") or {}).values()]


def require_fit(model: nn.Module, task: Task) -> None:
    """Refuse a model whose outputs are not of the shape that the task measures, from shapes alone."""

    def outputs(key: jax.Array) -> jax.Array:
        batch = task.sample(key, 1)
        return model.init_with_output(key, *model_arguments(model, batch), train=False)[0]

    wanted, name = task.target_per, type(model).__name__
    teacher_forced = getattr(model, "teacher_forced", False)
    # A decoder has no use for targets that are no sequence, so that its outputs are asked for only where they are one.
    shape = (0, 0, 0) if teacher_forced and wanted != "sequence" else jax.eval_shape(outputs, jax.random.key(0)).shape
    given = "sequence" if teacher_forced else {2: "row", 3: "step"}[len(shape)]
    require(
        given == wanted,
        f"{type(task).__name__} wants {OUTPUTS[wanted]}, but {name} gives {OUTPUTS[given]}: "
        f"choose model={MODELS[wanted]}",
    )
    require(
        shape[-1] == task.n_outputs,
        f"{type(task).__name__} wants {task.n_outputs} outputs, but {type(model).__name__} gives {shape[-1]}: "
        "leave model.n_outputs to the task",
    )


def require_carry(model: nn.Module, task: ContinuousTask, batch_size: int) -> None:
    """Refuse a text too short for the rows of a batch, and a model that cannot go on from window to window."""
    batch = jax.eval_shape(lambda: task.sample_at(jnp.int32(0), batch_size))
    wants = f"{type(task).__name__} hands the model's state on from window to window"
    require(hasattr(model, "init_state"), f"{wants}, but {type(model).__name__} has none: choose model=tagger")
    room = model.room(0)
    require(
        room is None,
        f"{wants} without end, but this model's has room for {room} steps (max_length): choose a recurrent layer",
    )

    _require_step(model, batch, wants)


def require_blindness(model: nn.Module, task: Task) -> None:
    """Refuse a model that sees ahead for a task whose targets stand there: such a one cannot take a step."""
    wants = f"{type(task).__name__} asks for what stands ahead in the inputs, which the model must not see"
    require(hasattr(model, "init_state"), f"{wants}, but {type(model).__name__} takes no steps: choose model=tagger")
    _require_step(model, jax.eval_shape(lambda: task.sample(jax.random.key(0), 1)), wants)


def _require_step(model: Any, batch: Batch, wants: str) -> None:
    def step(key: jax.Array, batch: Batch) -> Any:
        variables = model.init(key, *model_arguments(model, batch), train=False)
        state = initial_state(model, variables, len(batch.inputs))
        return model.apply(variables, state, batch.inputs[:, 0], method="step")

    try:
        jax.eval_shape(step, jax.random.key(0), batch)
    except UserError as error:
        raise UserError(f"{wants}: {error}") from error


def require_vocabulary(model: nn.Module, task: Task) -> None:
    """Refuse pretrained inputs whose ids mean other tokens than the task's."""
    inputs: Any = getattr(model, "inputs", None)
    require(
        not hasattr(inputs, "vocabulary") or inputs.vocabulary == getattr(task, "vocabulary", None),
        "The text of this task has another vocabulary than that with which the run of model.inputs.run was trained: "
        "take it over with task.learned_from=RUN, and of its own kind",
    )
