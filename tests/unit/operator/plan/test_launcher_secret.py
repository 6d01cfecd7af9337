"""Row: disruptions. Somebody deletes the Secret by which the launchers know each other: nobody misses it until a new
pod is needed; then all are recreated with a new key, once, announced and charged to nobody.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend

SECRET = "mnist-launcher-job-uid"
Loss = Callable[[SimulatedCluster], object]
LOSSES: dict[str, Loss] = {
    "a worker": lambda cluster: cluster.delete("worker-1"),
    "the chief": lambda cluster: cluster.delete("worker-0"),
    "one by force": lambda cluster: cluster.kubelet.force_delete("mnist-worker-1"),
    "a failed one": lambda cluster: cluster.exit("worker-1", code=137, reason="OOMKilled"),
    "the evaluator": lambda cluster: cluster.exit("evaluator-0"),
    "another size": lambda cluster: cluster.api.edit("replicaSpecs.worker.replicas", 4),
}


def without_key(job: JobBuilder) -> SimulatedCluster:
    """A gang that trains, and whose Secret was deleted."""
    cluster = SimulatedCluster(job.workers(3).role("evaluator").storage()).run()
    cluster.events.clear()
    del cluster.api.secrets[SECRET]
    return cluster


def test_nobody_misses_it_as_long_as_no_pod_is_made() -> None:
    cluster = without_key(a_launched_job())
    written = len(cluster.api.writes)
    cluster.wait(1000).run_timers()
    cluster.launchers.crash("worker-1")
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.launchers.round) == ("Running", 1, 2)
    assert set(cluster.api.writes[written:]) == {"status"}
    assert SECRET not in cluster.api.secrets


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_next_pod_that_is_made_is_one_restart_of_all(loss: str, least: int | None) -> None:
    job = a_launched_job().max_restarts(1)
    cluster = without_key(job.set("minReplicas", least) if least else job)
    LOSSES[loss](cluster)
    cluster.run_timers()
    status, size = cluster.status, 4 if loss == "another size" else 3
    assert (status.phase, status.ready, status.attempt) == ("Running", f"{size}/{size}", 2)
    assert SECRET in cluster.api.secrets and len(set(cluster.kubelet.launcher_secrets.values())) == 2
    assert status.restarts.counted == (loss == "a failed one")
    told = [note for note in cluster.events if note.reason == "KeyLost"]
    assert [note.type for note in told] == ["Normal"]
    assert f"secret/{SECRET}, the key of the launchers, was deleted" in told[0].message
    assert "evaluator-0" in cluster.pods and cluster.attempts() == {"2"}
    assert not cluster.step()


def test_it_is_made_anew_quietly_where_nobody_has_read_it() -> None:
    cluster = SimulatedCluster(a_launched_job())
    cluster.step()
    cluster.step(writes=1)
    assert (cluster.api.writes[-1], cluster.pods) == (f"create secret/{SECRET}", [])
    del cluster.api.secrets[SECRET]
    assert cluster.run().status.ready == "2/2"
    assert (cluster.status.attempt, cluster.status.restarts.disruptions) == (1, 0)


def test_pods_that_are_on_their_way_are_not_kept_waiting_for_ever() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    del cluster.api.secrets[SECRET]
    assert cluster.run().status.phase == "Starting"
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "2/2", 2)


def test_a_resumed_job_has_a_new_one_anyway() -> None:
    cluster = suspend(without_key(a_launched_job())).run()
    resume(cluster).run_timers()
    assert (cluster.status.phase, cluster.status.attempt, cluster.events[-1].reason) == ("Running", 2, "Training")
    assert "KeyLost" not in {note.reason for note in cluster.events}


def test_without_launchers_there_is_none() -> None:
    cluster = SimulatedCluster(a_launched_job().set("restartPolicy.mode", "Recreate")).run()
    assert not cluster.api.secrets and not any("secret" in each for each in cluster.api.writes)
