"""The conf tree as the command line sees it: where it is, which names it knows, which override names none of them."""

import difflib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import hydra
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from seqlab.types import UserError, require


def find_conf(package: Path) -> Path:
    """The Hydra tree of a package: inside it when installed from a wheel, beside it in a checkout."""
    packaged = package / "conf"
    return packaged if packaged.is_dir() else package.parent / "conf"


CONF = find_conf(Path(__file__).parent)
SWEEP_LAUNCHERS = ("joblib", "submitit_local", "submitit_slurm")
PLAIN_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", type(None): "null"}
OF_TRAINING = (
    *("optim", "schedule", "logger", "trainer.steps", "trainer.accumulate", "trainer.ema", "trainer.max_nonfinite"),
    *("trainer.log_every", "trainer.eval_every", "trainer.save_every", "trainer.analyze_every"),
    *("trainer.patience", "trainer.profile", "trainer.hosts"),
)
"""What counts while a run is trained, and never again."""

FLAX_FIELDS = {"name", "parent"}
HYDRA_FIELDS = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")


def groups() -> dict[str, list[str]]:
    """The config groups, each with its choices; Hydra's own are not among them."""
    found: dict[str, list[str]] = {}
    for file in sorted(CONF.rglob("*/*.yaml")):
        group = file.parent.relative_to(CONF)
        if group.parts[0] != "hydra":
            found.setdefault(group.as_posix(), []).append(file.stem)
    return found


def stored_overrides(run_dir: Path) -> list[str]:
    """The overrides with which the run in `run_dir` was started.

    Raises   UserError when there is no run.
    """
    file = run_dir / "overrides.yaml"
    require(file.is_file(), f"{run_dir} holds no run: there is no {file.name} in it.")
    try:
        overrides = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: it is damaged.") from error
    require(isinstance(overrides, list), f"{file} cannot be read: it is not a list of overrides.")
    return [str(override) for override in overrides]


def merge_overrides(earlier: list[str], later: list[str]) -> list[str]:
    """Both lists, without the earlier overrides of keys that are given again.

    Where analyses are chosen again, the fields of the earlier ones go too: the choice may be another.
    """
    given_again = {_key(override) for override in later}

    def stays(key: str) -> bool:
        return key not in given_again and not ("analysis" in given_again and key.startswith("analysis."))

    return [override for override in earlier if stays(_key(override))] + later


