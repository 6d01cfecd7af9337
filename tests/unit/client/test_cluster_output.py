"""What the commands print, at 40, 80 and 200 columns and in a pipe."""

import io
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from tests.support.client.cluster_objects import NOW, a_job, a_pod, an_event
from tftraining_client.cluster.models import LogLine
from tftraining_client.cluster.snapshot import Snapshot, sorted_pods
from tftraining_client.commands.advice import ADVICE
from tftraining_client.commands.explain import as_object, explanation
from tftraining_client.commands.listing import job_table
from tftraining_client.commands.logs import Prefixes
from tftraining_client.commands.next_commands import next_commands
from tftraining_client.commands.output import age, table_lines
from tftraining_client.commands.status import change_line
from tftraining_client.commands.status_tree import status_tree

EVENTS = (
    an_event("2026-01-02T03:40:00Z", "Error", "worker-1: ValueError: boom; the gang restarts from its last backup"),
    an_event("2026-01-02T03:40:03Z", "Training", "the gang trains again after 3.1 s"),
)
SNAPSHOT = Snapshot(a_job(), sorted_pods([a_pod(1, "ImagePullBackOff"), a_pod(0)]), EVENTS, ())

TREE_40 = """\
digits  Running  2/2 ready  1 restart
60m
├── Training: the gang trains
├── ━━━━━━━                  30%
│   epoch 3/10, step 210/700, 56.1
│   steps/s, accuracy 0.9102, loss
│   0.3012
├── worker 1/2 ready
│   ├── worker-0  Running  ready  59m
│   └── worker-1  Pending
│       ImagePullBackOff  59m
├── last restart 20m ago:
│   digits-worker-1 ValueError: boom,
│   resumed from epoch 2, 3.1 s without
│   training, 42 steps lost
└── events
    ├──  20m  Error: worker-1:
    │   ValueError: boom; the gang
    │   restarts from its last backup
    └──  19m  Training: the gang trains
        again after 3.1 s
"""
TREE_80 = """\
digits  Running  2/2 ready  1 restart  60m
├── Training: the gang trains
├── ━━━━━━━                  30%
│   epoch 3/10, step 210/700, 56.1 steps/s, accuracy 0.9102, loss 0.3012
├── worker 1/2 ready
│   ├── worker-0  Running  ready  59m
│   └── worker-1  Pending  ImagePullBackOff  59m
├── last restart 20m ago: digits-worker-1 ValueError: boom, resumed from epoch
│   2, 3.1 s without training, 42 steps lost
└── events
    ├──  20m  Error: worker-1: ValueError: boom; the gang restarts from its last
    │   backup
    └──  19m  Training: the gang trains again after 3.1 s
"""
TREE_200 = """\
digits  Running  2/2 ready  1 restart  60m
├── Training: the gang trains
├── ━━━━━━━                  30%
│   epoch 3/10, step 210/700, 56.1 steps/s, accuracy 0.9102, loss 0.3012
├── worker 1/2 ready
│   ├── worker-0  Running  ready  59m
│   └── worker-1  Pending  ImagePullBackOff  59m
├── last restart 20m ago: digits-worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 42 steps lost
└── events
    ├──  20m  Error: worker-1: ValueError: boom; the gang restarts from its last backup
    └──  19m  Training: the gang trains again after 3.1 s
"""

JOBS = (
    a_job(),
    a_job(
        "a-job-with-quite-a-long-name-of-its-own",
        phase="Failed",
        reason="SameFailure",
        message="worker-1: ValueError: boom; the same failure three times in a row",
        ready="0/200",
        progress=None,
    ),
)
TABLE_40 = """\
NAME                             PHASE
digits                           Running
a-job-with-quite-a-long-name-…   Failed
"""
TABLE_80 = """\
NAMESPACE   NAME                                      PHASE     PROGRESS     AGE
team        digits                                    Running   epoch 3/10   60m
team        a-job-with-quite-a-long-name-of-its-own   Failed                 60m
"""
TABLE_200 = """\
NAMESPACE   NAME                                      PHASE     READY   RESTARTS   PROGRESS     AGE   REASON        MESSAGE
team        digits                                    Running   2/2     1          epoch 3/10   60m   Training      the gang trains
team        a-job-with-quite-a-long-name-of-its-own   Failed    0/200   1                       60m   SameFailure   worker-1: ValueError: boom; the same failure three times in a row
"""  # noqa: E501


