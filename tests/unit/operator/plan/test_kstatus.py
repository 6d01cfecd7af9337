"""Row: what kstatus reads. The conditions Ready and Stalled follow from the phase, whoever wrote the status before.

What the library itself makes of them is in tests/control_plane/test_kstatus.py.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import get_args

import pytest

from tests.support.simulated_cluster import states
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.states import STATES, TERMINATING, as_written_before
from tests.unit.operator.plan import test_idle as idle
from tests.unit.operator.plan.test_deadlines import stalled
from tftraining_api.model.status import Phase, Status

NewCluster = Callable[[], SimulatedCluster]
NAME = attrgetter("__name__")
EACH = pytest.mark.parametrize("state", STATES, ids=NAME)


def conditions(status: Status) -> dict[str, str]:
    """The status of each condition by its type."""
    return {each.type: each.status for each in status.conditions}


def test_every_phase_is_among_the_states() -> None:
    assert {phase for phase, _ in STATES.values()} == {*get_args(Phase)} - {"Pending"}, "no pass leaves a job Pending"


@EACH
def test_the_phase_is_what_the_table_says(state: NewCluster) -> None:
    cluster = state()
    assert (cluster.status.phase, cluster.step()) == (STATES[state][0], False)


def test_ready_is_true_only_while_all_members_train() -> None:
    assert conditions(states.starting().status)["Ready"] == "False"
    assert conditions(idle.running().status)["Ready"] == "True"
    assert "Ready" not in conditions(states.running_while_one_is_made_anew().status)
    assert "Ready" not in conditions(idle.suspended().status)
    assert "Ready" not in conditions(idle.succeeded().status)
    assert conditions(idle.failed().status)["Ready"] == "False"


def test_who_waits_is_told_what_for() -> None:
    ready = states.starting_and_held_up().status.condition("Ready")
    assert ready is not None
    assert ready.reason == "PodsNotReady"
    assert ready.message == "worker-1: container tensorflow: image pull failed (x): no such image"


def test_a_job_that_has_failed_says_why() -> None:
    status = idle.invalid().status
    condition = status.condition("Stalled")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "InvalidSpec", status.message)


def test_a_stall_does_not_make_a_job_fail() -> None:
    found = conditions(stalled().status)
    assert found["NoProgress"] == "True" and "Stalled" not in found


def test_a_job_that_is_done_has_seen_its_spec_change() -> None:
    cluster = states.changed_after_the_end()
    assert cluster.status.observed_generation == cluster.api.job["metadata"]["generation"] == 2


def test_a_job_without_a_status_is_begun_like_one_that_has_the_default() -> None:
    job = a_job().raw()
    cluster = SimulatedCluster(a_job())
    cluster.api.job["status"] = {"phase": "Pending", "observedGeneration": -1}
    assert cluster.status.phase == "Pending" and cluster.run().status == SimulatedCluster(a_job()).run().status
    assert "status" not in job


# --- upgrades


@pytest.mark.parametrize("state", [each for each in STATES if STATES[each][1] != TERMINATING], ids=NAME)
def test_what_the_version_before_wrote_is_put_right_in_one_pass(state: NewCluster) -> None:
    cluster = state()
    right = {kind: value for kind, value in conditions(cluster.status).items() if kind != "NoProgress"}
    as_written_before(cluster.api.job["status"])
    wrong, writes = conditions(cluster.status) != right, len(cluster.api.writes)
    assert cluster.step() == wrong
    assert cluster.api.writes[writes:] == ["status"] * wrong, "and no pod is touched"
    found = conditions(cluster.status)
    assert {kind: found[kind] for kind in found if kind != "NoProgress"} == right
    assert not cluster.step()


def test_a_gang_that_stands_still_is_told_of_again() -> None:
    cluster = stalled()
    right = cluster.status
    as_written_before(cluster.api.job["status"])
    cluster.forget()
    cluster.step()
    assert "Stalled" not in conditions(cluster.status), "before the launchers are heard"
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert conditions(cluster.status) == conditions(right)


def test_a_gang_that_trains_keeps_the_time_since_when_it_does() -> None:
    """The back-off goes by it."""
    cluster = states.running_after_a_stall()
    before = cluster.status.condition("Ready")
    as_written_before(cluster.api.job["status"])
    assert before is not None
    assert cluster.wait(3600).settle().status.condition("Ready") == before
