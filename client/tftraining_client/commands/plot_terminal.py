"""The curves of a job as text, by plotext."""

import re
from collections.abc import Iterator

from tftraining_client.commands.curves import Curve, Curves, number
from tftraining_client.errors import UserError

HEIGHT = 14
NARROWEST = 30
SHOWN_RESTARTS = 8
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def plot_lines(curves: Curves, width: int) -> list[str]:
    """The lines of all plots, and of the restarts below them."""
    lines = [line for curve in curves.curves for line in _plot(curve, curves, max(width, NARROWEST))]
    return [line[:width] for line in (*lines, *_restarts(curves), *_omitted(curves))]


def _plot(curve: Curve, curves: Curves, width: int) -> list[str]:
    """One plot below its name."""
    try:
        import plotext  # noqa: PLC0415  of an extra, as in plot_png.py
    except ImportError:
        raise UserError("the plot in the terminal needs plotext: pip install plotext (-o html does without)") from None

    plotext.terminal.limit(False, False)  # the width is that of the caller, also in a pipe
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, HEIGHT)
    xs, ys = curve.xs, curve.ys
    figure.draw(figure.signal(list(xs), list(ys), marker="braille" if len(xs) > 1 else "dot").lines(len(xs) > 1))
    first, last = curves.limits
    if first < last:
        figure.ruler().lim(first, last)
    for x in sorted({restart.x for restart in curves.shown_restarts}):
        figure.line(x, "vertical", style="dotted")
    figure.label(curves.axis)
    text = COLOURS.sub("", str(figure.build()))
    figure.clear()
    return [_heading(curve, width), *(line.rstrip() for line in text.rstrip().splitlines()), ""]


def _heading(curve: Curve, width: int) -> str:
    """The name with as much of the summary as fits."""
    texts = [f"{curve.name}: {', '.join(curve.parts[:count])}" for count in (3, 2, 1)]
    return next((text for text in texts if len(text) <= width), texts[-1])


def _restarts(curves: Curves) -> Iterator[str]:
    if not curves.restarts:
        return
    count = len(curves.restarts)
    yield f"┊ restarts: {count if count <= SHOWN_RESTARTS else f'the last {SHOWN_RESTARTS} of {count}'}"
    for restart in curves.restarts[-SHOWN_RESTARTS:]:
        yield f"  {restart.time[:16].replace('T', ' ')}  {curves.axis} {number(restart.x)}  {restart.reason}"


def _omitted(curves: Curves) -> Iterator[str]:
    if curves.omitted:
        yield f"not shown (--metric NAME): {', '.join(curves.omitted)}"
