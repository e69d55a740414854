"""What analyses found, as files."""

import html
from pathlib import Path
from typing import Any

import jax
import numpy as np

from seqlab.analysis.findings import Findings, fold
from seqlab.files import to_json, write_whole
from seqlab.types import Exhibit


def keep_findings(findings: Findings, directory: Path, title: str, told: dict[str, Any]) -> list[Path]:
    """Write the numbers, with what is `told` before them, the figures and the pages, under their title.

    Returns the paths, `numbers.json` last.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for file, figure in findings.figures.items():
        figure.suptitle(fold(figure, title, 9), x=0.005, ha="left", fontsize=9)
        paths.append(directory / f"{file}.png")
        figure.savefig(paths[-1], dpi=150)
    for file, page in findings.pages.items():
        paths.append(directory / f"{file}.html")
        write_whole(paths[-1], page.replace("</h1>", f"</h1>\n<p>{html.escape(title)}</p>", 1))
    paths.append(directory / "numbers.json")
    followed, numbers = plain(dict(findings.followed)), plain(findings.numbers)
    write_whole(paths[-1], to_json({**told, "followed": followed, "numbers": numbers}, indent=1) + "\n")
    return paths


def exhibit_files(name: str, step: int, place: Path, followed: dict[str, list[float]]) -> Exhibit:
    """What an analysis has left in a directory, as loggers are shown it."""
    figures, pages = ({file.stem: file for file in sorted(place.glob(kind))} for kind in ("*.png", "*.html"))
    return Exhibit(step, name, place, followed, figures, pages)


def plain(node: Any) -> Any:
    """The same tree with lists for arrays."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    return node.tolist() if isinstance(node, np.ndarray | np.generic | jax.Array) else node
