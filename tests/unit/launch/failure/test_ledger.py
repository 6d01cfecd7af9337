"""The ledger of restarts: merging two ledgers, the JSON form, the back-off."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.failure import ledger
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.same_failure import SameFailure

COUNTS = st.integers(0, 50)


ROWS = st.one_of(st.just(SameFailure()), st.builds(SameFailure, st.sampled_from("ab"), st.integers(1, 9), COUNTS))


LEDGERS = st.builds(Ledger, COUNTS, COUNTS, COUNTS, st.just(0), COUNTS, COUNTS, ROWS, COUNTS)


@given(LEDGERS, LEDGERS)
def test_merging_ledgers_forgets_nothing_and_is_commutative(one: Ledger, other: Ledger) -> None:
    merged = ledger.merge(one, other)
    assert merged == ledger.merge(other, one)
    assert merged.failures >= max(one.failures, other.failures)
    assert ledger.merge(merged, one) == merged


@given(LEDGERS)
def test_a_ledger_survives_its_json_form(one: Ledger) -> None:
    assert Ledger.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_the_newer_ledger_decides_about_counts_that_progress_resets() -> None:
    old = Ledger(process_failures=4, without_progress=4, incidents=6)
    new = ledger.account(old, charged=False, progressed=True, refill=True)
    assert (ledger.merge(old, new), ledger.merge(new, old)) == (new, new)


def test_ledgers_of_older_launchers_are_ordered_by_restarts() -> None:
    before = Ledger(in_place=1, process_failures=1, without_progress=1)
    after = Ledger(in_place=2, process_failures=3, without_progress=0)
    assert (ledger.merge(before, after), ledger.merge(after, before)) == (after, after)


def test_the_back_off_grows_to_a_minute() -> None:
    waits = [ledger.backoff(number) for number in (0, 1, 2, 3, 4, 7, 8, 9, 5000)]
    assert waits == [0, 0, 1, 2, 4, 32, 60, 60, 60]
