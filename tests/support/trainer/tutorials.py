"""The pictures of the tutorials' programs, and what undisturbed trainings reach with them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

# The accuracy of the last of three epochs of 70 steps. Six undisturbed seeds of the digits came to 0.75 to 0.81; ten of
# MNIST to 0.40 to 0.64 (docs/results.md).
BAND = (0.38, 0.68) if "MNIST" in os.environ else (0.68, 0.86)
_END = re.compile(r"accuracies (?:of all workers|with a backup each \w+): \S+ \S+ (\S+)$", re.MULTILINE)


def write_pictures(path: Path) -> None:
    """Write the digits of scikit-learn as large as the pictures of MNIST, or the file of MNIST that $MNIST names."""
    if given := os.environ.get("MNIST"):
        shutil.copy(given, path)
        return
    images, labels = load_digits(return_X_y=True)
    large = np.pad(images.reshape(-1, 8, 8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))
    np.savez(path, x_train=(large * 255 / 16).astype("uint8"), y_train=labels.astype("uint8"))


def check(log: str) -> None:
    """Each `fit` of all workers has come to an accuracy as without a kill."""
    ends = [float(each) for each in _END.findall(log)]
    assert len(ends) >= 3, log
    assert all(BAND[0] < each < BAND[1] for each in ends), ends
