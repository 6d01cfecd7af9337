"""Row: exit codes. Rules by code, signal, reason and role; sensible defaults. Here is what the operator decides, for
pods that fail as a whole; the launchers decide by the same table (tests/support/rules_table.py).
"""

from typing import Any

import msgspec
import pytest

from tests.support.rules_table import CASES, IDS, Case
from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.failure.restart_rules import Failure
from tftraining_api.model.spec import RestartPolicy, RestartRule

IMPORT_ERROR = (
    "Traceback (most recent call last):\n  File \"train.py\", line 1\nModuleNotFoundError: No module named 'x'\n"
)


def ruled(*rules: dict[str, Any], job: JobBuilder | None = None) -> SimulatedCluster:
    return SimulatedCluster((job or a_job()).set("restartPolicy.rules", list(rules))).run()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_becomes_of_a_failure(case: Case) -> None:
    _, rules, (role, code, signal, reason, proven), action, words = case
    asked = msgspec.convert(rules, tuple[RestartRule, ...])
    decision = RestartPolicy(rules=asked).decide(Failure(role, code, signal, reason), proven)
    assert (decision.action, decision.rule) == (action, words)


@pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_a_rule_fails_the_job(job: Any) -> None:
    cluster = ruled({"action": "FailJob", "onReasons": ["OOMKilled"]}, job=job())
    cluster.exit("worker-1", code=137, reason="OOMKilled", message="the last line").run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "FailedByRule")
    expected = "worker-1 failed: exit code 137 (SIGKILL, OOMKilled); matched spec.restartPolicy.rules[0]: FailJob"
    assert cluster.status.message == expected
    assert cluster.status.failure is not None
    assert (cluster.status.failure.reason, cluster.status.failure.log_tail) == ("OOMKilled", "the last line")


def test_a_rule_knows_a_launcher_that_failed_as_a_whole_by_the_reason_error() -> None:
    cluster = ruled({"action": "FailJob", "onReasons": ["Error"]}, job=a_launched_job())
    cluster.exit("worker-1", code=3).run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "FailedByRule")


@pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_a_failure_that_is_ignored_is_neither_charged_nor_a_disruption(job: Any) -> None:
    cluster = ruled({"action": "Ignore", "onExitCodes": [3]}, job=job().max_restarts(0))
    for _ in range(3):
        cluster.exit("worker-1", code=3).run_timers()
    restarts = cluster.status.restarts
    assert (cluster.status.phase, restarts.counted, restarts.disruptions, restarts.recreated) == ("Running", 0, 0, 3)
    assert cluster.status.failure is not None and cluster.status.failure.exit_code == 3
    assert restarts.without_progress == 3, "it waits longer and longer all the same"
    assert any("rules[0]: Ignore" in note.message for note in cluster.events)


def test_a_rule_for_one_role_leaves_the_others_alone() -> None:
    cluster = ruled({"action": "FailJob", "role": "ps"}, job=a_job().chief().role("ps"))
    assert cluster.exit("worker-1").run().status.phase == "Running"
    assert cluster.exit("ps-0").run().status.reason == "FailedByRule"


def test_a_disruption_is_nobodys_failure() -> None:
    cluster = ruled({"action": "FailJob", "onReasons": ["Evicted"], "role": "worker"})
    cluster.kubelet.evict("mnist-worker-1")
    assert cluster.run().status.phase == "Running"


def test_an_evaluator_fails_the_job_only_by_a_rule() -> None:
    rule = {"action": "FailJob", "onExitCodes": [4]}
    cluster = ruled(rule, job=a_job().role("evaluator")).wait(61)
    assert cluster.exit("evaluator-0", message=IMPORT_ERROR).run().status.phase == "Running"
    cluster.exit("evaluator-0", code=4).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "FailedByRule")


