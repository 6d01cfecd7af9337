"""The lessons still have the lines that benchmarks.lesson_speed changes."""

import pytest

from benchmarks.lesson_speed import END_OF_EPOCH, PAIRS, changed


@pytest.mark.parametrize("lesson", PAIRS)
def test_a_changed_lesson_is_python(lesson: str) -> None:
    compile(changed(lesson), lesson, "exec")


def test_the_end_of_an_epoch_is_known() -> None:
    lines = ["epoch 3/10 loss 0.4 accuracy 0.9 (1.2 s)", "epoch 3: loss 0.4", "40/40 - 1s - loss: 0.4 - 1s/epoch"]
    assert all(END_OF_EPOCH.match(line) for line in lines)
    assert not any(END_OF_EPOCH.match(line) for line in ("Epoch 3/10", "resumed after epoch 3", "1500 pictures"))
