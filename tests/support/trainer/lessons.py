"""The lessons, as tests run them: who is killed, after which line, and what must come of it all the same."""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.repository import REPOSITORY

ACCURACY = re.compile(r"test accuracy ([\d.]+)$", re.MULTILINE)
RESUMED = re.compile(r"resumed (?:after|from) (?:epoch [3-9]|memory at step)")
# Of any lesson, when its third epoch is saved.
FOURTH_EPOCH = r"[Ee]poch 4[:/]"


@dataclass(frozen=True)
class Lesson:
    """The member whose program is killed, the least test accuracy at the end, and what the lesson saves."""

    victim: str
    good: float
    saved: str = "model.keras"


# The figures of docs/programs.md are higher by 0.02 to 0.13.
LESSONS = {
    "multi-worker-fit": Lesson("worker-1", 0.93),
    "multi-worker-custom-loop": Lesson("worker-1", 0.93),
    "mirrored-custom-loop": Lesson("worker-0", 0.93),
    "dtensor-mlp": Lesson("worker-0", 0.93, "checkpoints"),
    "transfer-learning": Lesson("worker-0", 0.8, "head.keras"),
}


def manifest(name: str) -> dict[str, Any]:
    """The manifest of a lesson, as it is written."""
    job: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples" / "lessons" / f"{name}.yaml").read_text())
    return job
