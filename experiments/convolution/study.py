"""What fixed kernels and poolings do to a picture, and that a convolution is a correlation with the flipped kernel.

    python experiments/convolution/study.py

prints the differences that it measures and draws figure.png beside this file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import seqlab  # noqa: F401 (before JAX, so that its log is quiet)

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.signal import convolve2d

from seqlab.nn.spatial import KERNELS, POOLINGS, convolve, correlate, pool

FIGURE = Path(__file__).with_name("figure.png")
SIDE, WINDOW = 64, 4
ROWS = (("identity", "sharpen", "blur"), ("horizontal edges", "vertical edges", "all edges"))
STROKES = [  # an A, an E and an X, each stroke from (row, column) to (row, column)
    *(((56, 6), (38, 13)), ((38, 13), (56, 20)), ((50, 9), (50, 17))),
    *(((38, 27), (56, 27)), ((38, 27), (38, 37)), ((47, 27), (47, 35)), ((56, 27), (56, 37))),
    *(((38, 44), (56, 57)), ((56, 44), (38, 57))),
]


def paint() -> np.ndarray:
    """A picture from 0 (black) to 1 (white): a bright disc, a dark square and letters on a grey that grows lighter."""
    row, column = np.mgrid[:SIDE, :SIDE].astype(np.float64)
    picture = 0.25 + 0.4 * column / (SIDE - 1)

    def cover(distance: np.ndarray, shade: float) -> None:
        """Lay a shape over the picture; its border is as wide as a pixel."""
        alpha = np.clip(0.5 - distance, 0, 1)
        picture[:] = (1 - alpha) * picture + alpha * shade

    cover(np.hypot(row - 18, column - 18) - 11, 0.95)
    cover(np.maximum(abs(row - 18), abs(column - 46)) - 10, 0.05)
    for (r, c), (r_end, c_end) in STROKES:
        along = np.clip(
            ((row - r) * (r_end - r) + (column - c) * (c_end - c)) / ((r_end - r) ** 2 + (c_end - c) ** 2), 0, 1
        )
        cover(np.hypot(row - r - along * (r_end - r), column - c - along * (c_end - c)) - 0.75, 0.95)
    return picture.astype(np.float32)


def on(function: Callable[..., Any], picture: np.ndarray, *arguments: Any) -> np.ndarray:
    return np.asarray(function(picture[None, ..., None], *arguments)[0, ..., 0])


def measure(picture: np.ndarray) -> None:
    """Print, for each kernel, how far SciPy's convolution is from ours and from correlations, at most."""
    print("| kernel | our convolution | correlation with the flipped kernel | correlation with the kernel as it is |")
    print("|---|---|---|---|")
    rng = np.random.default_rng(0)
    for name, kernel in {**KERNELS, "random": rng.normal(size=(3, 3)).astype(np.float32)}.items():
        truth = convolve2d(picture.astype(np.float64), kernel, "valid")
        others = (
            on(convolve, picture, kernel),
            on(correlate, picture, kernel[::-1, ::-1]),
            on(correlate, picture, kernel),
        )
        cells = [f"{np.abs(other - truth).max():.1e}" for other in others]
        print(f"| {name} | {' | '.join(cells)} |")


def show(axis: Axes, picture: np.ndarray, title: str, signed: bool = False) -> None:
    """Draw a panel, and write under it how large it is and what its colours mean."""
    limit = np.ceil(2 * np.abs(picture).max()) / 2
    meaning = f"blue −{limit:.1f}, white 0, red {limit:.1f}" if signed else "black 0, white 1"
    colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit} if signed else {"cmap": "gray", "vmin": 0, "vmax": 1}
    axis.imshow(picture, interpolation="nearest", **colours)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=12)
    axis.set_xlabel(f"{picture.shape[0]} × {picture.shape[1]};  {meaning}", fontsize=9)


def as_text(kernel: np.ndarray) -> str:
    """A kernel as a table of whole numbers, over their common divisor where it has one."""
    divisor = round(1 / np.abs(kernel[kernel != 0]).min())
    rows = "\n".join(" ".join(f"{round(k * divisor):2d}".replace("-", "−") for k in row) for row in kernel)
    return rows if divisor == 1 else f"1/{divisor} ×\n{rows}"


def draw(picture: np.ndarray) -> Figure:
    """The picture under six kernels, each beside its panel, and under three poolings."""
    figure = Figure(figsize=(11.5, 10.5))
    figure.subplots_adjust(left=0.02, right=0.92, bottom=0.04, top=0.96, wspace=0.28, hspace=0.24)
    axes = figure.subplots(3, 3)
    for line, names in zip(axes, ROWS, strict=False):
        for axis, name in zip(line, names, strict=True):
            kernel = KERNELS[name]
            show(axis, on(correlate, picture, kernel), name, "edges" in name)
            axis.text(1.03, 0.5, as_text(kernel), transform=axis.transAxes, family="monospace", fontsize=9, va="center")
    for axis, pooling in zip(axes[-1], POOLINGS, strict=True):
        show(axis, on(pool, picture, pooling, WINDOW), f"{pooling} of {WINDOW} × {WINDOW}")
    return figure


def main() -> None:
    picture = paint()
    measure(picture)
    draw(picture).savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