def drawn(snapshot: Snapshot, width: int, wide: bool = False) -> str:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(status_tree(snapshot, NOW, wide))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def tabled(width: int | None, wide: bool = True) -> str:
    columns, rows = job_table(JOBS, True, wide, NOW)
    lines = ["".join(text for text, _ in line) for line in table_lines(columns, rows, width)]
    assert width is None or max(len(line.rstrip()) for line in lines) <= width
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize(("width", "tree"), [(40, TREE_40), (80, TREE_80), (200, TREE_200)])
def test_the_tree_of_a_job(width: int, tree: str) -> None:
    assert drawn(SNAPSHOT, width) == tree


@pytest.mark.parametrize(("width", "table"), [(40, TABLE_40), (80, TABLE_80), (200, TABLE_200), (None, TABLE_200)])
def test_the_table_of_jobs(width: int | None, table: str) -> None:
    assert tabled(width) == table


def test_the_tree_of_a_large_job_shows_first_the_pods_that_are_not_ready() -> None:
    pods = sorted_pods([a_pod(index, "ErrImagePull" if index == 150 else "") for index in range(200)])
    tree = drawn(Snapshot(a_job(), pods), 80)
    assert "worker-150  Pending  ErrImagePull" in tree and "and 184 more" in tree
    assert "worker-199  Running  ready  node-1" not in tree
    assert "worker-199  Running  ready  node-1  digits-worker-199" in drawn(Snapshot(a_job(), pods), 80, wide=True)


def test_a_tree_without_rights_and_without_progress() -> None:
    job = a_job(phase="Pending", reason=None, message=None, ready=None, progress=None, lastRestart=None, restarts=None)
    assert drawn(Snapshot(job, hidden=("pods",)), 80) == (
        "digits  Pending  60m\n└── no permission to list pods: the cluster role view contains the right\n"
    )


def test_a_change_in_a_pipe_is_one_line() -> None:
    assert change_line(a_job(message="two\nlines")) == "Running  2/2  epoch 3/10  1 restarts  Training  two lines"


def test_a_failure_is_explained_with_the_culprit_the_log_and_what_to_try() -> None:
    failure = {
        "pod": "digits-worker-1",
        "exitCode": 1,
        "reason": "Error",
        "exception": "ValueError: boom",
        "logTail": "Traceback (most recent call last):\nValueError: boom\n",
    }
    told = explanation(a_job(phase="Failed", reason="SameFailure", message="worker-1: again", failure=failure), NOW)
    assert told == [
        "digits is Failed (SameFailure): worker-1: again",
        "last failure: digits-worker-1: ValueError: boom, exit code 1",
        "last lines of digits-worker-1:",
        "  Traceback (most recent call last):",
        "  ValueError: boom",
        "try: after a change of the program `tftj submit --replace -f FILE`",
    ]


def test_the_nodes_that_new_pods_avoid_are_told_until_their_time_is_over() -> None:
    nodes = [
        {"name": "node-a", "until": "2026-01-03T03:45:00Z", "replica": "worker-1", "why": "worker-1 failed once"},
        {"name": "node-b", "until": "2026-01-02T03:45:00Z", "replica": "worker-0", "why": "long ago"},
    ]
    job, words = a_job(lastRestart=None, avoidedNodes=nodes), "avoids node-a for 23h: worker-1 failed once"
    assert explanation(job, NOW)[1] == words
    assert not any("node-b" in line for line in explanation(job, NOW))
    used = a_job(lastRestart=None, avoidedNodes=[{**nodes[0], "usedBy": "worker-1"}])
    assert explanation(used, NOW)[1] == f"{words}; worker-1 runs there all the same"


@pytest.mark.parametrize(
    ("message", "replicas"),
    [
        ("waiting for worker-1 to start; worker-0 exited with code 0 before the others had started", {}),
        ("waiting for worker-1 to start", {"worker": {"desired": 2, "failed": 1}}),
        ("waiting for worker-1 to start", {"worker": {"desired": 2, "succeeded": 1}}),
    ],
)
def test_a_member_that_has_ended_is_the_cause_of_a_delay(message: str, replicas: dict[str, Any]) -> None:
    job = a_job(phase="Starting", reason="PodsStarting", message=message, replicas=replicas, lastRestart=None)
    assert explanation(job, NOW)[-1] == (
        "try: read the log of the member that has ended (`tftj logs digits`): the others wait for it"
    )


def test_without_one_no_cause_is_known() -> None:
    job = a_job(phase="Starting", reason="PodsStarting", message="waiting for worker-1 to start", lastRestart=None)
    assert explanation(job, NOW)[-1] == "try: wait: no cause of a delay is known yet"


