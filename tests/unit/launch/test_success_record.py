"""The record of a success in a bucket: what the helper's answer means. tests/processes/launch/test_bucket.py has a real
bucket."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import pytest

from tftraining.launch.process.helpers import HelperError
from tftraining.launch.success_record import BucketRecord

PLACE = "gs://bucket/team/job"


class Bucket:
    """The helper process, with an answer for the next call."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls: list[Sequence[str]] = []
        self.log: list[str] = []
        self.record = BucketRecord(PLACE, "uid", ["sh", "-c", "x"], {"A": "b"}, self.run, self.log.append)

    async def run(self, command: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
        self.calls.append(command)
        assert env["A"] == "b" and env["CUDA_VISIBLE_DEVICES"] == "-1" and seconds > 0
        if isinstance(self.answer, Exception):
            raise self.answer
        return f"a line of the user's sitecustomize\n{json.dumps(self.answer)}"


async def test_only_the_job_that_wrote_a_success_reads_it() -> None:
    bucket = Bucket({"text": None})
    await bucket.record.write()
    python, _, action, uri, text = bucket.calls[0]
    assert (python, action, uri) == (sys.executable, "write", f"{PLACE}/.tftraining-verdict.json")
    bucket.answer = {"text": text}
    found = await bucket.record.read()
    assert found is not None and found.reason == "AlreadySucceeded" and uri in found.message
    bucket.answer = {"text": text.replace("uid", "another")}
    assert await bucket.record.read() is None
    assert bucket.log == []


async def test_nothing_is_recorded_in_an_empty_bucket() -> None:
    bucket = Bucket({"text": None})
    assert await bucket.record.read() is None
    assert bucket.log == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"error": "403: the caller has no permission"}, "403: the caller has no permission"),
        (HelperError("no answer within 30 s"), "no answer within 30 s"),
        ([], "[]"),
    ],
)
async def test_a_bucket_that_refuses_or_hangs_is_told_and_is_no_success(answer: object, problem: str) -> None:
    bucket = Bucket(answer)
    assert await bucket.record.read() is None
    assert bucket.log == [f"tftraining: cannot read from {PLACE} whether the job has succeeded before: {problem}"]
    with pytest.raises(OSError) as told:
        await bucket.record.write()
    assert told.value.strerror == problem
