"""Pictures in folders: the name of a folder is the class of what is in it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from seqlab.data.records import Record, Records, View
from seqlab.data.sources.files import Files
from seqlab.types import UserError, require

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
MODES = {1: "L", 3: "RGB"}


@dataclasses.dataclass(frozen=True)
class ImageFolder(Files):
    """The pictures PATH/CLASS/NAME.png (or another format), decoded when they are asked for.

        image   bytes of shape (H, W, channels): grey for 1 channel, red, green and blue for 3
        label   the name of the class's folder

    `size: [H, W]` resizes them all; without it they must have one size. Hidden files and other suffixes are skipped.

    Raises   UserError as `Files`; for a folder without classes, a class without pictures, a file that is no picture,
             and one of another size than the first.
    """

    size: Sequence[int] | None = None
    channels: int = 3
    owner: ClassVar[str] = "image_folder"
    expected: ClassVar[str] = "the path of a folder"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.channels in MODES, f"{self.owner} has channels {self.channels}; expected 1 or 3.")
        listed = isinstance(self.size, Sequence) and len(self.size) == 2
        two = self.size is None or (listed and all(isinstance(n, int) and n > 0 for n in self.size))
        require(two, f"{self.owner} has size {self.size}; expected [height, width] or null.")

    def read(self, path: str) -> Records:
        folder = Path(path)
        require(
            folder.is_dir(), f"{folder} is no folder." if folder.exists() else f"The folder {folder} does not exist."
        )
        classes = [entry for entry in _visible(folder) if entry.is_dir()]
        require(bool(classes), f"The folder {folder} has no folder in it; expected one for each class.")
        files: list[Path] = []
        for one in classes:
            pictures = [file for file in _visible(one) if file.suffix.lower() in SUFFIXES]
            require(bool(pictures), f"The folder {one} holds no picture.")
            files += pictures
        if self.size is not None:
            height, width = self.size
        else:
            # Looks at the heads of the files alone.
            height, width = _size(files[0])
            for file in files:
                size = _size(file)
                require(
                    size == (height, width),
                    f"{file} is {size[0]} × {size[1]}, but {files[0]} is {height} × {width}: say task.source.size.",
                )
        return Pictures(files, height, width, MODES[self.channels])


class Pictures(View):
    """Pictures of one size, each decoded when it is asked for."""

    def __init__(self, files: Sequence[Path], height: int, width: int, mode: str) -> None:
        self.files, self.size, self.mode = files, (width, height), mode

    def __len__(self) -> int:
        return len(self.files)

    def read(self, i: int) -> Record:
        file = self.files[i]
        try:
            with Image.open(file) as picture:
                image = picture.convert(self.mode)
                image = image if image.size == self.size else image.resize(self.size)
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise UserError(f"{file} cannot be read: it is no picture, or is damaged.") from error
        image_HW = np.asarray(image)
        return {"image": image_HW.reshape(*image_HW.shape[:2], -1), "label": file.parent.name}


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _size(file: Path) -> tuple[int, int]:
    try:
        with Image.open(file) as picture:
            return picture.height, picture.width
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise UserError(f"{file} cannot be read: it is no picture, or is damaged.") from error
