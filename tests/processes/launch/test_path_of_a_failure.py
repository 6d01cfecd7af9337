"""The path of a failed program through two real launchers, as docs/architecture.md tells it: recorded, not guessed."""

from __future__ import annotations

import re
import sys
import time

import pytest

from tests.support import calls as recorder
from tests.support.calls import Call, because_of, files, first_row_not_reached, read, rows_of
from tests.support.launchers.gang import LocalGang

# What goes on all the time, beside the failure.
BESIDE = re.compile(r"HttpServer|StreamForwarder|.*\._(send_heartbeats|apply_spec_updates|tick_repeatedly)$")
# The files that a failure crosses: those with functions that run because of it. And the functions on the stack from the
# end of the process to the frame, and from the frame to the order.
TO_STOP, TO_NEXT_ROUND, ALTOGETHER, ON_THE_PAGE = 25, 22, 31, 6
HANDS_TO_FRAME, HANDS_TO_STOP = 6, 7


class Recorded:
    """The calls of a gang of two that follow from the end of worker 1's program, merged by time."""

    def __init__(self, gang: LocalGang, ordered_at: float) -> None:
        members = {name: read(gang.place / f"calls-{name}") for name in gang.names}
        started = max(call.at for call in members["worker-1"] if call.name == "spawn" and call.at < ordered_at)
        ended = next(call.at for call in members["worker-1"] if call.name == "Reaper.reap" and call.at > ordered_at)
        calls = sorted(call for each in members.values() for call in each)
        calm = [call for call in calls if started < call.at < ended]
        since = [call for call in calls if call.at >= ended]
        self.calls = [call for call in since if not BESIDE.match(call.hands[0])]
        self.path = because_of(self.calls, calm)
        self.page = because_of([call for call in since if call.hands[0] == "HttpServer._serve"], calm)

    def last(self, name: str) -> Call:
        return next(call for call in reversed(self.path) if call.name == name)

    def until(self, last: Call, since: float = 0.0) -> list[Call]:
        return [call for call in self.path if since < call.at <= last.at]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A gang that trains in calm for some heartbeats; then the program of worker 1 raises an exception."""
    place = tmp_path_factory.mktemp("gang")
    with LocalGang(place, {"worker": 2}, "--epochs", "1000", "--steps", "1000", memberTimeoutSeconds=6.0) as gang:
        for name in gang.names:
            gang.wrappers[name] = [sys.executable, recorder.__file__, str(place / f"calls-{name}")]
        gang.start()
        gang.wait_for_phase("Training")
        calls = [place / f"calls-{name}" for name in gang.names]
        known = [len(path.read_bytes()) for path in calls]

        def is_calm() -> bool:
            """Whether each launcher has sent heartbeats, and the chief's has ticked, since the gang trains."""
            told = [path.read_bytes()[size:] for path, size in zip(calls, known, strict=True)]
            return all(each.count(b"\tProgramControl.send_heartbeat\t") >= 2 for each in told)

        gang.wait_for(is_calm)
        ordered_at = time.monotonic()
        gang.order("worker-1", "error ValueError: boom")
        gang.wait_for(lambda: sum(number == 2 for _, number, _ in gang.starts()) == 2)
        gang.wait_for_phase("Training", 2)
        return Recorded(gang, ordered_at)


def test_the_path_crosses_few_files(recorded: Recorded) -> None:
    stop, start = recorded.last("Outbox.send_stop"), recorded.last("Outbox.send_start")
    assert len(files(recorded.until(stop))) <= TO_STOP, files(recorded.until(stop))
    assert len(files(recorded.until(start, stop.at))) <= TO_NEXT_ROUND, files(recorded.until(start, stop.at))
    assert len(files(recorded.until(start))) <= ALTOGETHER, files(recorded.until(start))
    assert 0 < len(files(recorded.page)) <= ON_THE_PAGE, files(recorded.page)


def test_the_exit_passes_through_few_hands(recorded: Recorded) -> None:
    to_frame, to_stop = recorded.last("ProgramControl.send_exit").hands, recorded.last("Outbox.send_stop").hands
    assert len(to_frame) <= HANDS_TO_FRAME, to_frame
    assert len(to_stop) <= HANDS_TO_STOP, to_stop


def test_the_page_names_the_files_in_the_order_in_which_they_run(recorded: Recorded) -> None:
    rows = [row for row in rows_of("## The path of a failure") if row[0].startswith("trainer/")]
    named = {path for row in rows for path in row}
    assert first_row_not_reached(recorded.calls + recorded.page, rows) == []
    assert named <= set(files(recorded.calls + recorded.page))
    crossed = files(recorded.until(recorded.last("Outbox.send_start")) + recorded.page)
    assert [path for path in crossed if path not in named] == []
