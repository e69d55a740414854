"""Files that are whole or not there."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write `text` beside `path` and rename it: a reader, or a kill, finds the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