def require_of_use(overrides: list[str], run_dir: str) -> None:
    """Refuse what tells a command how to train the run that it only reads."""
    for override in overrides:
        key = _key(override)
        require(
            "=" not in override or not any(key == part or key.startswith(f"{part}.") for part in OF_TRAINING),
            f"{override} would change nothing: the run in {run_dir} is trained already; leave it out.",
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a wrong name: the right names nearest to it, or its siblings when none is near."""
    parent, _, last = name.rpartition(".")

    def likeness(candidate: str) -> float:
        its_parent, _, its_last = candidate.rpartition(".")
        initials = "".join(word[:1] for word in its_last.split("_"))
        alike = 1.0 if last == initials else difflib.SequenceMatcher(None, last, its_last).ratio()
        return alike * difflib.SequenceMatcher(None, parent, its_parent).ratio() if parent else alike

    ranked = sorted({*names}, key=likeness, reverse=True)
    near = [candidate for candidate in ranked if likeness(candidate) >= 0.6][:3]
    settable = [candidate for candidate in ranked if candidate.rpartition(".")[2] not in HYDRA_FIELDS]
    siblings = sorted(candidate for candidate in settable if candidate.rpartition(".")[0] == parent)
    return f"did you mean {_either(near)}?" if near else f"there are {', '.join(siblings or sorted(settable))}."


def require_wellformed(overrides: list[str]) -> None:
    """Refuse what Hydra would take without a word: a new root key, which nothing would ever read."""
    root = {*OmegaConf.load(CONF / "config.yaml"), *groups()} - {"defaults"}
    for override in overrides:
        require(
            "=" in override or override.startswith("~"),
            f"{override} is not an override: write key=value, for example +experiment=copy_task.",
        )
        key = _key(override)
        if override.startswith("+") and "." not in key and "/" not in key:
            require(key in root, f"{override}: there is no group or key {key}; {nearest(key, root)}")


def explain_missing(error: MissingConfigException) -> str:
    """The sentence for a choice that does not exist."""
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    if group == "hydra/launcher" and choice in SWEEP_LAUNCHERS:
        return f"hydra/launcher={choice} needs the extra sweep: pip install 'seqlab[sweep]'."
    options = error.options or groups().get(group)
    if not options:
        return f"{group or choice}: there is no such group; {nearest(group or choice, groups())}"
    return f"{group}={choice}: there is no {choice} in {group}; {nearest(choice, options)}"


def bringing(group: str) -> list[str]:
    """The choices whose defaults lists bring a group of the model along."""
    parent, _, name = group.rpartition("/")
    entry = re.compile(rf"^  - (/{group}|{name}): ", re.MULTILINE)
    return [
        f"{owner}={path.stem}"
        for owner in dict.fromkeys((parent, "model/encoder", "model/decoder"))
        if owner
        for path in sorted((CONF / owner).glob("*.yaml"))
        if entry.search(path.read_text(encoding="utf-8"))
    ]


def explain_absent(group: str) -> str | None:
    """The sentence for a group that only other choices than those taken bring along."""
    choices = bringing(group)
    return f"{group}: the model of this config has none; it comes with {_either(choices)}." if choices else None


def explain_unfit(file: str, group: str, overrides: list[str]) -> str:
    """The sentence for an experiment that chooses of a group which the other choices do not bring along."""
    told = f"{file} chooses a {group}, but what else is chosen here has none: leave one out"
    others = [override for override in overrides if override != f"+{file.replace('/', '=', 1)}"]
    task = re.search(r"override /task: (\w+)", (CONF / f"{file}.yaml").read_text(encoding="utf-8"))
    if task is None or others == overrides:
        return f"{told}."
    return f"{told}, or begin with the task alone: {' '.join([f'task={task[1]}', *others])}"


def explain_key(config_name: str, overrides: list[str]) -> str | None:
    """The sentence for the first override whose key is not in the config that the choices among them make."""
    known_groups = groups()
    parsed = OverridesParser.create().parse_overrides(overrides)
    chosen = [_choices(override) for override in parsed if override.key_or_group in known_groups]
    settings = [override for override in parsed if override.key_or_group not in known_groups and not override.is_add()]
    for choices in itertools.product(*chosen):
        for choice in choices:
            group, _, value = choice.partition("=")
            if not choice.startswith("+") and group in ("experiment", "debug"):
                return f"{choice}: {group} is added to the config, so write +{group}={value}."
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = hydra.compose(config_name, overrides=list(choices), return_hydra_config=True)
        keys = list(_keys(OmegaConf.to_container(config, resolve=False)))
        for override in settings:
            if override.key_or_group not in keys:
                inside = [key for key in keys if key.startswith("hydra.") == override.key_or_group.startswith("hydra.")]
                key = override.key_or_group
                return f"{override.input_line}: there is no key {key}; {nearest(key, [*inside, *known_groups])}"
    return None


def require_known_fields(config: DictConfig) -> None:
    """Refuse a node that gives its constructor a field which that does not have, or a value of another type.

    Partial nodes too, and before anything is built. Types are checked where the constructor says plain ones.

    Raises   UserError with the field, its path and the nearest fields, or the type.
    """
    for path, node in _nodes("", OmegaConf.to_container(config, resolve=False)):
        try:
            constructor = get_object(node["_target_"])
        except (ImportError, ValueError) as error:
            raise UserError(f"{path}._target_={node['_target_']}: there is no such object.") from error
        try:
            fields = inspect.signature(constructor).parameters
        except ValueError:  # a type written in C
            continue
        if any(field.kind is inspect.Parameter.VAR_KEYWORD for field in fields.values()):
            continue
        settable = fields.keys() - (FLAX_FIELDS if fields.keys() >= FLAX_FIELDS else set())
        for name in sorted(node.keys() - fields.keys() - {*HYDRA_FIELDS}):
            raise UserError(f"{path}.{name}: {constructor.__name__} has no field {name}; {nearest(name, settable)}")
        for name in sorted(node.keys() & fields.keys()):
            _require_type(f"{path}.{name}", node[name], fields[name].annotation)


def _require_type(path: str, value: Any, annotation: Any) -> None:
    """Refuse a value of none of the annotation's types; one that is not plain, or not yet resolved, may pass."""
    types = get_args(annotation) or (annotation,)
    unresolved = isinstance(value, str) and "${" in value
    if unresolved or isinstance(value, dict | list) or not all(type_ in PLAIN_TYPES for type_ in types):
        return
    given = type(value)
    fits = given in types or (given is int and float in types)
    expected = " or ".join(PLAIN_TYPES[type_] for type_ in types)
    require(fits, f"{path}={value}: expected {expected}.")


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _choices(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _keys(tree: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for name, child in tree.items():
            yield f"{prefix}{name}"
            yield from _keys(child, f"{prefix}{name}.")


def _nodes(path: str, tree: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(tree, dict):
        if "_target_" in tree:
            yield path, tree
        for name, child in tree.items():
            yield from _nodes(f"{path}.{name}".lstrip("."), child)


def _either(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
