"""How often a launcher is asked, and whose answers are waited for when not all can be."""

from tftraining_operator.cluster.poll_schedule import (
    CALM_SECONDS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    QUICK_PAUSE,
    LongPollTurns,
    PollSchedule,
)


def pauses(schedule: PollSchedule, count: int, **note: float | bool) -> list[float]:
    found = []
    for _ in range(count):
        if "after" in note:
            schedule.note_change(float(note["after"]))
        else:
            schedule.note_poll(bool(note["news"]))
        found.append(schedule.pause)
    return found


def test_who_cannot_be_waited_for_is_asked_less_and_less_often_until_there_is_news() -> None:
    schedule = PollSchedule()
    assert pauses(schedule, 5, news=False) == [2, 4, 8, 15, 15]
    assert pauses(schedule, 2, news=True) == [2, 2]
    assert pauses(schedule, 2, news=False) == [4, 8]
    schedule.reset()
    assert pauses(schedule, 1, news=False) == [FIRST_PAUSE]


def test_silence_is_asked_less_and_less_often() -> None:
    schedule = PollSchedule()
    for expected in (2, 4, 8, LONGEST_PAUSE):
        schedule.note_unanswered()
        assert schedule.pause == expected


def test_the_changes_of_a_restart_are_known_at_once_and_endless_ones_are_not() -> None:
    schedule = PollSchedule()
    assert sum(pauses(schedule, 3, after=0.3)) < 1
    assert pauses(schedule, 10, after=0.0)[-1] == FIRST_PAUSE
    schedule.note_change(CALM_SECONDS)
    assert schedule.pause == QUICK_PAUSE


def test_turns_go_round() -> None:
    called: list[str] = []
    turns = LongPollTurns[str](2, called.append)
    assert [turns.acquire(each) for each in "abcd"] == [True, True, False, False]
    assert not turns.acquire("c"), "to ask again changes nothing"
    turns.release("a")
    assert called == ["c"]
    assert not turns.acquire("a"), "it stands behind the others now"
    assert not turns.acquire("d")
    assert turns.acquire("c") and not turns.acquire("d")
    turns.release("b")
    assert called == ["c", "d"] and turns.acquire("d")
    turns.release("c")
    assert turns.acquire("a")


def test_each_who_is_called_calls_the_next_if_there_is_room() -> None:
    called: list[str] = []
    turns = LongPollTurns[str](2, called.append)
    assert [turns.acquire(each) for each in "abcd"] == [True, True, False, False]
    turns.release("a")
    turns.release("b")
    assert called == ["c", "c"] and turns.acquire("c")
    assert called[-1] == "d" and turns.acquire("d")


def test_who_is_not_asked_any_more_gives_its_turn_to_the_next() -> None:
    called: list[str] = []
    turns = LongPollTurns[str](1, called.append)
    assert turns.acquire("a") and not turns.acquire("b") and not turns.acquire("c")
    turns.release("a")
    turns.release("b")  # it was called, and is gone
    assert called == ["b", "c"] and turns.acquire("c")


def test_all_have_a_turn_where_there_is_room() -> None:
    turns = LongPollTurns[int](3, print)
    for _ in range(3):
        assert all(turns.acquire(each) for each in range(3))
        for each in range(3):
            turns.release(each)
