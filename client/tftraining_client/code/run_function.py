"""Runs the function of `tftraining_client.from_function` in a pod. A copy travels with each function, to any Python."""

import pickle
import sys
from pathlib import Path
from typing import Any

OTHER_PYTHON = (
    "the function was pickled by Python {}.{}, but the image has Python {}.{}: use an image with the first, or call "
    "from_function in the second"
)


def load() -> Any:
    """The function with its arguments. ImportError, which no restart follows, for another Python than that of the
    pickle: the bytecode of a function holds for one minor version only."""
    with Path(__file__).with_name("function.pkl").open("rb") as file:
        wanted = tuple(pickle.load(file))
        if sys.version_info[:2] != wanted:
            raise ImportError(OTHER_PYTHON.format(*wanted, *sys.version_info[:2]))
        return pickle.load(file)


if __name__ == "__main__":
    load()()
