"""The report as one HTML page that needs nothing beside it."""

import base64
import html
import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from seqlab.analysis.figures import COLOURS
from seqlab.analysis.report.comparison import MARKERS, Series
from seqlab.analysis.report.runs import Run
from seqlab.analysis.report.table import Cell, Column
from seqlab.analysis.run_table import DONE

HERE = Path(__file__).parent
DASH_ARRAYS = ("none", "7 4", "2 3", "7 3 2 3")


def write_page(title: str, sections: Sequence[str], own_style: str = "", own_script: str | None = None) -> str:
    """The whole page: a title, sections, and where they are not the report's what they need besides or instead."""
    style, script = (HERE.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    style, script = style + own_style, script if own_script is None else own_script
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # An icon of its own, so that no browser asks for one.
        f'<link rel="icon" href="data:,">\n<title>{_text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n'
        f"<h1>{_text(title)}</h1>\n{''.join(sections)}<script>\n{script}</script>\n</body>\n</html>\n"
    )


def write_runs(runs: Sequence[Run], columns: Sequence[Column], links: Sequence[str]) -> str:
    """The table of runs, and why those did not complete that did not."""
    rows = zip(*(column.cells for column in columns), strict=True)
    body = "".join(
        f"<tr>{_name(cells[0], link)}{''.join(_cell(columns, k, cells[k]) for k in range(1, len(columns)))}</tr>\n"
        for link, cells in zip(links, rows, strict=True)
    )
    troubles = "".join(
        f"<li><b>{_text(run.name)}</b> <span class=bad>{_text(run.status)}</span>: {_text(run.message)}</li>\n"
        for run in runs
        if run.status not in DONE
    )
    return (
        f"<h2>Runs</h2>\n<p class=faint>{_count_runs(runs)} A click on a heading sorts; what a cell stands for, seed "
        f"by seed, shows when it is pointed at.</p>\n<div class=box><table class=sortable>\n<thead>\n{_head(columns)}"
        f"</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n" + (f"<ul>\n{troubles}</ul>\n" if troubles else "")
    )


