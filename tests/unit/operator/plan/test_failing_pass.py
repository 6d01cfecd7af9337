"""When the condition ReconcileError is written: not for a single error, and never so often that passes get hot."""

from datetime import timedelta

import msgspec
import pytest

from tests.unit.operator.cluster.test_refused_creations import NOW
from tftraining_api.model.status import Condition, Status
from tftraining_operator.plan.failing_pass import RECONCILE_ERROR, failing, reason_of

WHY = ("ServerError", "500 InternalError: etcd is away")


def test_the_third_failing_pass_in_a_row_writes_the_condition_and_then_every_fifth() -> None:
    written = [failures for failures in range(1, 20) if failing(Status(), failures, WHY, NOW) is not None]
    assert written == [3, 8, 13, 18]


def test_the_same_error_is_not_written_again_and_another_one_keeps_the_time_of_the_first() -> None:
    first = failing(Status(), 3, WHY, NOW)
    assert isinstance(first, Condition) and (first.type, first.status, first.reason) == (
        RECONCILE_ERROR,
        "True",
        "ServerError",
    )
    status, later = Status(conditions=(first,)), NOW + timedelta(minutes=1)
    assert failing(status, 8, WHY, later) is None
    other = failing(status, 8, ("NoAnswer", "timeout"), later)
    assert other == msgspec.structs.replace(first, reason="NoAnswer", message="timeout")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "InternalError"),
        (0, "NoAnswer"),
        (403, "Forbidden"),
        (429, "TooManyRequests"),
        (500, "ServerError"),
        (504, "ServerError"),
        (422, "UnexpectedAnswer"),
        (200, "UnexpectedAnswer"),
    ],
)
def test_the_reason_is_one_of_a_few(code: int | None, reason: str) -> None:
    assert reason_of(code) == reason
