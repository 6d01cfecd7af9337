"""OOM kills, from the files of both versions of cgroups."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tftraining.launch.failure.exit import exit_of
from tftraining.launch.process.oom import count_kills, has_risen

V1, V2 = "5:cpu:/a\n4:memory,hugetlb:/kubepods/pod1\n0::/\n", "0::/kubepods/pod1\n"


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        (V1, {"memory/kubepods/pod1/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        (V1, {"memory/memory.oom_control": "under_oom 0\noom_kill 2\n"}, 2),  # a container sees only its own
        (V1, {"memory/memory.oom_control": "under_oom 0\n", "memory/memory.failcnt": "17\n"}, 17),
        (V2, {"kubepods/pod1/memory.events": "oom 5\noom_kill 4\noom_group_kill 1\n"}, 4),
        ("0::/\n", {"memory.events": "oom 5\noom_kill 1\n"}, 1),
        (V2, {"memory.events": "max 1\n"}, None),
        (V1, {"memory/memory.oom_control": "oom_kill many\n"}, None),
        (V1, {}, None),
        ("", {"memory.events": "oom_kill 1\n"}, None),
        ("nonsense\n", {}, None),
    ],
)
def test_the_number_of_oom_kills_from_cgroup_files(
    tmp_path: Path, membership: str, files: dict[str, str], count: int | None
) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert count_kills(tmp_path / "root", tmp_path / "cgroup") == count
    assert count_kills(tmp_path / "root", tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("before", "after", "risen"), [(0, 1, True), (1, 1, False), (None, 1, False), (1, None, False)]
)
def test_an_oom_kill_between_two_reads(before: int | None, after: int | None, risen: bool) -> None:
    assert has_risen(before, after) is risen


@pytest.mark.parametrize(
    ("status", "out_of_memory", "code", "number", "kind"),
    [
        (signal.SIGKILL, True, None, 9, "OOMKilled"),
        (signal.SIGKILL, False, None, 9, ""),
        (137 << 8, True, 137, None, "OOMKilled"),  # a shell in front of it
        (1 << 8, True, 1, None, ""),  # a helper was killed, and the program did not say that it minds
        (signal.SIGTERM, True, None, 15, ""),
        (0, True, 0, None, ""),
    ],
)
def test_only_a_sigkill_can_be_an_oom_kill(
    status: int, out_of_memory: bool, code: int | None, number: int | None, kind: str
) -> None:
    ended = exit_of(status, (), out_of_memory)
    assert (ended.code, ended.signal, ended.kind) == (code, number, kind)