def write_comparison(
    note: str, series: Sequence[Series], figures: Sequence[str], table: tuple[list[str], list[list[str]]]
) -> str:
    """The plots against a setting, with their legend and their numbers."""
    labels = [
        f'<span style="color: var(--series-{each.colour})">{MARKERS[each.marker][1]}</span> {_text(each.label)}'
        for each in series
    ]
    legend = "".join(f"<li>{label}</li>" for label in labels) if len(series) > 1 else ""
    headings, rows = table
    head = "".join(f"<th>{_text(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        f"<h2>Comparison</h2>\n<p class=faint>{_text(note)}</p>\n<ul class=legend>{legend}</ul>\n"
        f"<div class=grid>\n{''.join(figures)}</div>\n"
        f"<div class=box><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )


def write_curves(keys: Sequence[tuple[int, str, tuple[int, int]]], figures: Sequence[str]) -> str:
    """The learning curves of all runs, with their legend; pointing at a run in it makes its curves stand out.

    `keys`: the number of each run, its label, and its colour and dash.
    """
    legend = "".join(
        f'<li><button type=button data-series="{k}"><svg viewBox="0 0 36 10" aria-hidden="true"><line x1="0" y1="5" '
        f'x2="36" y2="5" stroke-width="3" style="stroke: var(--series-{colour % len(COLOURS)})" '
        f'stroke-dasharray="{DASH_ARRAYS[dash % len(DASH_ARRAYS)]}"/></svg>{_text(label)}</button></li>\n'
        for k, label, (colour, dash) in keys
    )
    return (
        "<section class=curves>\n<h2>Learning curves</h2>\n<p class=faint>Line: mean over seeds; band: its 95 % "
        f"t-interval. Point at a run, or tap it, to make it stand out.</p>\n<ul class=legend>\n{legend}</ul>\n"
        f"<div class=grid>\n{''.join(figures)}</div>\n</section>\n"
    )


def write_each(runs: Sequence[Run], labels: Sequence[str], links: Sequence[str]) -> str:
    """Each run: how it ended, the command line, and the figures that it has drawn."""
    parts = []
    for run, label, link in zip(runs, labels, links, strict=True):
        command = " ".join(run.overrides)
        figures = "".join(_picture(path, run.path) for path in run.figures())
        parts.append(
            f"<details>\n<summary>{_text(label)}</summary>\n"
            f"<p>{_text(run.status)}: {_text(run.message)}</p>\n"
            f'<p><a href="{link}">{_text(str(run.path))}</a></p>\n'
            f"<p><code>{_text(command)}</code></p>\n{figures}</details>\n"
        )
    return f"<h2>Each run</h2>\n{''.join(parts)}"


def _head(columns: Sequence[Column]) -> str:
    upper, lower = [], []
    for group, members in itertools.groupby(enumerate(columns), key=lambda pair: pair[1].group):
        pairs = list(members)
        headings = [
            f'<th data-column={k} scope=col class="{" ".join(_classes(columns, k))}"{_title(column.title)}'
            f"{'' if group else ' rowspan=2'}><button type=button>{_text(column.label)}</button></th>"
            for k, column in pairs
        ]
        if group:
            upper.append(f"<th colspan={len(pairs)}>{_text(group)}</th>")
            lower += headings
        else:
            upper += headings
    return f"<tr>{''.join(upper)}</tr>\n<tr>{''.join(lower)}</tr>\n"


def _classes(columns: Sequence[Column], k: int) -> list[str]:
    column = columns[k]
    values = [cell.value for cell in column.cells if cell.value is not None]
    number = ["number"] if values and all(isinstance(value, int | float) for value in values) else []
    first = ["first"] if column.group and columns[k - 1].group != column.group else []
    return [*(["name"] if k == 0 else []), *number, *first]


def _name(cell: Cell, link: str) -> str:
    return (
        f'<th class=name scope=row data-value="{_text(str(cell.value))}"><a href="{link}">{_text(cell.text)}</a></th>'
    )


def _cell(columns: Sequence[Column], k: int, cell: Cell) -> str:
    unknown = cell.value is None or (isinstance(cell.value, float) and math.isnan(cell.value))
    value = "" if unknown else f' data-value="{_text(str(cell.value))}"'
    bad = ["bad"] if columns[k].label == "status" and cell.text not in DONE else []
    return f'<td class="{" ".join([*_classes(columns, k), *bad])}"{value}{_title(cell.title)}>{_text(cell.text)}</td>'


def _title(text: str) -> str:
    return f' title="{_text(text)}"' if text else ""


def _count_runs(runs: Sequence[Run]) -> str:
    n_done = sum(run.status in DONE for run in runs)
    done = "all completed" if n_done == len(runs) else f"{n_done} of them completed"
    means = (
        "Numbers are mean ± 95 % t-interval over seeds" if any(len(run.seeds) > 1 for run in runs) else "One seed a run"
    )
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {done}. {means}; best: at the step that the monitor picks."


def _picture(path: Path, directory: Path) -> str:
    """A figure inside the page. A drawing stays what it is; a picture is packed, since the file itself is at hand."""
    try:
        kind, data = "svg+xml", path.read_bytes()
        if path.suffix == ".png":
            packed = io.BytesIO()
            Image.open(path).convert("RGB").save(packed, format="WEBP", quality=80)
            kind, data = "webp", packed.getvalue()
    except OSError as error:
        return f"<p class=bad>{_text(path.name)} cannot be read: {_text(str(error))}</p>\n"
    _, *places = path.relative_to(directory).with_suffix("").parts
    name = _text(", ".join(places).replace("_", " "))
    return (
        f'<figure><img loading=lazy alt="{name}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{name}</figcaption></figure>\n"
    )


def _text(text: str) -> str:
    return html.escape(text)
