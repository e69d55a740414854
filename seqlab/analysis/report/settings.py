"""What differs between the configs of runs."""

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from seqlab.analysis.report.runs import ClassPath, Run
from seqlab.analysis.run_table import shorten
from seqlab.overrides import nearest
from seqlab.training.onlookers import is_onlooker
from seqlab.types import UserError, require

ABSENT = "–"
SEEDS = ("seed", "seeds")
WORDS = ("tags", "notes")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A key of the config, a short name for it, and its value in each run as text; `also`: keys that go with it."""

    key: str
    label: str
    values: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def is_numeric(self) -> bool:
        return all(to_number(value) is not None for value in self.values if value != ABSENT)

    @property
    def n_values(self) -> int:
        return len({*self.values} - {ABSENT})


def to_number(text: str) -> float | None:
    """The finite number that a text is, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def differing_settings(runs: Sequence[Run]) -> list[Setting]:
    """The settings in which runs differ: first those that a command line has changed, then in the config's order.

    A key that some runs lack is a difference too, unless they lack it because they have chosen another class. Keys
    that have the same values in all runs, as when one refers to the other, are one setting.
    """
    keys = dict.fromkeys(key for run in runs for key in run.settings or {} if not is_onlooker(key))
    columns = {key: _column(runs, key) for key in keys}
    differing = [key for key in keys if len({*columns[key]} - {ABSENT}) > 1 or _is_lacked(runs, key)]
    changed = {match for run in runs for name, _ in _pairs(run) for match in _matches(name, differing)[:1]}
    differing.sort(key=lambda key: key not in changed)
    together: dict[tuple[str, ...], list[str]] = {}
    for key in differing:
        together.setdefault(columns[key], []).append(key)
    labels = shorten([keys[0] for keys in together.values()])
    return [
        Setting(keys[0], label, values, tuple(keys[1:]))
        for label, (values, keys) in zip(labels, together.items(), strict=True)
    ]


def find_setting(name: str, runs: Sequence[Run], settings: Sequence[Setting]) -> Setting:
    """The setting that is asked for, by its key or as much of it as tells it from others: `cell`, `model/cell`.

    Raises   UserError for a name that no config has, that several have, or that is the same in all runs.
    """
    known = {key: setting for setting in settings for key in (setting.key, *setting.also)}
    found = _matches(name, known)
    if found:
        shown = {known[key].key: known[key] for key in found}
        require(len(shown) == 1 or name in found, f"{name} may be {' or '.join(found)}: write which.")
        return known[name] if name in known else next(iter(shown.values()))
    everywhere = dict.fromkeys(key for run in runs for key in run.settings or {})
    same = _matches(name, everywhere)
    if same:
        value = next(run.settings[same[0]] for run in runs if run.settings and same[0] in run.settings)
        others = f"; {_suggest(name, known)}" if known else ", and nothing else differs."
        raise UserError(f"{same[0]} is {value} in all runs that have it{others}")
    raise UserError(f"{name}: no config of these runs has this key; {_suggest(name, known or everywhere)}")


def _matches(name: str, keys: Sequence[str] | dict[str, Setting] | dict[str, None]) -> list[str]:
    """The keys that a name may stand for: itself, or those that have its words in order and end with the last."""
    if name in keys:
        return [name]
    words = _words(name)

    def fits(key: str) -> bool:
        parts = iter(key.split("."))
        return key.split(".")[-1] == words[-1] and all(word in parts for word in words)

    return [key for key in keys if fits(key)]


def _suggest(name: str, keys: Iterable[str]) -> str:
    """The end of a sentence about a wrong name: what may stand for the keys, of as many words and written as it is."""
    sign = "/" if "/" in name else "."
    n_outer = len(_words(name)) - 1

    def most_like(key: str) -> str:
        *outer, last = key.split(".")
        some = itertools.combinations(outer, min(n_outer, len(outer)))
        names = [sign.join([*words, last]) for words in some]
        return max(names, key=lambda written: difflib.SequenceMatcher(None, name, written).ratio())

    return nearest(name, map(most_like, keys))


def _words(name: str) -> list[str]:
    return re.split(r"[./]", name.partition("@")[2] or name)


def _column(runs: Sequence[Run], key: str) -> tuple[str, ...]:
    values = [_value(run, key) for run in runs]
    if any(isinstance(value, ClassPath) for value in values):
        # Two choices may be of one class: where all runs say which they took, that tells them apart.
        chosen = [_choice(run, key) for run in runs]
        pairs = {*zip(chosen, values, strict=True)}
        if all(chosen) and len({*values}) < len(pairs) == len({*chosen}):
            return tuple(chosen)
    # 1 and 1.0 are the same number, a class goes by its name unless two have the same.
    first: dict[float, str] = {}
    values = [value if (number := to_number(value)) is None else first.setdefault(number, value) for value in values]
    short = {value: value.rpartition(".")[2] if isinstance(value, ClassPath) else value for value in values}
    return tuple(short[value] if len({*short.values()}) == len(short) else value for value in values)


def _choice(run: Run, key: str) -> str:
    """The choice that a command line took for a node, the last one; empty where it took none."""
    return next((value for name, value in reversed(_pairs(run)) if "/" in name and _matches(name, [key])), "")


def _is_lacked(runs: Sequence[Run], key: str) -> bool:
    """Whether a run lacks a key though it has the classes within which others have it."""
    told = [run.settings for run in runs if run.settings is not None]
    having = [settings for settings in told if key in settings]
    parts = key.split(".")
    outer = [".".join(parts[:k]) for k in range(1, len(parts))]
    chosen = {name: {settings.get(name) for settings in having} for name in outer}
    return any(all(settings.get(name) in chosen[name] for name in outer) for settings in told if key not in settings)


def _value(run: Run, key: str) -> str:
    if run.settings is not None:
        return run.settings.get(key, ABSENT)
    # A job that failed before it wrote its config is known by its overrides alone.
    told = [value for name, value in _pairs(run) if _matches(name, [key])]
    return told[0] if told else ABSENT


def _pairs(run: Run) -> list[tuple[str, str]]:
    """The overrides as keys and values."""
    return [(name.lstrip("+~"), value) for name, _, value in (override.partition("=") for override in run.overrides)]
