"""Real launchers that the operator of a real API server listens to: how soon a restart in place is in the status.

Their pods are the test's: nothing but the launchers tells of a restart, as in a cluster where a probe of every two
seconds sees nothing of one that takes less.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.support.control_plane.chief_launcher import PORT, chief_launcher, own_network
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.launchers.gang import LocalGang

IN_PLACE = {"spec__restartPolicy__mode": "InPlace"}
# An operator that asked every two seconds, and ever less often while there is no news, would ask after 9 s of calm 5 s
# later.
CALM_SECONDS, SOON = 9.0, 4.0


@contextmanager
def training(new_job: NewJob, place: Path, ip: str) -> Iterator[tuple[TrainingJob, LocalGang]]:
    """A job that trains, with the launchers of its two workers; the chief's is where the operator looks for it."""
    job = new_job(**IN_PLACE)
    pods = job.wait_for_pods(attempt=1)
    told = {"namespace": job.namespace, "name": job.name, "uid": job.raw()["metadata"]["uid"]}
    with LocalGang(place, {"worker": 2}, "--epochs", "10000", "--steps", "2", job=told) as gang:
        gang.hosts["worker-0"], gang.ports["worker-0"] = ip, PORT
        gang.start()
        job.place_pod("job-worker-0", ip)
        for name in pods:
            job.run_pod(name)
        job.wait_for("Running", ready="2/2")
        yield job, gang


def is_counted(job: TrainingJob, number: int) -> bool:
    return bool(job.status()["restarts"].get("counted") == number)


def test_a_restart_in_place_is_in_the_status_before_a_probe_would_have_seen_it(
    new_job: NewJob, operator: OperatorProcess, tmp_path: Path
) -> None:
    with training(new_job, tmp_path, f"{own_network()}.251") as (job, gang):
        gang.wait_for_phase("Training", 1)
        time.sleep(CALM_SECONDS)
        gang.kill_program("worker-1")
        killed = time.monotonic()
        wait_until(partial(is_counted, job, 1), "the charge")
        assert time.monotonic() - killed < SOON
        status = job.wait_for("Running")
        assert status["restarts"].items() >= {"counted": 1, "inPlace": 1}.items()
        assert status["message"].startswith("worker-1 was killed (SIGKILL); resumed from epoch ")


def test_a_launcher_that_cannot_be_waited_for_is_heard_as_before(new_job: NewJob, operator: OperatorProcess) -> None:
    """Pods keep the launcher that they were made with when the operator is upgraded."""
    with ExitStack() as stack:
        launcher = stack.enter_context(chief_launcher())
        job = new_job(**IN_PLACE)
        pods = job.wait_for_pods(attempt=1)
        job.place_pod("job-worker-0", launcher.ip)
        for name in pods:
            job.run_pod(name)
        job.wait_for("Running", ready="2/2")
        launcher.say("Restarting", ledger={"processFailures": 1})
        job.wait_for("Restarting")
        assert job.status()["restarts"]["counted"] == 1
        assert launcher.paths == {"/status"}, "it is asked as it always was"
