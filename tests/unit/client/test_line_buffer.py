"""Whole lines out of pieces of output."""

from tftraining_client.local.line_buffer import LONGEST, LineBuffer


def test_lines_come_whole_however_they_are_cut() -> None:
    data = "één\ntwee\r\n\nten\rtwenty\rdone\nrest".encode()
    for size in (1, 2, 3, 100):
        lines = LineBuffer()
        whole = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
        assert whole == ["één", "twee", "", "done"]
        assert lines.close() == ["rest"]
        assert lines.close() == []


def test_a_line_without_end_is_cut() -> None:
    lines = LineBuffer()
    assert [len(line) for line in lines.feed(b"x" * (2 * LONGEST + 5))] == [LONGEST, LONGEST]
    assert lines.close() == ["xxxxx"]


def test_what_is_no_text_is_shown_as_such() -> None:
    assert LineBuffer().feed(b"a\xffb\n") == ["a\ufffdb"]
