"""Indexes as text and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tftraining_api.model.indexes import pack, unpack


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([0], "0"), ([2, 0, 1], "0-2"), ([5, 1, 3, 4], "1,3-5"), ([7, 9], "7,9")]
)
def test_the_format_of_a_batch_job(indexes: list[int], text: str) -> None:
    assert pack(indexes) == text


@pytest.mark.parametrize("text", ["x", "1-", "-1", ",,", "3-1", "1.5", "9" * 40, "0-" + "9" * 40])
def test_text_that_makes_no_sense_names_nothing(text: str) -> None:
    assert unpack(text, range(5)) == set()


def test_a_huge_run_costs_nothing() -> None:
    assert unpack("0-999999999", [3]) == {3}


@settings(derandomize=True, max_examples=50)
@given(st.sets(st.integers(0, 40)))
def test_what_is_packed_is_chosen(indexes: set[int]) -> None:
    assert unpack(pack(indexes), range(41)) == indexes
