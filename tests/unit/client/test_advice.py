"""What `tftj explain` says to try: each text names fields of the definition and commands that can be typed."""

import re
from typing import Any

import pytest
import typer.main

from tests.support.client.cluster_objects import RAW, a_job
from tests.support.crd import definition
from tests.support.repository import REPOSITORY
from tftraining_client.cluster.models import Job
from tftraining_client.commands import advice as module
from tftraining_client.commands.advice import ADVICE, AGAIN, FALLBACK, OF_EXCEPTIONS, OTHER_MODEL, advice, advice_for
from tftraining_client.commands.app import app

OTHERS = (AGAIN, FALLBACK, module.ENDED, module.OF_A_POD, module.NO_OPERATOR)
WORDS = sorted({*ADVICE.values(), *OF_EXCEPTIONS.values(), *OTHERS})


def failed(reason: str, failure: dict[str, Any], **spec: Any) -> Job:
    raw = a_job(phase="Failed", reason=reason, failure={"pod": "digits-worker-1", **failure}).raw
    return Job.of({**raw, "spec": {**RAW["spec"], "template": {"spec": {"containers": []}}, **spec}})


@pytest.mark.parametrize(
    ("reason", "failure", "words"),
    [
        ("MaxRestartsExceeded", {"reason": "OOMKilled", "signal": 9}, "raise resources.limits.memory"),
        ("FailedByRule", {"reason": "NotFound", "exitCode": 127}, "correct the command of the container"),
        ("SameFailure", {"exception": "ResourceExhaustedError: OOM on device:CPU:0"}, "raise resources.limits.memory"),
        (
            "SameFailure",
            {"exception": "ResourceExhaustedError: OOM on /device:GPU:0"},
            "reduce the batch size: the GPU",
        ),
        ("SameFailure", {"exception": "ResourceExhaustedError: a; No space left on device"}, "enlarge the volume"),
        ("SameFailure", {"exception": "OSError: [Errno 28] No space left on device"}, "enlarge the volume"),
        ("SameFailure", {"exception": "FileNotFoundError: x"}, "give the file to every pod"),
        (
            "SameFailure",
            {"exception": "NotFoundError: /a.csv; No such file or directory"},
            "give the file to every pod",
        ),
        ("SameFailure", {"exception": "ValueError: File not found: filepath=/a.keras"}, "give the file to every pod"),
        (
            "SameFailure",
            {"exception": "NotFoundError: Failed to find any matching files for /a"},
            "give the file to every",
        ),
        ("SameFailure", {"exception": "ValueError: Shape mismatch: the shape of labels"}, "after a change of the"),
        ("SameFailure", {"exception": "NotFoundError: Resource a does not exist"}, "after a change of"),
        (
            "SameFailure",
            {"exception": "NotFoundError: Resource localhost/a does not exist"},
            "after a change of the prog",
        ),
        ("MaxRestartsExceeded", {"reason": "StartError"}, "correct the command of the container"),
        ("MaxRestartsExceeded", {"reason": "Evicted"}, "raise resources.requests"),
        ("MaxRestartsExceeded", {"reason": "SomeWord"}, "`tftj logs digits` has the program's words"),
        ("MaxRestartsExceeded", {"reason": "DeadlineExceeded"}, "raise activeDeadlineSeconds in spec.template"),
        ("FailedByRule", {"exception": "ValueError: x"}, "change the rule of spec.restartPolicy.rules"),
        ("StartDeadlineExceeded", {"reason": "OOMKilled"}, "raise spec.runPolicy.startDeadlineSeconds"),
        ("SameFailure", {"exception": "ValueError: x"}, "after a change of the program `tftj submit"),
    ],
)
def test_the_advice_after_repeated_failures_is_that_of_the_failure(
    reason: str, failure: dict[str, Any], words: str
) -> None:
    told = advice_for(failed(reason, {"reason": "Error", **failure}))
    assert told.startswith(words), told
    assert told.endswith("`tftj submit --replace -f FILE`") and told.count("tftj submit") == 1, told


