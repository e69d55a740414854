"""Scenes: pictures of coloured shapes and what they show, drawn when they are asked for."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from seqlab.data.draws import fixed_draws
from seqlab.data.records import Record, Records, View
from seqlab.data.splits import FRACTIONS, require_fractions, split_records
from seqlab.types import require

SEED = 1729
"""The one start of all draws, so that every run sees the same scenes."""
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (200, 20, 20),
    "green": (20, 160, 40),
    "blue": (30, 60, 210),
    "yellow": (210, 190, 30),
    "purple": (150, 40, 180),
    "white": (215, 215, 215),
}
RADII = {"small": 3, "large": 6}
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("left of", "above")
GROUND = 20  # light of what lies behind
NOISE = 40  # what is added to all light, at most
LEAST = 27  # two large shapes have room beside each other


@dataclasses.dataclass(frozen=True)
class Scenes:
    """One shape or two on a dark ground, as `a small red circle left of a large blue square`.

        image   bytes of shape (side, side, 3)
        text    of one shape its size, colour and kind; of two those of the left or upper one, the relation, the other's

    A quarter of the scenes have one shape. Two shapes lie further from each other along the relation's axis than across
    it, and do not touch, so that each picture has the one text. Scene i is a function of i and `side` alone, by
    `fixed_draws(1729, i)`; there are `n` of them, cut by `fractions`.

    Raises   UserError for n < 3, side < 27, and fractions that are not three positive numbers whose sum is 1.
    """

    n: int = 5000
    side: int = 32
    fractions: Sequence[float] = FRACTIONS
    owner: ClassVar[str] = "scenes"

    def __post_init__(self) -> None:
        for name, least in (("n", 3), ("side", LEAST)):
            value = getattr(self, name)
            is_size = isinstance(value, int) and not isinstance(value, bool) and value >= least
            require(is_size, f"{self.owner} has {name} {value!r}; expected an integer of at least {least}.")
        require_fractions(self.fractions)

    def records(self) -> dict[str, Records]:
        """The records of train, validation and test."""
        return split_records(f"{self.owner} of n {self.n}", {"train": Drawn(self.n, self.side)}, self.fractions)


class Drawn(View):
    """Scenes 0 … n−1."""

    def __init__(self, n: int, side: int) -> None:
        self.n, self.side = n, side

    def __len__(self) -> int:
        return self.n

    def read(self, i: int) -> Record:
        rng = fixed_draws(SEED, i)
        n_shapes = 1 + (rng.rand() < 0.75)
        things = [(_choose(rng, RADII), _choose(rng, COLOURS), _choose(rng, SHAPES)) for _ in range(n_shapes)]
        relation = _choose(rng, RELATIONS)
        places = _place(rng, [RADII[size] for size, _, _ in things], self.side, relation == "left of")
        image_HWC = rng.randint(0, NOISE + 1, (self.side, self.side, 3), np.uint8)
        ground_HWC = np.full_like(image_HWC, GROUND)
        for (size, colour, shape), (row, column) in zip(things, places, strict=True):
            r = RADII[size]
            around_HWC = ground_HWC[row - r : row + r + 1, column - r : column + r + 1]
            around_HWC[_stencil(shape, r)] = COLOURS[colour]
        text = f" {relation} ".join(f"a {' '.join(thing)}" for thing in things)
        return {"image": image_HWC + ground_HWC, "text": text}


def _choose(rng: np.random.RandomState, names: Iterable[str]) -> str:
    choices = list(names)
    return choices[rng.randint(len(choices))]


def _place(rng: np.random.RandomState, radii: Sequence[int], side: int, beside: bool) -> list[tuple[int, int]]:
    """Centres (row, column) inside the picture: of two, the first one is left of the other, or above it."""
    r, last = radii[0], radii[-1]
    if len(radii) == 1:
        return [(rng.randint(r, side - r), rng.randint(r, side - r))]
    gap = rng.randint(r + last + 2, side - r - last)
    along, across = rng.randint(r, side - last - gap), rng.randint(r, side - r)
    aside = (gap - 1) // 2
    other = rng.randint(max(last, across - aside), min(side - last, across + aside + 1))
    centres = [(across, along), (other, along + gap)]
    return centres if beside else [(along, across) for across, along in centres]


@functools.cache
def _stencil(shape: str, r: int) -> np.ndarray:
    """Which of the 2r + 1 rows and columns around its centre a shape covers."""
    y_HW, x_HW = np.mgrid[-r : r + 1, -r : r + 1]
    if shape == "circle":
        return y_HW**2 + x_HW**2 <= r * (r + 1)
    return np.ones_like(y_HW, bool) if shape == "square" else 2 * abs(x_HW) <= y_HW + r
