"""The steps that TensorFlow's Profiler sees, in a training that looks after each step or after many."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tftraining.lib.profiler import Profiler


@pytest.mark.parametrize(
    ("begin", "steps", "profiles"),
    [
        (0, range(1, 31), 1),
        (0, [24, 48, 72], 1),
        (0, [5, 15], 1),
        (15, [16, 20, 21], 1),
        (20, [21, 30], 0),
        (0, [5, 9], 0),
    ],
    ids=["each step", "many at once", "an end within", "resumed within", "resumed behind", "an end before"],
)
def test_a_span_is_profiled_once(tmp_path: Path, begin: int, steps: list[int], profiles: int) -> None:
    profiler = Profiler(str(tmp_path), (10, 20))
    profiler.begin(begin)
    for step in steps:
        tf.add(1, 1)
        profiler.reach(step)
    profiler.end()
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == profiles