def test_a_job_is_submitted_again_as_it_came() -> None:
    """With its program, in the place of the failed one if it has a name, and from a backup if there can be one."""
    program = {"reason": "Error", "exception": "ValueError: x"}
    claim = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    before = "after a change of the program `tftj submit --replace -f FILE"
    resumes = ", which resumes from the last backup"
    assert advice_for(failed("SameFailure", program, storage=claim)) == f"{before}`{resumes}"
    packed = failed("SameFailure", program, code={"configMap": {"name": "a"}, "digest": "sha256:1"})
    assert advice_for(packed) == f"{before} --code DIR`"
    commit = {"git": {"url": "https://git.example/a", "revision": "1" * 40}}
    assert advice_for(failed("SameFailure", program, code=commit)) == f"{before} --git URL@SHA`"
    other_model = {"reason": "Error", "exception": "ValueError: Cannot assign value to variable 'a': b"}
    assert advice_for(failed("SameFailure", other_model, code=commit)) == f"{before} --git URL@SHA`"
    of_other_model = failed("SameFailure", other_model, code=commit, storage=claim)
    assert advice_for(of_other_model) == OTHER_MODEL.replace("FILE`", "FILE --git URL@SHA`")
    named = failed("SameFailure", program)
    named.raw["metadata"]["generateName"] = "digits-"
    assert advice_for(named) == "after a change of the program `tftj submit -f FILE`"


def test_a_job_that_has_not_ended_is_replaced_where_it_cannot_be_changed() -> None:
    assert advice_for(a_job(phase="Starting", reason="PodsNotReady")).endswith(f"the message names; then {AGAIN}")
    assert "submit" not in advice_for(a_job(phase="Restarting", reason="Stalled"))
    assert "traceback" in advice_for(a_job(phase="Restarting", reason="Error"))
    assert "TFTRAINING_DIR" in advice_for(
        a_job(phase="Restarting", reason="Error", failure={"pod": "a", "exception": "FileNotFoundError: a"})
    )
    assert advice("Restarting", "DeadlineExceeded") == module.OF_A_POD, "runPolicy's deadline ends the job"


@pytest.mark.parametrize(
    ("phase", "reason", "kind", "why", "words"),
    [
        ("Running", "Training", "NoProgress", "NoStep", "read the stacks of all programs in `tftj logs digits`"),
        ("Running", "Training", "NoGPU", "NoGPU", "use an image with NVIDIA's CUDA libraries"),
        ("Succeeded", "ChiefSucceeded", "TrainsAlone", "TrainsAlone", "build the strategy from the TF_CONFIG"),
        ("Starting", "Stopping", "ChangeRefused", "ChangeRefused", "change the webhook or policy"),
        ("Pending", "", "Unreadable", "SpecUnreadable", "run an operator of the version"),
        ("Pending", "", "ReconcileError", "Forbidden", "give the operator the right that the message names"),
        ("Running", "Training", "StorageShared", "StorageInUse", "wait for the other job, or give this one another"),
        ("Running", "Training", "ResumedTrainingDiffers", "ResumedTrainingDiffers", ""),
    ],
)
def test_a_warning_has_its_advice_where_the_reason_has_none(
    phase: str, reason: str, kind: str, why: str, words: str
) -> None:
    time = "2026-01-02T03:40:00Z"
    condition = {"type": kind, "status": "True", "reason": why, "lastTransitionTime": time, "message": "m"}
    told = advice_for(a_job(phase=phase, reason=reason, conditions=[condition]))
    assert told.startswith(words) and bool(told) == bool(words)


@pytest.mark.parametrize("text", WORDS)
def test_its_fields_their_values_and_its_commands_exist(text: str) -> None:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, value in re.findall(r"\b(spec(?:\.\w+)+)(?:: (\w+))?", text):
        found = schema
        for name in path.split("."):
            found = found["properties"][name]
        assert not value or (value in found.get("enum", [value]) and (found["type"] != "integer" or int(value)))
    for command in re.findall(r"`tftj ([^`]+)`", text):
        verb, *words = command.replace(" N", " 3").split()
        typer.main.get_command(app).commands[verb].make_context(verb, words)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", WORDS)
def test_it_names_a_field_a_command_or_an_object_or_says_to_wait(text: str) -> None:
    assert re.search(r"`|\bspec\.|^wait\b|message|Secret|batch size|data set|strategy", text)
    assert not re.search(r"correct the program|cause in the message", text)


def test_there_is_advice_for_every_reason_with_which_a_job_fails_or_waits() -> None:
    page = (REPOSITORY / "docs" / "status.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in page.splitlines() if row.startswith("| `")]
    failed = [name.strip("` ") for row in rows if row[2].strip().startswith("Failed") for name in row[1].split(",")]
    assert len(failed) > 10
    assert [name for name in failed if advice("Failed", name) == FALLBACK] == []
    restarting = [
        name.strip("` ")
        for row in rows
        if row[2].strip().startswith(("Starting", "Restarting"))
        for name in row[1].split(",")
        if row[3].strip()[:10] != "reasons of"
    ]
    assert len(restarting) > 15
    assert [name for name in restarting if advice("Restarting", name) == FALLBACK] == []
    assert advice("Failed", "SomethingNew") == FALLBACK
    assert advice("Running", "Training") == "" and "doctor" in advice("Pending", "")
