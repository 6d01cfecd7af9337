"""The summary of benchmarks.training."""

from typing import Any

from benchmarks.training import spread


def run(first: float, last: float, test: float) -> dict[str, Any]:
    return {"training_accuracy": [first, 0.5, last], "accuracy": test}


def test_the_spread_has_all_seeds_of_each_case_and_no_other_case() -> None:
    found = {
        "mirrored": run(0.9, 0.9, 0.9),
        "seed-1": run(0.1, 0.6, 0.7),
        "seed-2": run(0.3, 0.5, 0.4),
        "seed-10": run(0.2, 0.9, 0.8),
        "dtensor-sigmoid-seed-1": run(0.4, 0.8, 0.85),
    }
    assert spread(found) == {
        "seeds_first": [0.1, 0.2, 0.3],
        "seeds_last": [0.5, 0.6, 0.9],
        "seeds_test": [0.4, 0.7, 0.8],
        "dtensor-sigmoid-seeds_first": [0.4, 0.4, 0.4],
        "dtensor-sigmoid-seeds_last": [0.8, 0.8, 0.8],
        "dtensor-sigmoid-seeds_test": [0.85, 0.85, 0.85],
    }


def test_without_seeds_there_is_no_spread() -> None:
    assert spread({"mirrored": run(0.9, 0.9, 0.9)}) == {}
