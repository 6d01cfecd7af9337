"""How far a reader has to follow a failure: a failed worker crosses few files of the planner, and no call is deep."""

import sys
from pathlib import Path
from types import FrameType

import pytest

import tftraining_operator.plan
from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import IMAGE, SimulatedCluster
from tftraining_operator.plan.planner import plan

FOLDER = Path(tftraining_operator.plan.__file__).parent
# Parts of a function, not functions that a reader has to find.
PARTS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")
FILES, DEPTH = 12, 8


def calls_of(job: JobBuilder) -> list[list[str]]:
    """The calls in the planner for the pass after worker-1 has failed: each from the outermost function to the one
    called, as `file:function`."""
    cluster = SimulatedCluster(job).run().exit("worker-1")
    calls: list[list[str]] = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if event != "call" or frame is None or Path(frame.f_code.co_filename).parent != FOLDER:
            return
        stack = []
        while frame is not None:
            code = frame.f_code
            if Path(code.co_filename).parent == FOLDER and code.co_name not in PARTS:
                stack.append(f"{Path(code.co_filename).name}:{code.co_name}")
            frame = frame.f_back
        calls.append(stack[::-1])

    seen, observed = cluster.observe(cluster.api.snapshot())
    sys.setprofile(note)
    try:
        step = plan(seen, observed, cluster.now, IMAGE)
    finally:
        sys.setprofile(None)
    assert step.status.phase == "Restarting"
    return calls


@pytest.mark.parametrize("job", [a_job(), a_job().in_place()], ids=["Recreate", "InPlace"])
def test_a_failed_worker_crosses_few_files_and_no_call_is_deep(job: JobBuilder) -> None:
    calls = calls_of(job)
    files = {call[-1].partition(":")[0] for call in calls if call}
    assert 0 < len(files) <= FILES, sorted(files)
    deepest = max(calls, key=len)
    assert len(deepest) <= DEPTH, deepest
