"""A page around data that is drawn in the browser."""

import html
import json
from pathlib import Path
from typing import Any

from seqlab.analysis.report.page import write_page

HERE = Path(__file__).parent


def write_data_page(title: str, note: str, name: str, data: Any) -> str:
    """The whole page: a note, and what NAME.js draws of the data."""
    style, common, own = (
        HERE.joinpath(file).read_text(encoding="utf-8") for file in ("page.css", "map.js", f"{name}.js")
    )
    sections = (
        f"<p class=faint>{html.escape(note)}</p>\n<main></main>\n"
        f"<noscript><p>This page is drawn by a script.</p></noscript>\n"
        f'<script type="application/json" id="data">{to_script(data)}</script>\n'
    )
    return write_page(title, [sections], style, f"{{\n{common}\n{own}}}\n")


def tell_shown(cut: str) -> str:
    """The sentence about what `tell_cut` told; none where nothing is cut."""
    return f"Shown: {cut}. What lies beyond is not drawn." if cut else ""


def to_script(data: Any) -> str:
    """JSON that nothing in it ends early: a token may be a closing tag."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
