"""Moving digits: films of pictures that walk about, drawn when they are asked for."""

import dataclasses
from typing import ClassVar

import numpy as np

from seqlab.data.draws import fixed_draws
from seqlab.data.pictures import read_picture
from seqlab.data.records import Record, Records, View, place
from seqlab.data.sources.arrays import Arrays
from seqlab.data.splits import SPLITS
from seqlab.types import require

SEED = 1729
"""The one start of all draws, so that every run sees the same films."""
MOVES = {"still": (0, 0), "up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STEP = 3  # places that a move is far
KEPT = 0.7  # probability of going on as before, where there is room
Place = tuple[int, int]  # row and column of the upper left corner


@dataclasses.dataclass(frozen=True)
class MovingDigits(Arrays):
    """A picture of an .npz file, as a handwritten digit, that walks about a dark canvas; half of it hidden.

        video    bytes of shape (T, side, side, C), T from `min_frames` to `max_frames`
        label    the label of the picture
        labels   of each frame, how the picture has moved since the last one: still, up, down, left or right

    The first frame is still. In each frame each pixel is dark with probability
    `hidden`, so that one frame says less than all. The pictures are split before they walk, so that no two splits share
    one. Film i of a split is a function of i, the split and its picture alone, by
    `fixed_draws(1729, split, i)`.

    Raises   UserError as `Arrays`, for a picture that is not (H, W, C), a canvas on which it cannot move, frames that
             are no range of positive integers, and hidden outside [0, 1).
    Source   after Srivastava, Mansimov, Salakhutdinov 2015, arXiv:1502.04681, §3.1 (Moving MNIST).
    """

    side: int = 20
    min_frames: int = 6
    max_frames: int = 16
    hidden: float = 0.5
    owner: ClassVar[str] = "moving_digits"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("side", 1), ("min_frames", 1), ("max_frames", self.min_frames)):
            value = getattr(self, name)
            is_size = isinstance(value, int) and not isinstance(value, bool) and value >= least
            require(is_size, f"{self.owner} has {name} {value!r}; expected an integer of at least {least}.")
        is_rate = isinstance(self.hidden, int | float) and 0 <= self.hidden < 1
        require(is_rate, f"{self.owner} has hidden {self.hidden!r}; expected a number from 0 on, less than 1.")

    def records(self) -> dict[str, Records]:
        """The records of train, validation and test."""
        pictures = super().records()
        return {split: Films(self, split, pictures[split]) for split in SPLITS}


class Films(View):
    """A film for each picture of a split."""

    def __init__(self, source: MovingDigits, split: str, pictures: Records) -> None:
        self.source, self.split, self.pictures = source, split, pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def where(self, i: int) -> str:
        return place(self.pictures, i, self.split)

    def read(self, i: int) -> Record:
        record, side = self.pictures[i], self.source.side
        picture_HWC = read_picture(record, "image", self.where(i))
        H, W, C = picture_HWC.shape
        require(
            side >= max(H, W) + STEP,
            f"{self.source.owner} has side {side}; expected at least {max(H, W) + STEP}, as pictures of {H} × {W} are "
            f"to move by {STEP}.",
        )
        rng = fixed_draws(SEED, SPLITS.index(self.split), i)
        T = rng.randint(self.source.min_frames, self.source.max_frames + 1)
        places, moves = _walk(rng, T, side - H, side - W)
        shown_THW1 = rng.rand(T, H, W, 1) >= self.source.hidden
        video_THWC = np.zeros((T, side, side, C), picture_HWC.dtype)
        for frame_HWC, shown_HW1, (row, column) in zip(video_THWC, shown_THW1, places, strict=True):
            frame_HWC[row : row + H, column : column + W] = picture_HWC * shown_HW1
        return {"video": video_THWC, "label": record["label"], "labels": moves}


def _walk(rng: np.random.RandomState, T: int, last_row: int, last_column: int) -> tuple[list[Place], list[str]]:
    """Where a picture is at each frame, and by which move it got there, always on the canvas."""
    places, moves = [(rng.randint(last_row + 1), rng.randint(last_column + 1))], ["still"]
    while len(places) < T:
        row, column = places[-1]
        ways = {name: (row + STEP * down, column + STEP * right) for name, (down, right) in MOVES.items()}
        ways = {name: (y, x) for name, (y, x) in ways.items() if 0 <= y <= last_row and 0 <= x <= last_column}
        move = moves[-1]
        if move == "still" or move not in ways or rng.rand() >= KEPT:
            move = list(ways)[rng.randint(len(ways))]
        places.append(ways[move])
        moves.append(move)
    return places, moves
