"""The figure of what a model costs."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from seqlab.analysis.findings import caption, colour, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROGRAMS = ("forward", "gradient")


def draw(numbers: dict[str, Any], device: str) -> "Figure":
    """Draw parameters, operations and bytes as bars, and below them time, memory and state against the length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.5, 8.6), layout="constrained")
    (parameters, operations, traffic), (seconds, memory, state) = figure.subplots(2, 3)
    of_layer = numbers["parameters"]["by_layer"]
    _bars(parameters, of_layer, [colour(0)] * len(of_layer))
    dress(parameters, f"Parameters: {numbers['parameters']['total']:,}", "parameters", "")
    _draw_operations(operations, numbers)
    _draw_traffic(traffic, numbers["operations"])
    growth = numbers["growth"]
    told = (("seconds", 1e3, "Time", "milliseconds"), ("memory_bytes", 1e-6, "Memory besides arguments", "MB"))
    for axis, (what, scale, title, unit) in zip((seconds, memory), told, strict=True):
        _draw_growth(axis, growth, what, scale)
        dress(axis, title, "length of the rows, T", unit)
    _draw_state(state, numbers["state"])
    shape = " × ".join(map(str, numbers["inputs"]))
    how = (
        f"bars: inputs of {shape}; lines: {numbers['inputs'][0]} rows, time: median of {numbers['repeats']}, band: all"
    )
    ends = f"; longer rows: {growth['why']}" if "why" in growth and "lengths" in growth else ""
    caption(figure, f"{device}; {how}{ends}"[:230])
    return figure


def _bars(axis: "Axes", named: dict[str, float], colours: list[str]) -> None:
    """A bar a name from top to bottom, with its value behind it."""
    from matplotlib.ticker import EngFormatter

    engineering = EngFormatter(places=2, sep="")
    bars = axis.barh(list(named), list(named.values()), color=colours, height=0.7)
    told = [engineering(value) if value >= 1e3 else f"{value:g}" for value in named.values()]
    axis.bar_label(bars, told, padding=3, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.16)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.tick_params(axis="y", labelsize=8)


def _draw_operations(axis: "Axes", numbers: dict[str, Any]) -> None:
    bars: dict[str, float] = {}
    colours: list[str] = []
    for n, program in enumerate(PROGRAMS):
        counted, parts = numbers["operations"][program], numbers["formula"][program].values()
        if None not in parts:
            bars[f"{program}: products by formula"] = sum(parts)
        bars[f"{program}: products counted"] = counted["products"]
        bars[f"{program}: with elementwise"] = counted["products"] + counted["elementwise"]
        bars[f"{program}: XLA, loops in full"] = counted["xla_flops"]
        colours += [colour(n)] * (len(bars) - len(colours))
    _bars(axis, bars, colours)
    dress(axis, "Floating-point operations", "operations", "")


def _draw_traffic(axis: "Axes", operations: dict[str, Any]) -> None:
    bars: dict[str, float] = {}
    colours: list[str] = []
    for n, program in enumerate(PROGRAMS):
        bars[f"{program}: read and written (XLA)"] = operations[program]["xla_bytes"]
        bars[f"{program}: memory besides arguments"] = operations[program]["memory_bytes"]
        colours += [colour(n)] * 2
    _bars(axis, bars, colours)
    dress(axis, "Bytes", "bytes", "")


def _draw_growth(axis: "Axes", growth: dict[str, Any], what: str, scale: float) -> None:
    if not len(growth.get("lengths", ())):
        _say(axis, growth["why"])
        return
    T = growth["lengths"]
    for n, program in enumerate(PROGRAMS):
        values, p = growth[program][what] * scale, growth[program]["exponents"][what]
        label = program if p is None else f"{program}, ∝ $T^{{{p:.2f}}}$ at the end"
        axis.plot(T, values, "o-", color=colour(n), linewidth=1.6, markersize=4, label=label)
        if what == "seconds":
            low, high = (growth[program]["seconds_range"] * scale).T
            axis.fill_between(T, low, high, color=colour(n), alpha=0.18, linewidth=0)
    _log_log(axis, T, positive=all((growth[program][what] > 0).all() for program in PROGRAMS))


def _draw_state(axis: "Axes", state: dict[str, Any]) -> None:
    dress(axis, "State of a row while stepping", "steps taken, T", "bytes")
    if "why" in state:
        _say(axis, state["why"])
        return
    axis.plot(
        state["lengths"], state["held"], "s--", color=colour(1), markersize=8, markerfacecolor="none", label="held"
    )
    axis.plot(state["lengths"], state["used"], "o-", color=colour(0), markersize=4, label="used")
    _log_log(axis, state["lengths"], positive=bool(state["used"].all()))


def _log_log(axis: "Axes", T: np.ndarray, *, positive: bool) -> None:
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.set_xscale("log", base=2)
    if positive:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        low, high = axis.get_ylim()
        # Where there are several powers of ten, what stands between them tells itself.
        few = high / low < 50
        axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)) if few else LogLocator(subs="auto"))
        axis.yaxis.set_minor_formatter(StrMethodFormatter("{x:,.10g}" if few else ""))
    axis.set_xticks(T, [str(t) for t in T])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _say(axis: "Axes", why: str) -> None:
    axis.text(0.5, 0.5, fill(why, 44), transform=axis.transAxes, ha="center", va="center", fontsize=9)
    axis.set(xticks=[], yticks=[])
