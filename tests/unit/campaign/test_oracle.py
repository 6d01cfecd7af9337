"""The oracle of a campaign: a job that went well has no complaints, and each thing that goes wrong has its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.campaign.kinds import JOBS
from tests.campaign.oracle import Evidence, Hit, Process, judge, of_job, sure

EPOCHS, LAST = JOBS["fit"].epochs, JOBS["fit"].steps
HALF = LAST // 2


def _status(**fields: Any) -> dict[str, Any]:
    return {"phase": "Running", "ready": "2/2", "attempt": 0, "restarts": {"counted": 0}, **fields}


def _process(pod: str, round_: int, began: float, steps: range, attempt: int = 0) -> Process:
    made = [(began + index + 1, step) for index, step in enumerate(steps)]
    return Process(pod, attempt, round_, began, made)


def _hit(kind: str, job: str = "fit-0-1", began: float = 100.0, target: str = "fit-0-1-worker-1") -> Hit:
    return Hit("0-1", kind, job, target, began, began)


def _killed() -> Evidence:
    """A job whose program was killed in the middle of the training, and that resumed ten steps before."""
    first, second = range(1, HALF + 1), range(HALF - 9, LAST + 1)
    processes = [_process(pod, 1, 0.0, first) for pod in ("w-0", "w-1")]
    processes += [_process(pod, 2, 1000.0, second) for pod in ("w-0", "w-1")]
    goodput = {"seconds": {"trained": 1990.5, "inPlace": 9.0}}
    ended = _status(
        phase="Succeeded",
        completionTime="1970-01-01T00:33:30Z",
        goodput=goodput,
        restarts={"counted": 1, "inPlace": 1, "disruptions": 0, "recreated": 0},
    )
    result = {"epochs": EPOCHS, "accuracy": 0.95}
    hits = [_hit("program-killed", began=float(HALF), target="w-1"), _hit("operator-killed")]
    evidence = Evidence("fit-0-1", "fit", 0.0, 2000.0, [_status(), ended], processes, hits, result)
    return replace(evidence, created="1970-01-01T00:00:10Z", seen=2010.0)


def test_a_job_that_was_hit_and_went_on_as_it_should_has_no_complaints() -> None:
    assert judge(_killed()) == []


def _failed(evidence: Evidence) -> None:
    evidence.statuses[-1] = _status(phase="Failed", restarts=evidence.end["restarts"])


def _no_result(evidence: Evidence) -> None:
    evidence.result = None


def _inaccurate(evidence: Evidence) -> None:
    evidence.result = {"epochs": EPOCHS, "accuracy": 0.5}


def _short(evidence: Evidence) -> None:
    evidence.processes[2:] = [_process(pod, 2, 1000.0, range(HALF - 9, LAST)) for pod in ("w-0", "w-1")]


def _skipping(evidence: Evidence) -> None:
    evidence.processes[2:] = [_process(pod, 2, 1000.0, range(HALF + 3, LAST + 1)) for pod in ("w-0", "w-1")]


def _jumping(evidence: Evidence) -> None:
    process = evidence.processes[0]
    evidence.processes[0] = Process(process.pod, 0, 1, 0.0, [*process.steps[:5], *process.steps[6:]])


def _back_inside_a_round(evidence: Evidence) -> None:
    process = evidence.processes[0]
    evidence.processes[0] = Process(process.pod, 0, 1, 0.0, [*process.steps, (999.0, 1)])


def _two_rounds(evidence: Evidence) -> None:
    evidence.processes[1] = _process("w-1", 1, 800.0, range(1, HALF + 1))


def _two_of_a_member(evidence: Evidence) -> None:
    evidence.processes.append(_process("w-0", 2, 1100.0, range(HALF + 90, LAST + 1)))


def _charged_too_much(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "restarts": {**evidence.end["restarts"], "counted": 2}}


def _charged_too_little(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "restarts": {"counted": 0, "inPlace": 1}}


def _a_disruption_too_few(evidence: Evidence) -> None:
    evidence.hits = [_hit("pod-evicted", began=float(HALF), target="w-0")]
    evidence.statuses[-1] = {**evidence.end, "restarts": {"counted": 0, "recreated": 1}}


def _a_disruption_too_many(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "restarts": {**evidence.end["restarts"], "disruptions": 1}}


def _uncounted(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "restarts": {"counted": 0}}


def _restarted_by_the_operator(evidence: Evidence) -> None:
    evidence.hits = [_hit("operator-killed"), _hit("etcd-killed")]


def _fault_of_the_operator(evidence: Evidence) -> None:
    condition = {"type": "ReconcileError", "status": "True", "reason": "InternalError", "message": "KeyError"}
    evidence.statuses.insert(1, _status(conditions=[condition]))


def _temporary(evidence: Evidence) -> None:
    evidence.temporary = ["fit-0-1/workertemp_1"]


def _left(evidence: Evidence) -> None:
    evidence.left = ["secret/fit-0-1-launcher-1234"]


def _end_that_is_none(evidence: Evidence) -> None:
    evidence.statuses.insert(1, _status(phase="Failed"))


def _seconds_lost(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "goodput": {"seconds": {"trained": 1969.0, "inPlace": 9.0}}}


def _seconds_twice(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "goodput": {"seconds": {"trained": 1999.0, "inPlace": 23.0}}}


def _end_ahead(evidence: Evidence) -> None:
    evidence.statuses[-1] = {**evidence.end, "completionTime": "1970-01-01T01:33:30Z"}


WRONG: dict[str, Callable[[Evidence], None]] = {
    "the job is Failed at the end": _failed,
    "wrote no result": _no_result,
    "the result is wrong": _inaccurate,
    f"the job ended after step {LAST - 1} of {LAST}": _short,
    f"with step {HALF + 3}, and step {HALF} was the last one before": _skipping,
    "made step 7 after step 5": _jumping,
    "made step 1 after step": _back_inside_a_round,
    "two rounds at once: w-1 made": _two_rounds,
    "two rounds at once: w-0 made": _two_of_a_member,
    "2 restarts are charged, and 1 were caused": _charged_too_much,
    "restarts.counted is 0, and surely 1 were caused: program-killed (w-1)": _charged_too_little,
    "restarts.disruptions is 0, and surely 1 were caused: pod-evicted (w-0)": _a_disruption_too_few,
    "1 disruptions are counted, and 0 were caused": _a_disruption_too_many,
    "the status counts no restart": _uncounted,
    "and nothing but this was done": _restarted_by_the_operator,
    "the operator has a fault of its own": _fault_of_the_operator,
    "status.goodput adds up to 1978.0 s, and the job took 2000 s": _seconds_lost,
    "status.goodput adds up to 2022.0 s, and the job took 2000 s": _seconds_twice,
    "its end is told for 1970-01-01 01:33:30": _end_ahead,
    "temporary directories are left": _temporary,
    "objects are left": _left,
    "an end is not final": _end_that_is_none,
}


@pytest.mark.parametrize("words", WRONG)
def test_each_wrong_is_told(words: str) -> None:
    evidence = _killed()
    WRONG[words](evidence)
    assert any(words in complaint for complaint in judge(evidence)), judge(evidence)


def test_a_step_that_is_noted_late_by_a_program_that_stood_still_is_no_second_round() -> None:
    evidence = _killed()
    *made, (_, last) = evidence.processes[1].steps
    evidence.processes[1] = Process("w-1", 0, 1, 0.0, [*made, (1005.0, last)])
    assert judge(evidence) == []


@pytest.mark.parametrize(
    "change",
    [
        {"other": _hit("node-paused", began=HALF + 100.0)},  # before the successor has started
        {"other": _hit("pod-deleted", began=HALF - 20.0)},  # its effect may come only now
        {"target": ""},  # it found nothing
        {"began": 950.0},  # the program has made no step for long
        {"target": "w-2"},  # which made no steps
    ],
    ids=str,
)
def test_a_fault_that_may_have_had_no_effect_of_its_own_counts_not_surely(change: dict[str, Any]) -> None:
    evidence = _killed()
    others = [other] if (other := change.pop("other", None)) else []
    evidence.hits = [replace(evidence.hits[0], **change), *others]
    assert sure(evidence, "counted") == []


def test_a_fault_that_alone_ends_a_program_counts_surely() -> None:
    evidence = _killed()
    assert sure(evidence, "counted") == [evidence.hits[0]]


def test_rounds_begin_again_with_each_attempt() -> None:
    evidence = _killed()
    evidence.processes[2:] = [_process(pod, 1, 1000.0, range(HALF - 9, LAST + 1), attempt=1) for pod in ("w-0", "w-1")]
    assert judge(evidence) == []


def test_rounds_begin_again_where_all_launchers_were_replaced() -> None:
    evidence = _killed()
    evidence.processes[2:] = [_process(pod, 1, 1000.0, range(HALF - 9, LAST + 1)) for pod in ("w-0", "w-1")]
    assert judge(evidence) == []


def test_a_fault_on_a_job_concerns_only_this_job_and_one_on_a_node_all_that_ran_then() -> None:
    own, other, node, before = (
        _hit("pod-deleted"),
        _hit("pod-deleted", job="ps-1-1"),
        _hit("node-off", job="ps-1-1"),
        _hit("node-off", job="ps-1-1", began=-500.0),
    )
    assert of_job([own, other, node, before], "fit-0-1", 0.0, 2000.0) == [own, node]
