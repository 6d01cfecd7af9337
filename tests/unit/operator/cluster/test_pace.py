"""How often a launcher is asked, and whose answers are waited for when not all can be."""

from tftraining_operator.cluster.pace import CALM, FIRST_PAUSE, LONGEST_PAUSE, QUICK_PAUSE, Pace, Turns


def pauses(pace: Pace, count: int, **note: float | bool) -> list[float]:
    found = []
    for _ in range(count):
        if "after" in note:
            pace.note_change(float(note["after"]))
        else:
            pace.note_poll(bool(note["news"]))
        found.append(pace.pause)
    return found


def test_who_cannot_be_waited_for_is_asked_less_and_less_often_until_there_is_news() -> None:
    pace = Pace()
    assert pauses(pace, 5, news=False) == [2, 4, 8, 15, 15]
    assert pauses(pace, 2, news=True) == [2, 2]
    assert pauses(pace, 2, news=False) == [4, 8]
    pace.begin_again()
    assert pauses(pace, 1, news=False) == [FIRST_PAUSE]


def test_silence_is_asked_less_and_less_often() -> None:
    pace = Pace()
    for expected in (2, 4, 8, LONGEST_PAUSE):
        pace.note_silence()
        assert pace.pause == expected


def test_the_changes_of_a_restart_are_known_at_once_and_endless_ones_are_not() -> None:
    pace = Pace()
    assert sum(pauses(pace, 3, after=0.3)) < 1
    assert pauses(pace, 10, after=0.0)[-1] == FIRST_PAUSE
    pace.note_change(CALM)
    assert pace.pause == QUICK_PAUSE


def test_turns_go_round() -> None:
    called: list[str] = []
    turns = Turns[str](2, called.append)
    assert [turns.take(each) for each in "abcd"] == [True, True, False, False]
    assert not turns.take("c"), "to ask again changes nothing"
    turns.give("a")
    assert called == ["c"]
    assert not turns.take("a"), "it stands behind the others now"
    assert not turns.take("d")
    assert turns.take("c") and not turns.take("d")
    turns.give("b")
    assert called == ["c", "d"] and turns.take("d")
    turns.give("c")
    assert turns.take("a")


def test_each_who_is_called_calls_the_next_if_there_is_room() -> None:
    called: list[str] = []
    turns = Turns[str](2, called.append)
    assert [turns.take(each) for each in "abcd"] == [True, True, False, False]
    turns.give("a")
    turns.give("b")
    assert called == ["c", "c"] and turns.take("c")
    assert called[-1] == "d" and turns.take("d")


def test_who_is_not_asked_any_more_gives_its_turn_to_the_next() -> None:
    called: list[str] = []
    turns = Turns[str](1, called.append)
    assert turns.take("a") and not turns.take("b") and not turns.take("c")
    turns.give("a")
    turns.give("b")  # it was called, and is gone
    assert called == ["b", "c"] and turns.take("c")


def test_all_have_a_turn_where_there_is_room() -> None:
    turns = Turns[int](3, print)
    for _ in range(3):
        assert all(turns.take(each) for each in range(3))
        for each in range(3):
            turns.give(each)
