"""The jobs of a campaign, and the reading of what their programs have noted."""

from pathlib import Path

import pytest

from tests.campaign import jobs
from tests.campaign.kinds import JOBS
from tests.campaign.oracle import Process


@pytest.mark.parametrize("kind", JOBS)
def test_each_kind_is_an_example_that_runs_the_program_of_the_campaign(kind: str) -> None:
    job = jobs.manifest("a-job", kind, "an-image", "disk-0")
    [container] = job["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[:2] == ["python", "/program/program.py"]
    assert words[words.index("--epochs") + 1] == str(JOBS[kind].epochs)
    assert container["env"][0] == {"name": "CAMPAIGN_RECORDS", "value": "/records/a-job"}
    assert job["spec"]["storage"]["volume"] == {"persistentVolumeClaim": {"claimName": "disk-0"}}
    assert (job["spec"]["replicaSpecs"]["worker"]["replicas"], container["image"]) == (JOBS[kind].workers, "an-image")


def test_what_a_program_has_noted_is_read_up_to_the_line_under_way_when_it_was_killed(tmp_path: Path) -> None:
    start = '{"at": 5.0, "pod": "w-0", "attempt": 1, "round": 2}\n'
    (tmp_path / "w-0.b.jsonl").write_text(start + '{"at": 6.0, "step": 1}\n{"at": 7.0, "step": 2}\n{"at": 8.')
    (tmp_path / "w-1.a.jsonl").write_text('{"at": 4.0, "pod": "w-1", "attempt": 1, "round": 2}\n')
    (tmp_path / "w-1.c.jsonl").write_text("")
    assert jobs.processes(tmp_path) == [
        Process("w-1", 1, 2, 4.0, []),
        Process("w-0", 1, 2, 5.0, [(6.0, 1), (7.0, 2)]),
    ]
