"""The last line of a campaign."""

from tests.campaign.oracle import Evidence, Hit, Process, Verdict
from tests.campaign.report import report

HITS = [
    Hit("0-1", "pod-deleted", "fit-0-1", "fit-0-1-worker-1", 1.0, 1.1),
    Hit("0-2", "scaled", "fit-0-1", "", 2.0, 2.1),
    Hit("0-3", "pod-deleted", "ps-1-1", "ps-1-1-ps-0", 3.0, 3.1),
]


def _verdict(job: str, *complaints: str) -> Verdict:
    processes = [Process(f"{job}-worker-0", 0, number, 0.0) for number in (1, 1, 2)]
    statuses = [{}, {"reason": "Training"}, {"reason": "WaitingForQuota"}, {"reason": "Training"}]
    return Verdict(Evidence(job, job.partition("-")[0], 0.0, 9.0, statuses, processes), [*complaints])


def test_what_was_done_is_counted_by_kind() -> None:
    told = report(7, 3.0, HITS, [_verdict("fit-0-1"), _verdict("ps-1-1")], "folder")
    assert (told["seed"], told["verdict"], told["faults"], told["restarts"]) == (7, "right", 2, 2)
    assert told["faults_by_kind"] == {"pod-deleted": 2}
    assert told["missed_by_kind"] == {"scaled": 1}
    assert told["reasons"] == {"Training": 2, "WaitingForQuota": 2}
    assert told["jobs_by_kind"] == {"fit": 1, "ps": 1}
    assert "again" not in told


def test_a_wrong_job_is_named_with_the_command_that_repeats_the_campaign() -> None:
    told = report(7, 3.0, HITS, [_verdict("fit-0-1", "it is wrong"), _verdict("ps-1-1")], "folder")
    assert (told["verdict"], told["complaints"]) == ("wrong", {"fit-0-1": ["it is wrong"]})
    assert (told["evidence"], told["again"]) == ("folder", "make campaign SEED=7 MINUTES=3")


def test_a_campaign_without_a_job_is_not_right() -> None:
    assert report(7, 3.0, [], [], "folder")["verdict"] == "wrong"
