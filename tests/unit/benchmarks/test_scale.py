"""The simulated chiefs of benchmarks.scale say what the operator understands; quantiles are those of a histogram."""

import json

import pytest

from benchmarks.scale import _quantile
from benchmarks.simulated_chiefs import Chief
from tests.support.ports import free_port
from tftraining_operator.model.launcher_report import parse_report


async def test_the_report_of_a_simulated_chief_is_read_by_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.simulated_chiefs.PORT", free_port())
    chief = Chief("job", workers=3)
    for index in range(3):
        chief.change(index, is_there=True)
    assert not chief.trains, "no launcher answers yet"
    try:
        await chief.open("uid", "127.0.0.1", "job-uid")
        report = parse_report(chief._status("uid.1").encode())
        assert (report.phase, report.revision, report.progress is not None) == ("Training", "uid.1", True)
        assert report.job.uid == "job-uid"
        chief.change(2, is_there=False)
        report = parse_report(chief._status("uid.2").encode())
        assert (report.phase, json.loads(chief._status("x"))["missing"]) == ("Restarting", ["worker-2"])
        chief.change(2, is_there=True)
        report = parse_report(chief._status("uid.3").encode())
        assert report.phase == "Training" and report.ledger.in_place == 1
        assert report.last_restart is not None and report.last_restart.reason == "MemberLost"
    finally:
        await chief.close()


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    buckets = {0.001: 50.0, 0.1: 98.0, 1.0: 100.0, float("inf"): 100.0}
    assert (_quantile(buckets, 0.5), _quantile(buckets, 0.99)) == (0.001, 1.0)
    assert _quantile({0.1: 0.0, float("inf"): 9.0}, 0.99) == -1.0