def test_a_training_job_is_explained_by_its_last_restart_and_its_warnings() -> None:
    condition = {
        "type": "NoGPU",
        "status": "True",
        "lastTransitionTime": "2026-01-02T03:40:00Z",
        "reason": "NoGPU",
        "message": "worker-1 finds no GPU",
    }
    assert explanation(a_job(conditions=[condition]), NOW)[1:] == [
        "last restart 20m ago: digits-worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, "
        "42 steps lost",
        "NoGPU: worker-1 finds no GPU",
        "try: use an image with NVIDIA's CUDA libraries in spec.template (requirements/trainer-gpu.txt); `nvidia-smi` "
        "on the node shows its driver; then `tftj submit --replace -f FILE`",
    ]


@pytest.mark.parametrize("kind", ["ChangeRefused", "ReconcileError", "Unreadable"])
@pytest.mark.parametrize("at", [("Restarting", "Error"), ("Suspended", "Suspended"), ("Running", "NodeNotReady")])
def test_a_job_that_the_operator_cannot_move_is_not_told_to_go_on_by_itself(at: tuple[str, str], kind: str) -> None:
    reason = {"ReconcileError": "Forbidden", "Unreadable": "ChildUnreadable"}.get(kind, kind)
    told = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:40:00Z", "reason": reason}
    told["message"] = "it was refused"
    job = a_job(phase=at[0], reason=at[1], message="worker-1 failed", conditions=[told])
    assert explanation(job, NOW)[-1].startswith(f"try: {ADVICE[reason]}")


def test_it_is_explained_where_the_time_went_up_to_now() -> None:
    goodput = {
        "startTime": "2026-01-02T03:00:00Z",
        "updatedTime": "2026-01-02T03:50:00Z",
        "cause": "trained",
        "since": "2026-01-02T03:40:00Z",
        "seconds": {"start": 36.0, "trained": 2964.0},
    }
    job = a_job(goodput=goodput, lastRestart=None)
    assert explanation(job, NOW)[1] == "time: 99.0 % of 60 min trained; start 36.0 s"
    assert as_object(job)["goodput"] == goodput


def test_it_is_explained_where_a_restart_resumes_and_what_is_not_the_same_then() -> None:
    told = {
        "MemoryBackup": ("True", "the first at step 170; a restart resumes at the beginning of an epoch: no seed"),
        "InputNotReproducible": ("False", "no such backup"),
        "ResumedTrainingDiffers": ("True", "the resumed training differs"),
    }
    conditions = [
        {
            "type": kind,
            "status": value,
            "lastTransitionTime": "2026-01-02T03:40:00Z",
            "reason": kind,
            "message": message,
        }
        for kind, (value, message) in told.items()
    ]
    resumed = {"resumedFromEpoch": 0, "resumedFromStep": 40, "resumedFrom": "Memory"}
    job = a_job(conditions=conditions, lastRestart={"time": "2026-01-02T03:40:00Z", **resumed})
    restart, *lines = explanation(job, NOW)[1:]
    assert "resumed from memory at step 40" in restart, "of the second fit, whose first epoch is not over"
    assert lines == [
        f"backups in memory: {told['MemoryBackup'][1]}",
        "ResumedTrainingDiffers: the resumed training differs",
    ]


def test_a_signal_is_named_instead_of_the_exit_code() -> None:
    failure = {"pod": "digits-worker-1", "exitCode": 137, "signal": 9, "reason": "OOMKilled"}
    told = explanation(a_job(phase="Failed", reason="MaxRestartsExceeded", failure=failure), NOW)
    assert "last failure: digits-worker-1: OOMKilled, signal 9" in told


@pytest.mark.parametrize(
    ("phase", "first"),
    [
        ("Failed", "explain digits"),
        ("Succeeded", "logs digits"),
        ("Suspended", "resume digits"),
        ("Running", "status digits --watch"),
    ],
)
def test_the_next_commands_fit_the_phase(phase: str, first: str) -> None:
    assert next_commands(a_job(phase=phase))[0] == first


def test_the_lines_of_a_log_have_the_names_of_their_replicas() -> None:
    lines = [LogLine("p", "u", replica, 0, "text") for replica in ("worker-0", "ps-0")]
    plain, coloured = Prefixes(False), Prefixes(True)
    assert [plain.of(line) for line in lines] == ["worker-0 | ", "ps-0     | "]
    assert [coloured.of(line) for line in lines] == ["\x1b[36mworker-0 | \x1b[0m", "\x1b[35mps-0     | \x1b[0m"]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d")])
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text
