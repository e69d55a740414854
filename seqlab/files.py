"""Files that are whole or not there, and JSON that is valid."""

import json
import math
import os
from pathlib import Path
from typing import Any

from seqlab.types import UserError


def write_whole(path: Path, text: str) -> None:
    """Write `text` beside `path` and rename it: a reader, or a kill, finds the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def to_json(node: Any, indent: int | None = None) -> str:
    """Encode as JSON, which has no NaN or infinity: they become "nan", "inf" and "-inf", which `float` reads."""
    return json.dumps(_to_valid(node), allow_nan=False, indent=indent, ensure_ascii=False)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises   UserError where it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: it is damaged") from error


def _to_valid(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _to_valid(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_to_valid(value) for value in node]
    return str(node) if isinstance(node, float) and not math.isfinite(node) else node
