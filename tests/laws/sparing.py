"""What the laws share of their cases: which of them `make test` leaves to `make test-all`, and their names."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def sparing(cases: Iterable[Any], left_out: Callable[[Any], bool]) -> list[Any]:
    """The cases, with the mark `slow` on those left out: some of those that are known, none that is new."""
    return [pytest.param(case, marks=pytest.mark.slow) if left_out(case) else case for case in cases]


def is_variant(cell: Path) -> bool:
    """Whether the YAML of a cell says again, with another option, what another one says."""
    return cell.stem in {
        "rnn_relu",
        "rnn_layer_norm",
        "lstm_chrono",
        "lstm_layer_norm",
        "gru_after",
        "gru_layer_norm",
        "lstm_peephole",
        "flax_mgu",
    }


def in_short(overrides: list[str]) -> str:
    """The name of a case that is a list of overrides."""
    return " ".join(override.rpartition(".")[2] for override in overrides)
