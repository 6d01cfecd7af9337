"""The table of restarts, which launchers, the operator and `tftj run` go by: what each costs, and what is progress."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_gang.simulation import make_coordinator
from tftraining.launch.failure import backoff, incident, restart_budget
from tftraining.launch.failure.restart_budget import Ledger, Reached, has_progressed, merge
from tftraining.launch.failure.same_failure import SPREAD, SameFailure
from tftraining.launch.failure.same_member import SameMember
from tftraining_api.model.job import parse_job
from tftraining_api.model.status import FailuresInARow as Row
from tftraining_api.model.status import Restarts

BEFORE = Ledger(process_failures=4, pod_failures=2, refilled_at=1, without_progress=5, incidents=9)


@pytest.mark.parametrize(
    ("reason", "in_a_row"),
    [
        ("Error", 6), ("NodeLost", 6), *((each, 6) for each in incident.LOSSES),
        ("Grown", 5),
        ("Resized", 0), ("SpecChanged", 0), ("RestartRequested", 0),
    ],
)  # fmt: skip
def test_what_extends_the_back_off_and_what_begins_it_anew(reason: str, in_a_row: int) -> None:
    after = restart_budget.account(BEFORE, reason, charged=False)
    assert (after.without_progress, after.used, after.incidents) == (in_a_row, 5, 10)
    assert (reason in incident.PLANNED) == (in_a_row < 6)


def test_a_charge_is_one_of_a_program_or_of_a_pod() -> None:
    of_program, of_pod = (
        restart_budget.account(BEFORE, "Error", charged=True, by_pod=by_pod) for by_pod in (False, True)
    )
    assert [(each.process_failures, each.pod_failures, each.used) for each in (of_program, of_pod)] == [
        (5, 2, 6),
        (4, 3, 6),
    ]


def test_what_the_launchers_have_backed_off_for_is_not_counted_again() -> None:
    assert restart_budget.account(BEFORE, "Evicted", charged=False, backed_off=True).without_progress == 5


@pytest.mark.parametrize(("budget_reset", "used"), [("OnProgress", 0), ("Never", 5)])
def test_progress_ends_the_back_off_and_refills_the_budget(budget_reset: str, used: int) -> None:
    after = restart_budget.with_progress(BEFORE, budget_reset)
    assert (after.without_progress, after.used, after.failures) == (0, used, 6)


@pytest.mark.parametrize(
    ("now", "trained", "ran", "is_progress"),
    [
        (Reached(epoch=3), 50.0, 50.0, True),
        (Reached(epoch=2), 5000.0, 5000.0, False),
        (Reached(epoch=2, checkpoint=101), None, None, True),
        (Reached(epoch=2, checkpoint=100), None, None, False),
        (Reached(epoch=2, copy=151), 10.0, 10.0, True),
        (Reached(epoch=2, copy=151), 9.9, 100.0, False),
        (Reached(epoch=2, copy=151), None, None, False),
        (Reached(epoch=2, copy=150), 100.0, 100.0, False),
        (Reached(), 0.0, 60.0, True),
        (Reached(), 0.0, 59.9, False),
        (Reached(), None, None, False),
    ],
)
def test_what_is_progress(now: Reached, trained: float | None, ran: float | None, is_progress: bool) -> None:
    assert has_progressed(Reached(epoch=2, checkpoint=100, copy=150), now, trained, ran) == is_progress


@pytest.mark.parametrize("now", [Reached(epoch=1), Reached(checkpoint=1), Reached(epoch=0, copy=1)])
def test_the_first_of_its_kind_is_progress(now: Reached) -> None:
    assert has_progressed(Reached(), now, 10.0, 10.0)
    assert not has_progressed(now, now, 10.0, 10.0) and not has_progressed(Reached(), Reached(epoch=0), None, 10.0)


def test_the_back_off_grows_to_a_minute() -> None:
    waits = [backoff.backoff(number) for number in (0, 1, 2, 3, 4, 7, 8, 9, 5000)]
    assert waits == [0, 0, 1, 2, 4, 32, 60, 60, 60]


@pytest.mark.parametrize(("limit", "repeated_at", "seconds"), [(3, 1050.0, 10), (3, None, 32), (0, 1050.0, 32)])
def test_no_wait_is_longer_than_until_the_next_failure_may_end_the_job(
    limit: int, repeated_at: float | None, seconds: float
) -> None:
    assert backoff.wait(7, SameFailure("a", 2, 1000), limit, repeated_at) == seconds


@pytest.mark.parametrize(
    ("allowed", "repeated_at", "reason"),
    [(3, 1060.0, "SameFailure"), (3, 1059.0, "MaxRestartsExceeded"), (3, None, "MaxRestartsExceeded"), (4, None, None)],
)
def test_why_nothing_restarts(allowed: int, repeated_at: float | None, reason: str | None) -> None:
    ledger = Ledger(pod_failures=4, same=SameFailure("a", 3, 1000))
    found = restart_budget.why_no_restart(ledger, "worker-1: boom", repeated_at, allowed, 3, SPREAD)
    assert (found and found[0]) == reason
    assert found is None or found[1].startswith("worker-1: boom; ")


@pytest.mark.parametrize("scope", ["Job", "Pod"])
@pytest.mark.parametrize("roles", [("worker",), ("chief", "worker", "ps"), ("worker", "ps")])
def test_launcher_and_operator_agree_on_who_restarts_alone(scope: str, roles: tuple[str, ...]) -> None:
    raw = a_launched_job().set("restartPolicy.scope", scope)
    for role in roles:
        raw = raw.set(f"replicaSpecs.{role}", {"replicas": 1 if role == "chief" else 2})
    spec = parse_job(raw.raw()).spec
    assert spec is not None
    chief = make_coordinator(*map(str, spec.gang), scope=spec.restart_scope)
    alone = {name: chief.membership.restarts_alone(peer) for name, peer in chief.membership.gang.items()}
    assert alone == {str(each): spec.restarts_alone(each) for each in spec.gang}
    assert any(alone.values()) == (scope == "Pod")


COUNTS = st.integers(0, 50)
ROWS = st.none() | st.builds(Row, st.just("a"), st.integers(1, 9), st.just(datetime(2026, 1, 31, 12, tzinfo=UTC)))


@given(st.lists(COUNTS, min_size=5, max_size=5), COUNTS, COUNTS, ROWS)
def test_the_status_tells_launchers_the_whole_ledger_and_takes_it_back(
    counts: list[int], pods: int, used: int, row: Row | None
) -> None:
    disruptions, in_place, recreated, in_a_row, programs = counts
    before = Restarts(
        counted=programs + pods,
        disruptions=disruptions,
        in_place=in_place,
        recreated=recreated,
        budget_used=min(used, programs + pods),
        without_progress=in_a_row,
        pod_failures=pods,
        same_failure=row,
    )
    assert before.with_ledger(Ledger.from_json(before.ledger.to_json())) == before


# --- merging

LAUNCHER_ROWS = st.one_of(
    st.just(SameFailure()), st.builds(SameFailure, st.sampled_from("ab"), st.integers(1, 9), COUNTS)
)


MEMBER_ROWS = st.just(SameMember()) | st.builds(
    SameMember, st.sampled_from(["worker-0", "worker-1"]), st.integers(1, 9)
)
LEDGERS = st.builds(Ledger, COUNTS, COUNTS, COUNTS, st.just(0), COUNTS, COUNTS, LAUNCHER_ROWS, COUNTS, MEMBER_ROWS)


@given(LEDGERS, LEDGERS)
def test_merging_ledgers_forgets_nothing_and_is_commutative(one: Ledger, other: Ledger) -> None:
    merged = merge(one, other)
    assert merged == merge(other, one)
    assert merged.failures >= max(one.failures, other.failures)
    assert merge(merged, one) == merged


def test_a_ledger_of_nothing_counts_nothing() -> None:
    names = ("inPlace", "processFailures", "podFailures", "refilledAt", "withoutProgress", "incidents")
    assert Ledger().to_json() == dict.fromkeys(names, 0)
    assert Ledger.from_json({}) == Ledger.from_json(dict.fromkeys((*names, "violations"), -1)) == Ledger()
    assert Ledger().violations == 0


@given(LEDGERS)
def test_a_ledger_survives_its_json_form(one: Ledger) -> None:
    assert Ledger.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_the_newer_ledger_decides_about_counts_that_progress_resets() -> None:
    old = Ledger(process_failures=4, without_progress=4, incidents=6)
    new = restart_budget.account(restart_budget.with_progress(old, "OnProgress"), incident.MEMBER_LOST, charged=False)
    assert (merge(old, new), merge(new, old)) == (new, new)


def test_ledgers_of_older_launchers_are_ordered_by_restarts() -> None:
    before = Ledger(in_place=1, process_failures=1, without_progress=1)
    after = Ledger(in_place=2, process_failures=3, without_progress=0)
    assert (merge(before, after), merge(after, before)) == (after, after)


def test_the_row_of_equal_failures_is_that_of_the_one_that_knows_more_failures_of_programs() -> None:
    """A pod that the operator has charged is no reason to forget what the launchers have counted since."""
    operator = Ledger(process_failures=1, pod_failures=1, without_progress=3, same=SameFailure("a", 1, 5))
    launchers = Ledger(process_failures=2, without_progress=2, same=SameFailure("a", 2, 5))
    for merged in (merge(operator, launchers), merge(launchers, operator)):
        assert (merged.same.count, merged.without_progress) == (2, 3)
