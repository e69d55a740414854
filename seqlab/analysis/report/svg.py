"""Figures as inline SVG that take the page's colours and type, in light and in dark."""

import html
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from seqlab.analysis.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stand for the page's own until the figure is written: no palette of ours has them.
TEXT, LINES = "#fe01fe", "#fe02fe"
DASHES = ("-", "--", ":", "-.")
THEME: dict[Any, Any] = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.edgecolor": LINES,
    "grid.color": LINES,
    # Text stays text: it takes the page's font, can be found and marked, and is small.
    "svg.fonttype": "none",
}


def series_colour(k: int) -> str:
    """The stand-in for colour k of the page."""
    return f"#fe{k % len(COLOURS):02x}fd"


def draw(label: str, paint: Callable[["Axes"], None]) -> str:
    """Give the `<svg>` of one axis that `paint` fills; `label` tells it to who cannot see it.

    Artists whose gid is "series-k" are found by the page as those of series k. The same figure gives the same text,
    and the ids of figures with other labels do not meet.
    """
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context({**THEME, "svg.hashsalt": label}):
        figure = Figure(figsize=(4.6, 3.0))
        # One frame for all, so that figures side by side and above each other stand in line.
        paint(figure.subplots(gridspec_kw={"left": 0.15, "right": 0.97, "bottom": 0.17, "top": 0.9}))
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None, "matplotlib gives a figure its box"
    opening = f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">'
    svg = opening + svg[svg.index(">") + 1 :]
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="series-(\d+)">', r'<g data-series="\1">', svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = svg.replace("xlink:href", "href").replace(TEXT, "var(--text)").replace(LINES, "var(--lines)")
    svg = re.sub(r"#fe(0\d)fd", lambda found: f"var(--series-{int(found[1], 16)})", svg)
    # The list of fonts is that of the machine that drew.
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    return re.sub(r"\s*\n\s*", "\n", svg)
