"""Row: exit codes. Rules by code, signal, reason and role; sensible defaults. Here is what the operator decides, for
pods that fail as a whole; the launchers decide by the same table (tests/unit/rules_table.py).
"""

from typing import Any

import msgspec
import pytest

from tests.unit.operator.builders import JobBuilder, a_job, a_launched_job
from tests.unit.operator.simulation import World
from tests.unit.rules_table import CASES, IDS, Case
from tftraining.launch.rules import Failure
from tftraining_operator.model.spec import RestartRule
from tftraining_operator.plan.rules import decide

IMPORT_ERROR = (
    "Traceback (most recent call last):\n  File \"train.py\", line 1\nModuleNotFoundError: No module named 'x'\n"
)


def ruled(*rules: dict[str, Any], job: JobBuilder | None = None) -> World:
    return World((job or a_job()).set("restartPolicy.rules", list(rules))).run()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_becomes_of_a_failure(case: Case) -> None:
    _, rules, (role, code, signal, reason, proven), action, words = case
    asked = msgspec.convert(rules, tuple[RestartRule, ...])
    decision = decide(asked, Failure(role, code, signal, reason), proven)
    assert (decision.action, decision.rule) == (action, words)


@pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_a_rule_fails_the_job(job: Any) -> None:
    world = ruled({"action": "FailJob", "onReasons": ["OOMKilled"]}, job=job())
    world.exit("worker-1", code=137, reason="OOMKilled", message="the last line").run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "FailedByRule")
    expected = "worker-1 failed: exit code 137 (SIGKILL, OOMKilled); spec.restartPolicy.rules[0] says FailJob"
    assert world.status.message == expected
    assert world.status.failure is not None
    assert (world.status.failure.reason, world.status.failure.log_tail) == ("OOMKilled", "the last line")


@pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_a_failure_that_is_ignored_is_neither_charged_nor_a_disruption(job: Any) -> None:
    world = ruled({"action": "Ignore", "onExitCodes": [3]}, job=job().max_restarts(0))
    for _ in range(3):
        world.exit("worker-1", code=3).run_timers()
    restarts = world.status.restarts
    assert (world.status.phase, restarts.counted, restarts.disruptions, restarts.recreated) == ("Running", 0, 0, 3)
    assert world.status.failure is not None and world.status.failure.exit_code == 3
    assert restarts.without_progress == 3, "it waits longer and longer all the same"
    assert any("rules[0] says Ignore" in note.message for note in world.notes)


def test_a_rule_for_one_role_leaves_the_others_alone() -> None:
    world = ruled({"action": "FailJob", "role": "ps"}, job=a_job().chief().role("ps"))
    assert world.exit("worker-1").run().status.phase == "Running"
    assert world.exit("ps-0").run().status.reason == "FailedByRule"


def test_a_disruption_is_nobodys_failure() -> None:
    world = ruled({"action": "FailJob", "onReasons": ["Evicted"], "role": "worker"})
    world.kubelet.evict("mnist-worker-1")
    assert world.run().status.phase == "Running"


def test_an_evaluator_fails_the_job_only_by_a_rule() -> None:
    rule = {"action": "FailJob", "onExitCodes": [4]}
    world = ruled(rule, job=a_job().role("evaluator")).wait(61)
    assert world.exit("evaluator-0", message=IMPORT_ERROR).run().status.phase == "Running"
    world.exit("evaluator-0", code=4).run()
    assert (world.status.phase, world.status.reason) == ("Failed", "FailedByRule")


def test_without_a_launcher_the_log_tells_what_no_restart_can_mend() -> None:
    world = ruled().wait(10).exit("worker-1", message=IMPORT_ERROR).run()
    assert (world.status.phase, world.status.reason) == ("Failed", "ImportError")
    assert world.status.message is not None
    assert world.status.message.endswith(
        "the program cannot import what it needs: ModuleNotFoundError: No module named 'x'"
    )


def test_an_import_error_after_the_first_minute_is_tried_again() -> None:
    world = ruled().wait(100).exit("worker-1", message=IMPORT_ERROR).run()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 1)
    assert world.wait(5).exit("worker-1", message=IMPORT_ERROR).run_timers().status.phase == "Running"


def test_a_rule_is_asked_before_the_defaults() -> None:
    world = ruled({"action": "Restart", "onReasons": ["ImportError"]})
    assert world.exit("worker-1", message=IMPORT_ERROR).run().status.phase == "Running"


def test_pods_know_of_rules_and_scope_only_where_they_are_used() -> None:
    """An operator that knows more fields than the one that made the pods must find them unchanged."""
    plain = a_job().parsed()[1]
    assert (
        plain.fingerprint
        == a_job().set("restartPolicy.scope", "Job").set("restartPolicy.rules", []).parsed()[1].fingerprint
    )
    assert plain.fingerprint == "c9aae30edecb8c5c"
    ruled_spec = a_job().set("restartPolicy.rules", [{"action": "Ignore", "onExitCodes": [3]}]).parsed()[1]
    alone = a_job().set("restartPolicy.scope", "Pod").parsed()[1]
    assert len({plain.fingerprint, ruled_spec.fingerprint, alone.fingerprint}) == 3
