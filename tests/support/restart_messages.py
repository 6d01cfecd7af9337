"""Where a restart resumed, in words: the truth table that launchers, the operator and `tftj` are held to."""

from __future__ import annotations

STARTED_OVER = "started over: no backup found"
# By lastRestart.resumedFrom, resumedFromEpoch and resumedFromStep.
RESUMPTIONS: list[tuple[str | None, int | None, int | None, str]] = [
    ("Memory", 2, 170, "resumed from memory at step 170"),
    ("Memory", 0, 40, "resumed from memory at step 40"),
    ("Memory", None, 40, "resumed from memory at step 40"),
    ("Memory", 2, None, "resumed from memory"),
    ("Memory", None, None, "resumed from memory"),
    ("Memory", 0, 0, STARTED_OVER),
    ("Peer", 2, 170, "resumed from the memory of another member at step 170"),
    ("Storage", 2, 140, "resumed from epoch 2"),
    ("Storage", 0, 140, "resumed from step 140"),
    ("Storage", None, 140, "resumed from step 140"),
    ("Start", 0, 0, STARTED_OVER),
    ("Start", 0, None, STARTED_OVER),
    ("Start", None, 0, STARTED_OVER),
    (None, 2, None, "resumed from epoch 2"),
    ("Elsewhere", 2, 140, "resumed from epoch 2"),
    (None, None, None, ""),
]
