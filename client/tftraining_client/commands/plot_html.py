"""The curves of a job as one HTML file: inline SVG, no script, nothing loaded, light or dark as the system is."""

from collections.abc import Iterator
from html import escape

from tftraining_client.commands.curves import Curve, Curves, nice_ticks, number

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --grid: #d8dee4; --curve: #0969da; --mark: #bc4c00; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --back: #0d1117; --grid: #30363d; --curve: #58a6ff; --mark: #f0883e; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 1rem auto;
  max-width: 760px; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-bottom: 0; overflow-wrap: anywhere; }
p { margin: 0; opacity: .8; } svg { width: 100%; height: auto; display: block; }
text { fill: var(--text); font-size: 12px; } .grid { stroke: var(--grid); }
.restart { stroke: var(--mark); stroke-dasharray: 4 3; }
.x { text-anchor: middle; } .y { text-anchor: end; dominant-baseline: middle; }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.8; stroke-linejoin: round; } .point { fill: var(--curve); }
@media (max-width: 560px) { text { font-size: 20px; } }
table { border-collapse: collapse; } td, th { text-align: left; padding: .1rem 1rem .1rem 0; }
"""


def html_page(curves: Curves) -> str:
    """The whole page."""
    title = f"{curves.job}: history"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>",
            *(part for curve in curves.curves for part in _section(curve, curves)),
            *_restart_table(curves),
            "</body>\n</html>\n",
        ]
    )


def _section(curve: Curve, curves: Curves) -> Iterator[str]:
    yield f"<h2>{escape(curve.name)}</h2>\n<p>{escape(curve.summary)}</p>"
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{curve.name}: {curve.summary}")}">'
    yield from _drawing(curve, curves)
    yield "</svg>"


def _drawing(curve: Curve, curves: Curves) -> Iterator[str]:
    x_range, y_range = _range(curves.limits), _range(curve.ys)
    bottom = HEIGHT - BOTTOM

    def x_at(value: float) -> str:
        return f"{LEFT + _share(value, x_range) * (WIDTH - LEFT - RIGHT):.1f}"

    def y_at(value: float) -> str:
        return f"{bottom - _share(value, y_range) * (bottom - TOP):.1f}"

    for tick in nice_ticks(*y_range):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_at(tick)}" y2="{y_at(tick)}"/>'
        yield f'<text class="y" x="{LEFT - 6}" y="{y_at(tick)}">{number(tick)}</text>'
    for tick in nice_ticks(*x_range):
        yield f'<text class="x" x="{x_at(tick)}" y="{bottom + 16}">{number(tick)}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(curves.axis)}</text>'
    for restart in curves.shown_restarts:
        told = escape(f"{restart.reason} at {curves.axis} {number(restart.x)}, {restart.time}")
        line = f'<line class="restart" x1="{x_at(restart.x)}" x2="{x_at(restart.x)}" y1="{TOP}" y2="{bottom}">'
        yield f"{line}<title>{told}</title></line>"
    points = [(x_at(x), y_at(y)) for x, y in zip(curve.xs, curve.ys, strict=True)]
    if len(points) == 1:
        yield f'<circle class="point" cx="{points[0][0]}" cy="{points[0][1]}" r="3"/>'
    else:
        yield f'<polyline class="curve" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def _restart_table(curves: Curves) -> Iterator[str]:
    if not curves.restarts:
        return
    yield f"<h2>restarts</h2>\n<table>\n<tr><th>time</th><th>{escape(curves.axis)}</th><th>reason</th></tr>"
    for restart in curves.restarts:
        cells = (restart.time, number(restart.x), restart.reason)
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _range(values: tuple[float, ...]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low < high:
        return low, high
    around = abs(low) / 2 or 1.0
    return low - around, high + around


def _share(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return value / high - low / high if high - low == float("inf") else (value - low) / (high - low)
