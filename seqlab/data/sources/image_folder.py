"""Pictures in folders: the name of a folder is the class of what is in it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from seqlab.data.picture_files import decode_picture, is_picture, measure_picture
from seqlab.data.pictures import MODES
from seqlab.data.records import Record, Records, View
from seqlab.data.sources.files import Files
from seqlab.types import require


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
            pictures = [file for file in _visible(one) if is_picture(file)]
            require(bool(pictures), f"The folder {one} holds no picture.")
            files += pictures
        if self.size is not None:
            height, width = self.size
        else:
            # Looks at the heads of the files alone.
            height, width = measure_picture(files[0])
            for file in files:
                size = measure_picture(file)
                require(
                    size == (height, width),
                    f"{file} is {size[0]} × {size[1]}, but {files[0]} is {height} × {width}: say task.source.size.",
                )
        return Pictures(files, height, width, self.channels)


class Pictures(View):
    """Pictures of one size, each decoded when it is asked for."""

    def __init__(self, files: Sequence[Path], height: int, width: int, n_channels: int) -> None:
        self.files, self.shape = files, (height, width, n_channels)

    def __len__(self) -> int:
        return len(self.files)

    def where(self, i: int) -> str:
        return str(self.files[i])

    def read(self, i: int) -> Record:
        file = self.files[i]
        return {"image": decode_picture(file, *self.shape), "label": file.parent.name}


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
