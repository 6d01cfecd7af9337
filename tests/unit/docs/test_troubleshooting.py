"""docs/troubleshooting.md quotes the words that people see: those of this project are in its code, word by word."""

import re

import pytest

from tests.support.crd import definition
from tests.support.repository import REPOSITORY

TEXT = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PAGE, MESSAGES, _ = TEXT.partition("\n## Messages of failing programs\n")  # that section has a test of its own
assert MESSAGES
SOURCES = ("operator", "api", "trainer", "client")
# Of Kubernetes, Kueue, Helm, Prometheus, Python and TensorFlow.
OF_OTHERS = {
    'no matches for kind "TFTrainingJob"',
    "ErrImagePull",
    "ImagePullBackOff",
    "Insufficient cpu",
    "unbound immediate PersistentVolumeClaims",
    'persistentvolumeclaim "training" not found',
    "Multi-Attach error for volume",
    "exceeded quota: ",
    "violates PodSecurity",
    "No module named",
    "can't open file",
    "No space left on device",
    "Permission denied",
    "Collective ops must be configured at program startup",
    "context deadline exceeded",
    "cannot re-use a name that is still in use",
    "invalid ownership metadata",
    "/training",
}


def quoted() -> list[str]:
    """The words in backticks of the left columns."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| words", "|---"))]
    return [words for row in rows for words in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def everything() -> str:
    """The code, its messages on one line; the definition's messages."""
    texts = [path.read_text(encoding="utf-8") for name in SOURCES for path in sorted((REPOSITORY / name).rglob("*.py"))]
    return "\n".join([*texts, str(definition())])


@pytest.mark.parametrize("source", [everything()], ids=["code"])
def test_the_words_of_this_project_are_in_its_code(source: str) -> None:
    ours = [words for words in quoted() if words not in OF_OTHERS]
    assert len(ours) > 25
    assert [words for words in ours if words not in source] == []


def test_the_words_of_others_are_on_the_page() -> None:
    assert sorted(OF_OTHERS - {*quoted()}) == []
