"""The picture of a training has a curve of the training data, and one of the test data where they were measured."""

from __future__ import annotations

import numpy as np

from tftraining.lib.plots import make_figure

HISTORY = [
    {"epoch": 1, "seconds": 1.0, "loss": 2.0, "accuracy": 0.2, "test_loss": 1.8, "test_accuracy": 0.3},
    {"epoch": 2, "seconds": 1.0, "loss": 1.0, "accuracy": 0.6, "test_loss": 0.9, "test_accuracy": 0.7},
]


def test_training_and_test_have_a_curve_each() -> None:
    loss, accuracy = make_figure(HISTORY).axes
    assert [axes.get_ylabel() for axes in (loss, accuracy)] == ["loss", "accuracy"]
    for axes, prefix in ((loss, "loss"), (accuracy, "accuracy")):
        assert [line.get_label() for line in axes.lines] == ["training", "test"]
        legend = axes.get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == ["training", "test"]
        for line, name in zip(axes.lines, (prefix, f"test_{prefix}"), strict=True):
            assert np.asarray(line.get_xdata()).tolist() == [1, 2]
            assert np.asarray(line.get_ydata()).tolist() == [record[name] for record in HISTORY]


def test_without_evaluation_there_is_one_curve() -> None:
    history = [{name: value for name, value in record.items() if "test" not in name} for record in HISTORY]
    assert [[line.get_label() for line in axes.lines] for axes in make_figure(history).axes] == [["training"]] * 2
