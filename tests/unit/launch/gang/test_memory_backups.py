"""Backups in memory: which copy a gang resumes from, and what a kill at any moment leaves."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_gang.copies import report, start_gang_with_copies
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.gang import memory_backups
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.in_user_process.memory_backup import copy_file
from tftraining.launch.in_user_process.memory_backup.copy_file import HEAD, Slots, held

COPIES = st.frozensets(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=4)
STATE = 128  # bytes


# Which copy.


@given(st.data())
def test_any_pattern_of_copies_restores_one_that_all_hold_or_can_fetch_or_none(data: st.DataObject) -> None:
    names = [f"worker-{index}" for index in range(data.draw(st.integers(1, 5)))]
    held = {name: data.draw(COPIES) for name in names}
    servers = data.draw(st.sets(st.sampled_from(names)))
    found = memory_backups.choose(held, servers)

    def is_in_reach(copy: tuple[int, int]) -> bool:
        return all(copy in own for own in held.values()) or any(copy in held[name] for name in servers)

    usable = {copy for own in held.values() for copy in own if is_in_reach(copy)}
    common = {copy for copy in usable if all(copy in own for own in held.values() if own)}
    assert found == max(common, default=max(usable, default=None))


@given(st.sets(st.integers(0, 9)), st.integers(1, 4))
def test_the_members_that_fetch_are_spread_over_those_that_serve(needy: set[int], servers: int) -> None:
    senders = memory_backups.spread(map(str, needy), [f"worker-{index}" for index in range(servers)])
    assert set(senders) == set(map(str, needy))
    load = [list(senders.values()).count(f"worker-{index}") for index in range(servers)]
    assert load == sorted(load, reverse=True) and load[0] - load[-1] <= 1


def sent_starts(chief: Coordinator) -> dict[str, Any]:
    """The part about copies of each start frame that has been sent."""
    frames = chief.outbox.take_all()
    return {name: frame["memoryBackup"] for name, frame in frames if frame["type"] == "start"}


def starts(**members: Any) -> dict[str, Any]:
    """The orders of the first round, from the fields of each hello; a list is its copies, from a launcher that serves
    none."""
    chief = make_coordinator(*(name.replace("_", "-") for name in members), host="chief.example")
    for name, told in members.items():
        fields = told if isinstance(told, dict) else {"copiesHeld": told}
        chief.handle_hello(hello(name.replace("_", "-"), **fields), 0.0)
    return sent_starts(chief)


def own(*copy: int, source: str = "Memory") -> dict[str, Any]:
    """The order to a member that holds the copy."""
    return {"restore": list(copy), "source": source, "fetchFrom": None}


def fetched(*copy: int, member: str, host: str, source: str = "Peer") -> dict[str, Any]:
    """The order to a member that has to fetch the copy."""
    return {"restore": list(copy), "source": source, "fetchFrom": {"member": member, "host": host, "port": 7}}


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        ([[1, 32], [1, 48]], [[1, 48], [1, 64]], own(1, 48)),
        ([[1, 64], [2, 48]], [[1, 64], [2, 48]], own(2, 48)),  # what was trained last
        ([[1, 32]], [[2, 32]], {"restore": None}),  # the same step of two trainings
        ([[1, 32]], [], {"restore": None}),
        ([[1, 32]], None, None),  # an older launcher, or one without memory
    ],
)
def test_all_members_are_told_the_same_copy(one: Any, other: Any, order: Any) -> None:
    assert starts(worker_0=one, worker_1=other) == {"worker-0": order, "worker-1": order}


def serving(*copies: list[int], **fields: str) -> dict[str, Any]:
    return {"copiesHeld": list(copies), "copyPort": 7, "copyHost": "10.0.0.1", **fields}


def test_a_new_member_fetches_the_copy_that_the_others_hold() -> None:
    holder = serving([1, 32], [1, 48])
    assert starts(worker_0=serving([1, 48], [1, 64]), worker_1=holder, worker_2=serving()) == {
        "worker-0": own(1, 48),
        "worker-1": own(1, 48),
        "worker-2": fetched(1, 48, member="worker-1", host="10.0.0.1"),
    }


def test_the_chief_is_the_last_to_serve_and_has_the_address_of_the_rendezvous() -> None:
    orders = starts(worker_0=serving([1, 48]), worker_1=serving(), worker_2=serving())
    assert orders["worker-1"] == orders["worker-2"] == fetched(1, 48, member="worker-0", host="chief.example")


def test_a_copy_that_one_member_alone_holds_is_fetched_by_all_others() -> None:
    assert starts(worker_0=serving([1, 64]), worker_1=serving([2, 32]), worker_2=serving([1, 32])) == {
        "worker-0": fetched(2, 32, member="worker-1", host="10.0.0.1"),
        "worker-1": own(2, 32),
        "worker-2": fetched(2, 32, member="worker-1", host="10.0.0.1"),
    }


def test_a_copy_that_nobody_serves_is_not_restored_by_a_new_member() -> None:
    assert set(map(str, starts(worker_0=[[1, 32]], worker_1=serving()).values())) == {"{'restore': None}"}


def test_a_copy_from_storage_stays_one_for_those_that_fetch_it() -> None:
    orders = starts(worker_0=serving([7, 32], copiesFrom="Storage"), worker_1=serving())
    assert orders == {
        "worker-0": own(7, 32, source="Storage"),
        "worker-1": fetched(7, 32, member="worker-0", host="chief.example", source="Storage"),
    }


def test_a_round_has_a_higher_number_than_the_copies_from_storage() -> None:
    """Or its own copies would be the older ones."""
    chief = make_coordinator("worker-0")
    chief.handle_hello(hello("worker-0", **serving([7, 32], copiesFrom="Storage")), 0.0)
    assert [frame["round"] for _, frame in chief.outbox.take_all() if frame["type"] == "start"] == [8]


def test_beside_parameter_servers_only_the_chief_copies() -> None:
    """It coordinates, and reads the variables of the servers."""
    others = dict.fromkeys(("worker-0", "ps-0"))
    assert starts(chief_0=[], worker_0=[], ps_0=None) == {"chief-0": {"restore": None}, **others}
    assert starts(chief_0=[(1, 16)], worker_0=[], ps_0=None) == {"chief-0": own(1, 16), **others}


def test_a_member_that_is_ready_again_tells_what_it_holds_now() -> None:
    chief = make_coordinator("worker-0", "worker-1")
    for name in ("worker-0", "worker-1"):
        chief.handle_hello(hello(name, copiesHeld=[]), 0.0)
    chief.handle_frame("worker-1", exited(1, 1), 1.0)
    chief.outbox.take_all()
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {"type": "ready", "round": 1, "copiesHeld": [[1, 16]]}, 2.0)
    assert sent_starts(chief) == {"worker-0": own(1, 16), "worker-1": own(1, 16)}


@pytest.mark.parametrize("told", ["many", [1], [[1, "x"]], [[1, 2]] * 17])
def test_a_frame_of_something_else_is_refused(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        memory_backups.from_frame(told)


def test_the_newest_step_that_all_have_copied_is_unknown_until_all_tell() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    found = []
    for name, step in (("worker-0", 16), ("worker-1", 8)):
        found.append(memory_backups.newest_common_step(chief.membership.trainers))
        chief.handle_frame(name, {**heartbeat(1, 1.0), "backup": report(step)}, 1.0)
        found.append(memory_backups.newest_common_step(chief.membership.trainers))
    assert found == [None, None, None, 8]


def test_names_beyond_any_training_are_no_copies() -> None:
    told = [[1, 2], [0, 0], [10**18 - 1, 1], [1, 10**18 - 1], [-1, 1], [1, -1]]
    assert memory_backups.from_frame(told) == frozenset({(1, 2), (0, 0)})


# What a kill leaves.


def write(slots: Slots, step: int, number: int = 1, value: int = 0) -> None:
    slots.begin()[HEAD : HEAD + STATE] = bytes([value or step]) * STATE
    slots.commit(number, step, {"step": step, "exponent": 4})


def copies(*directories: Path) -> list[list[tuple[int, int]]]:
    return [held(str(each)) for each in directories]


@settings(max_examples=60)
@given(st.data())
def test_a_kill_at_any_moment_costs_one_copy_at_most(data: st.DataObject) -> None:
    """Members copy in lockstep: none begins copy n + 1 before all have completed copy n."""
    members, whole = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5))
    progress = data.draw(st.lists(st.sampled_from(["before", "begun", "done"]), min_size=members, max_size=members))
    with TemporaryDirectory() as place:
        directories = [Path(place, str(index)) for index in range(members)]
        for directory, last in zip(directories, progress, strict=True):
            directory.mkdir()
            slots = Slots(str(directory), STATE, None)
            slots.reserve()
            for step in range(1, whole + 1):
                write(slots, step)
            if last == "begun":
                slots.begin()[HEAD] = 0
            elif last == "done":
                write(slots, whole + 1)
        held_by = {directory.name: found for directory, found in zip(directories, copies(*directories), strict=True)}
        common = memory_backups.choose(held_by, ())
        everywhere = whole + all(each == "done" for each in progress)
        assert common == ((1, everywhere) if everywhere else None)
        for directory in directories if common is not None else ():
            number, step = common or (0, 0)
            assert set(copy_file.Copy(str(directory), number, step).state) == {everywhere}


def test_the_restored_copy_outlives_the_begin_of_the_next_one(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path), STATE, None)
    slots.reserve()
    for step in (1, 2):
        write(slots, step)
    after = Slots(str(tmp_path), STATE, (1, 1))  # the newest is not held by all
    after.reserve()
    assert held(str(tmp_path)) == [(1, 1)]
    after.begin()
    assert held(str(tmp_path)) == [(1, 1)]
    write(after, 2, number=2)
    assert held(str(tmp_path)) == [(1, 1), (2, 2)]
    write(after, 3, number=2)
    assert held(str(tmp_path)) == [(2, 2), (2, 3)]
    after.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_comes_back_as_it_was(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path), STATE, None)
    slots.reserve()
    write(slots, 7, value=9)
    copy = copy_file.Copy(str(tmp_path), 1, 7)
    assert (copy.step, copy.exponent, bytes(copy.state)) == (7, 4, bytes([9]) * STATE)
    copy.close()


@pytest.mark.parametrize("text", [b"", b"x" * HEAD, copy_file.MAGIC + b"\xff" * HEAD])
def test_a_file_that_is_no_copy_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "copy-1-1").write_bytes(text)
    with pytest.raises((OSError, ValueError)):
        copy_file.Copy(str(tmp_path), 1, 1)


def test_memory_that_is_not_there_is_noticed_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"File too large|No space left|Cannot allocate|Invalid argument"):
        Slots(str(tmp_path), 1 << 62, None).reserve()
