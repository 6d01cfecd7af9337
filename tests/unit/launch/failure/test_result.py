"""The termination message fits into the kubelet's limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tftraining.launch.failure import result
from tftraining.launch.failure.exit import CHARACTER_BYTES, Exit, bounded
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import Result


@settings(max_examples=50)
@given(st.lists(st.text(max_size=2000), max_size=40), st.text(max_size=3000))
def test_the_termination_message_always_fits(lines: list[str], told: str) -> None:
    kept = bounded(tuple(lines), 2000)
    assert len(json.dumps(kept)) <= 2000 or kept == []
    text = result.termination_message(
        Result("Failed", "Error", "m" * 5000, "worker-1", Exit(1, None, tuple(lines))), Ledger(), {"progress": told}
    )
    assert len(text.encode("utf-8", "surrogatepass")) <= result.MESSAGE_BYTES
    first = text.splitlines()[0]
    assert json.loads(first.removeprefix("tftraining/1 "))["exitCode"] == 1


@pytest.mark.parametrize("character", ["m", '"', "ä", "\U0001f600", "\0", "\udcff"])
def test_the_message_is_cut_by_its_size_in_json(character: str) -> None:
    ended = Exit(1, None, ("the last line",))
    told = {"progress": "p" * 1483}  # 1499 bytes as JSON
    text = result.termination_message(Result("Failed", "Error", character * 5000, "w-1", ended), Ledger(), told)
    assert len(text.encode("utf-8", "surrogatepass")) <= result.MESSAGE_BYTES
    head, last, _ = text.split("\n")
    found = json.loads(head.removeprefix("tftraining/1 "))
    assert (last, found["progress"]) == ("the last line", told["progress"])
    size = len(json.dumps(found["message"]))
    assert result.WORDS_BYTES - CHARACTER_BYTES < size <= result.WORDS_BYTES