def test_without_a_launcher_the_log_tells_what_no_restart_can_mend() -> None:
    cluster = ruled().wait(10).exit("worker-1", message=IMPORT_ERROR).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "ImportError")
    assert cluster.status.message is not None
    assert cluster.status.message.endswith(
        "the program cannot import a module: ModuleNotFoundError: No module named 'x'"
    )


def test_an_import_error_after_the_first_minute_is_tried_again() -> None:
    cluster = ruled().wait(100).exit("worker-1", message=IMPORT_ERROR).run()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)
    assert cluster.wait(5).exit("worker-1", message=IMPORT_ERROR).run_timers().status.phase == "Running"


def test_a_rule_is_asked_before_the_defaults() -> None:
    cluster = ruled({"action": "Restart", "onReasons": ["ImportError"]})
    assert cluster.exit("worker-1", message=IMPORT_ERROR).run().status.phase == "Running"


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


# --- every kind of condition, with every action

CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "code": ({"onExitCodes": [3]}, {"code": 3}),
    "signal": ({"onSignals": [9]}, {"code": 137}),
    "reason": ({"onReasons": ["OOMKilled"]}, {"code": 137, "reason": "OOMKilled"}),
    "role": ({"role": "worker"}, {"code": 1}),
    "all of them": (
        {"onExitCodes": [137], "onSignals": [9], "onReasons": ["OOMKilled"], "role": "worker"},
        {"code": 137, "reason": "OOMKilled"},
    ),
}
MODES = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


@MODES
@pytest.mark.parametrize("action", ["FailJob", "Restart", "Ignore"])
@pytest.mark.parametrize(("when", "ended"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_a_rule_that_holds(job: Any, action: str, when: dict[str, Any], ended: dict[str, Any]) -> None:
    cluster = ruled({"action": action, **when}, {"action": "FailJob"}, job=job())
    cluster.exit("worker-1", **ended).run_timers()
    failed = action == "FailJob"
    assert (cluster.status.phase, cluster.status.restarts.counted) == (
        "Failed" if failed else "Running",
        1 if action == "Restart" else 0,
    )
    assert cluster.status.reason == ("FailedByRule" if failed else "Training")


@MODES
@pytest.mark.parametrize("when", [when for when, _ in CONDITIONS.values()], ids=CONDITIONS.keys())
def test_a_rule_that_does_not_hold_leaves_it_to_the_next(job: Any, when: dict[str, Any]) -> None:
    cluster = ruled({"action": "FailJob", **when}, {"action": "Ignore"}, job=job().chief())
    cluster.exit("chief-0", code=4).run_timers()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 0)


# --- the defaults


@MODES
@pytest.mark.parametrize("code", [1, 2, 3, 64, 125, 126, 128, 129, 130, 137, 139, 143, 192, 255])
def test_every_code_is_tried_again_and_charged_by_default(job: Any, code: int) -> None:
    cluster = ruled(job=job()).exit("worker-1", code=code).run_timers()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)
    assert cluster.status.failure is not None and cluster.status.failure.exit_code == code


@pytest.mark.parametrize(
    ("code", "log", "reason"),
    [
        (1, IMPORT_ERROR, "ImportError"),
        (1, "Traceback (most recent call last):\n  File \"t.py\"\nImportError: no 'y' in 'x'\n", "ImportError"),
        (1, '  File "train.py", line 3\n    def\n       ^\nSyntaxError: invalid syntax\n', "SyntaxError"),
        (127, "sh: 1: pyton: not found\n", "NotFound"),
        (2, "python: can't open file '/train.py': [Errno 2] No such file or directory\n", "NotFound"),
    ],
)
def test_what_no_restart_can_mend_fails_at_once_before_the_first_step(code: int, log: str, reason: str) -> None:
    cluster = ruled().wait(10).exit("worker-1", code=code, message=log).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.status.restarts.counted) == ("Failed", reason, 0)
    assert cluster.status.failure is not None and cluster.status.failure.log_tail == log.rstrip("\n")
