"""Pictures in files, as bytes of one shape."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from seqlab.data.pictures import MODES
from seqlab.types import UserError, require

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".webp")


def is_picture(file: Path) -> bool:
    """Whether a name is that of a picture, and of none that is hidden."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def decode_picture(file: Path, height: int, width: int, n_channels: int) -> np.ndarray:
    """The bytes of a picture, resized where it has another size.

    Shapes   (H, W, C)
    Raises   UserError for a file that is no picture or is damaged.
    """
    with _opened(file) as picture:
        image = picture.convert(MODES[n_channels])
        image = image if image.size == (width, height) else image.resize((width, height))
    return np.asarray(image).reshape(height, width, n_channels)


def measure_picture(file: Path) -> tuple[int, int]:
    """Height and width of a picture, of which its head alone is read.

    Raises   UserError for a file that is no picture.
    """
    with _opened(file) as picture:
        return picture.height, picture.width


def read_like(file: Path, first: np.ndarray, resized: bool) -> np.ndarray:
    """A picture in a file as the pictures of a data set are, of which `first` is one.

    Raises   UserError for a file that is no picture or is damaged, for one of another size unless pictures are
             `resized`, and for a data set whose numbers no file says: floats, or channels that are no colours.
    """
    height, width, n_channels = first.shape
    require(
        first.dtype == np.uint8 and n_channels in MODES,
        f"{file} holds bytes of 1 or 3 channels, but the pictures of this run's data are {first.dtype} of "
        f"{n_channels}: how it is to be read is not known.",
    )
    size = measure_picture(file)
    require(
        resized or size == (height, width),
        f"{file} is {size[0]} × {size[1]}, but the pictures of this run's data are {height} × {width}: resize it.",
    )
    return decode_picture(file, height, width, n_channels)


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(file) as picture:
            yield picture
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error) as error:
        raise UserError(f"{file} cannot be read: it is no picture, or is damaged.") from error
