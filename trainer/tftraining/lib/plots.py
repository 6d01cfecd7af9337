"""Plots the curves of a training: loss beside accuracy, on training and test data.

This module draws into a file, and must never open a window or need a display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

SIZE = (9.0, 3.6)  # inches
PARTS = (("", "training"), ("test_", "test"))


def draw(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw a history (a record per epoch: epoch, loss, accuracy, test_loss, …) to a PNG file; creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = make_figure(history)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=90)


def make_figure(history: Sequence[Mapping[str, float]]) -> Figure:
    """The loss beside the accuracy; each has a curve of the training and, where the history has one, of the test."""
    figure = Figure(figsize=SIZE, layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        _curves(axes, history, metric)
    return figure


def _curves(axes: Axes, history: Sequence[Mapping[str, float]], metric: str) -> None:
    for prefix, label in PARTS:
        points = [(record["epoch"], record[prefix + metric]) for record in history if prefix + metric in record]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    axes.set(xlabel="epoch", ylabel=metric)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes.lines:
        axes.legend()
