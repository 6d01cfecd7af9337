"""--kill: how it is read, and when it is due."""

import pytest

from tftraining_client.errors import UserError
from tftraining_client.local.fault_injection import Kill, parse_kill

MEMBERS = ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("text", "kill"),
    [
        ("worker-1@epoch=2", Kill("worker-1", "epoch", 2)),
        ("worker-0@step=140", Kill("worker-0", "step", 140)),
        ("pod/worker-1@epoch=2", Kill("worker-1", "epoch", 2, pod=True)),
        ("worker-0@seconds=1.5", Kill("worker-0", "seconds", 1.5)),
    ],
)
def test_read(text: str, kill: Kill) -> None:
    assert parse_kill(text, MEMBERS) == kill
    assert str(kill) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worker-1", "must be MEMBER@epoch=N"),
        ("worker-1@epoch", "must be MEMBER@epoch=N"),
        ("worker-1@epoch=two", "must be MEMBER@epoch=N"),
        ("worker-1@epoch=-1", "must be MEMBER@epoch=N"),
        ("worker-1@epoch=1.5", "epoch must be a whole number"),
        ("worker-1@hour=1", "must be MEMBER@epoch=N"),
        ("node/worker-1@epoch=1", "must be MEMBER@epoch=N"),
        ("worker@epoch=1", "must be MEMBER@epoch=N"),
        ("worker-2@epoch=1", "the job has no worker-2, only worker-0, worker-1"),
        ("", "must be MEMBER@epoch=N"),
    ],
)
def test_not_a_kill(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_kill(text, MEMBERS)


@pytest.mark.parametrize(
    ("kill", "progress", "why"),
    [
        (Kill("worker-1", "epoch", 9), {"epoch": 4}, "the job ended at epoch 4"),
        (Kill("worker-1", "step", 9), {"epoch": 4}, "no step was reported"),
        (Kill("worker-1", "seconds", 90), {"epoch": 4}, "the job ended after 12.3 s"),
    ],
)
def test_why_it_never_came_due(kill: Kill, progress: dict[str, int], why: str) -> None:
    assert kill.why_never(progress, 12.34) == why


def test_due() -> None:
    kill = Kill("worker-1", "epoch", 2)
    assert not kill.due({}, 100)
    assert not kill.due({"pid": 7, "progress": None}, 100)
    assert not kill.due({"pid": 7, "progress": {"epoch": 1}}, 100)
    assert kill.due({"pid": 7, "progress": {"epoch": 2}}, 0)
    assert kill.due({"pid": 7, "progress": {"epoch": 5}}, 0)
    assert not kill.due({"pid": None, "progress": {"epoch": 2}}, 0)
    assert Kill("worker-1", "seconds", 3).due({"pid": 7}, 3)
    assert not Kill("worker-1", "seconds", 3).due({"pid": 7}, 2.9)
