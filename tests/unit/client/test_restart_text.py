"""The last restart in words: `tftj status`, the summary of `tftj run` and the operator say the same of it."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from tests.support.restart_messages import RESUMPTIONS
from tftraining_api.model.status import LastRestart
from tftraining_client.commands.restart_text import restart_details
from tftraining_client.local.summary import Result, summary
from tftraining_client.local.timeline import Timeline
from tftraining_operator.plan.messages import resumption

KILLED = {"time": "2026-01-01T00:00:00Z", "member": "worker-1", "message": "worker-1 was killed (SIGKILL)"}


def of_the_summary(last: LastRestart) -> str:
    """The line of the summary about the restart."""
    reported = {**KILLED, **json.loads(msgspec.json.encode(last))}
    timeline = Timeline()
    timeline.record_status({"phase": "Training", "round": 2, "lastRestart": reported}, 1.0)
    return summary("digits", Result(True, 1.0), timeline)[-1].splitlines()[-1].strip()


@pytest.mark.parametrize(("source", "epoch", "step", "words"), RESUMPTIONS)
@pytest.mark.parametrize("lost", [None, 0, 1, 30])
def test_all_tell_the_same_place_and_the_same_steps(
    source: str | None, epoch: int | None, step: int | None, words: str, lost: int | None
) -> None:
    last = LastRestart(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        pod="digits-worker-1",
        reason="Killed",
        down_seconds=1.1,
        resumed_from=source,
        resumed_from_epoch=epoch,
        resumed_from_step=step,
        lost_steps=lost,
    )
    steps = f"{lost} step" + "s" * (lost != 1)
    place = f", {words}" if words else ""
    price = f", {steps} lost" if lost is not None else ""
    assert restart_details(last) == f"digits-worker-1 Killed{place}, 1.1 s without training{price}"
    place = f"{place}, 1.1 s without training" if words else ", began again: the program reports no steps"
    price = f", {steps} lost" if lost else ""
    assert of_the_summary(last) == f"worker-1 was killed (SIGKILL){place}{price}"
    assert resumption(last).startswith(words or "resumed after")


def test_a_worker_that_restarted_alone_has_not_stopped_the_others() -> None:
    last = LastRestart(time=datetime(2026, 1, 1, tzinfo=UTC), reason="Killed", down_seconds=0.5, alone=True)
    assert restart_details(last) == "Killed, other members kept training, 0.5 s away"
    assert of_the_summary(last) == "worker-1 was killed (SIGKILL), other members kept training, 0.5 s away"
    assert resumption(last) == "restarted alone after 0.5 s; other members kept training"
