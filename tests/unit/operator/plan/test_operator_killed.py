"""Row: upgrades. The operator is killed after any single write, and the next one comes at once or after a while: it
gets to the same end, with the same status, pods and counts and not one restart more, whatever the job was doing.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.apiserver import Snapshot
from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import READ_ONLY, SimulatedCluster, Write
from tftraining_api.manifests.network_policy import OperatorSelector

Act = Callable[[SimulatedCluster], object]
NewJob = Callable[[], JobBuilder]
WORKERS = "replicaSpecs.worker.replicas"
OTHER: dict[str, Any] = {"spec": {"containers": [{"name": "tensorflow", "image": "trainer:2", "command": ["python"]}]}}
NO_WRITES = (READ_ONLY, "podgroup/")  # asked for in each pass; one that is there is not made again
CLEANED = '{"removed": 2}'


class Killed(Exception):
    """The operator's process is gone."""


class Doomed(SimulatedCluster):
    """Its operator is killed after its write of that number; `idle` is whether the next one takes a while to come.
    Killed after write 0 it is down whenever something happens. With `always` each one asks the launchers and is
    killed after its first write.
    """

    kill_after = 0
    always = False
    idle = False
    written = 0

    def step(self, seen: Snapshot | None = None, writes: int | None = None, soon: bool = False) -> bool:
        try:
            return super().step(seen, writes, soon)
        except Killed:
            self.down()
            return True

    def down(self) -> None:
        """The operator forgets everything, and others act meanwhile if it takes its time."""
        self.forget()
        if self.always and self.launched:
            self.launcher_report = self.launchers.last_report()
        while self.idle and self._others_act():
            pass

    def _carry_out(self, write: Write) -> bool:
        going_on = super()._carry_out(write)
        self.written += not write[0].startswith(READ_ONLY)
        if self.written == self.kill_after or (self.always and not write[0].startswith(NO_WRITES)):
            raise Killed
        return going_on

    def _others_act(self) -> bool:
        removed, started = self.kubelet.remove_deleted(), self.kubelet.start_all(self.launched)
        return bool(removed or started or (self.launched and self.launchers.tick()))


# --- what a job may be doing


def edit(*edits: tuple[str, Any]) -> Act:
    def act(cluster: SimulatedCluster) -> None:
        for path, value in edits:
            cluster.api.edit(path, value)

    return act


def delete(*pods: str) -> Act:
    return lambda cluster: cluster.delete(*pods)


def fail(*pods: str) -> Act:
    return lambda cluster: cluster.exit(*pods, code=137, reason="OOMKilled")


def vanish(*pods: str) -> Act:
    return lambda cluster: cluster.kubelet.force_delete(*(cluster.name(each) for each in pods))


def crash(cluster: SimulatedCluster) -> None:
    """The program of a worker fails."""
    if cluster.launched:
        cluster.launchers.crash("worker-1")
    else:
        cluster.exit("worker-1")


def finish(*members: str) -> Act:
    """Programs have done their work."""

    def act(cluster: SimulatedCluster) -> None:
        if cluster.launched:
            cluster.launchers.finish(*members)
        else:
            cluster.exit(*members, code=0)

    return act


def lose_node(cluster: SimulatedCluster) -> None:
    cluster.nodes.add("node-b")
    cluster.nodes.power_off("node-a")
    cluster.wait(61)


def later(seconds: float) -> Act:
    return lambda cluster: cluster.wait(seconds)


def cleaned(cluster: SimulatedCluster) -> None:
    if "cleanup" in cluster.pods:
        cluster.exit("cleanup", code=0, message=CLEANED)


def lose_key(cluster: SimulatedCluster) -> None:
    cluster.api.secrets.clear()


SUSPENDED, RESUMED = edit(("runPolicy.suspend", True)), edit(("runPolicy.suspend", False))
UNSEEN = edit(("runPolicy.suspend", True), ("template", OTHER), ("runPolicy.suspend", False))
# What happens one after the other; all comes to rest after each.
STORIES: dict[str, tuple[Act, ...]] = {
    "a program fails": (crash,),
    "a pod fails": (fail("worker-1"),),
    "a pod is deleted": (delete("worker-1"),),
    "the chief is deleted": (delete("worker-0"),),
    "two pods are deleted": (delete("worker-1", "worker-2"),),
    "a pod fails and one is deleted": (fail("worker-1"), delete("worker-2")),
    "all vanish": (vanish("worker-0", "worker-1", "worker-2"),),
    "one vanishes": (vanish("worker-2"),),
    "a node is lost": (lose_node,),
    "more workers": (edit((WORKERS, 5)),),
    "fewer workers": (edit((WORKERS, 1)),),
    "more and fewer": (edit((WORKERS, 4)), edit((WORKERS, 2))),
    "fewer, and one is lost": (lambda cluster: (edit((WORKERS, 2))(cluster), delete("worker-1")(cluster)),),
    "fewer, and the chief is lost": (lambda cluster: (edit((WORKERS, 2))(cluster), delete("worker-0")(cluster)),),
    "suspended": (SUSPENDED, cleaned),
    "resumed": (SUSPENDED, cleaned, RESUMED),
    "resumed at another size": (SUSPENDED, edit((WORKERS, 2)), cleaned, RESUMED),
    "suspended in a restart": (lambda cluster: (delete("worker-1")(cluster), cluster.settle(), SUSPENDED(cluster)),),
    "recreated for its spec": (UNSEEN,),
    "told of a limit": (edit(("restartPolicy.maxRestarts", 3)),),
    "succeeds": (finish("worker-0"), cleaned),
    "fails": (crash, crash, crash, cleaned),
    "too late": (edit(("runPolicy.activeDeadlineSeconds", 60)), later(60), cleaned),
    "expires": (edit(("runPolicy.ttlSecondsAfterFinished", 60)), finish("worker-0"), cleaned, later(61)),
}
# Where there are other roles, and who is lost may be restarted alone.
BESIDE_SERVERS: dict[str, tuple[Act, ...]] = {
    "a worker is deleted": (delete("worker-1"),),
    "a worker fails": (fail("worker-1"),),
    "a server is deleted": (delete("ps-0"),),
    "the chief is deleted": (delete("chief-0"),),
    "an evaluator fails": (fail("evaluator-0"),),
    "a worker and the evaluator vanish": (vanish("worker-1", "evaluator-0"),),
    "fewer workers": (edit((WORKERS, 1)),),
    "more workers": (edit((WORKERS, 3)),),
    "succeeds": (finish("chief-0"), later(61), cleaned),
}
FINISHING: dict[str, tuple[Act, ...]] = {
    "one has finished, another is deleted": (finish("worker-0"), delete("worker-1")),
    "one has finished and is deleted": (finish("worker-1"), delete("worker-1")),
    "all finish": (finish("worker-1"), finish("worker-0", "worker-2"), cleaned),
}
# What is another matter for a gang that goes on with fewer.
SMALLER = tuple(name for name in STORIES if "delete" in name or "vanish" in name or "lost" in name or "fewer" in name)
WITHOUT_KEY: dict[str, tuple[Act, ...]] = {
    "a pod is deleted": (lose_key, delete("worker-1")),
    "one vanishes": (lose_key, vanish("worker-2")),
    "more workers": (lose_key, edit((WORKERS, 5))),
}
QUEUED = ("a pod is deleted", "one vanishes", "more and fewer", "resumed at another size", "succeeds")


def a_parameter_server_job(new_job: NewJob) -> JobBuilder:
    return new_job().chief().workers(2).role("ps").role("evaluator").storage()


def all_workers(new_job: NewJob) -> JobBuilder:
    return new_job().workers(3).storage().set("successPolicy", "AllWorkers")


def queued(new_job: NewJob) -> JobBuilder:
    return new_job().workers(3).storage().labelled(**{"kueue.x_k8s.io__queue_name": "research"})


def grouped(new_job: NewJob) -> JobBuilder:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    return new_job().workers(3).storage().set("runPolicy.scheduling", {"podGroup": group})


def some(*names: str) -> dict[str, tuple[Act, ...]]:
    return {name: STORIES[name] for name in names}


SHAPES: dict[str, tuple[JobBuilder, dict[str, tuple[Act, ...]]]] = {
    "Recreate": (a_job().workers(3).storage().max_restarts(2), STORIES),
    "InPlace": (a_launched_job().workers(3).storage().max_restarts(2), STORIES),
    "minReplicas": (a_launched_job().workers(3).storage().max_restarts(2).set("minReplicas", 1), some(*SMALLER)),
}
SHAPES["InPlace, without key"] = (SHAPES["InPlace"][0], WITHOUT_KEY)
for mode, new_job in (("Recreate", a_job), ("InPlace", a_launched_job)):
    SHAPES[f"{mode}, servers"] = (a_parameter_server_job(new_job), BESIDE_SERVERS)
    SHAPES[f"{mode}, AllWorkers"] = (all_workers(new_job), FINISHING)
    SHAPES[f"{mode}, queued"] = (queued(new_job), some(*QUEUED))
    SHAPES[f"{mode}, grouped"] = (grouped(new_job), some("more and fewer", "resumed at another size"))


def prepared(job: JobBuilder, policy: bool = True, always: bool = False) -> Doomed:
    """A gang that trains, some epochs from its start."""
    cluster = Doomed(job)
    cluster.always = always
    cluster.operator_selector = OperatorSelector("tftraining-system", {"app": "operator"}) if policy else None
    cluster.run()
    if cluster.launched:
        cluster.launchers.advance(3, 210)
    cluster.wait(15).run()
    cluster.written = 0
    return cluster


def told(cluster: Doomed, story: tuple[Act, ...]) -> Doomed:
    for act in story:
        act(cluster)
        if cluster.idle and cluster.kill_after == 0:
            cluster.down()
        cluster.run_timers()
    return cluster


def end_of(cluster: SimulatedCluster) -> dict[str, Any]:
    """All that counts of where a story ends."""
    status = cluster.status
    return {
        "phase": (status.phase, status.reason, status.ready, status.message),
        "attempt": status.attempt,
        "restarts": status.restarts,
        "last restart": status.last_restart,
        "replicas": status.replicas,
        "conditions": {each.type: (each.status, each.reason, each.message) for each in status.conditions},
        "failure": status.failure,
        "progress": status.progress,
        "cleanup": status.cleanup,
        "completed": status.completion_time,
        "pods": cluster.pods,
        "companions": (sorted(cluster.api.auxiliary_objects), sorted(cluster.api.services), cluster.api.gone),
        "rounds": cluster.launchers.round,
        "timer": cluster.timer,
    }


def deaths(cluster: Doomed, story: tuple[Act, ...], writes: int, every: int) -> Iterator[Doomed]:
    """The story with each death (or one of so many) that the operator can die in it, as prepared in `cluster`."""
    for idle in (False, True):
        for number in range(1 - idle, writes + 1, every):
            doomed = copy.deepcopy(cluster)
            doomed.kill_after, doomed.idle = number, idle
            yield told(doomed, story)


def without_meanwhile(end: dict[str, Any]) -> dict[str, Any]:
    """The same without what launchers may do by themselves while no operator is there: go on as a smaller gang."""
    restarts = msgspec.structs.replace(end["restarts"], in_place=0, without_progress=0)
    kept = {name: value for name, value in end.items() if name not in ("rounds", "last restart", "conditions")}
    return kept | {"restarts": restarts, "phase": end["phase"][:3]}


@pytest.mark.parametrize(("shape", "name"), [(shape, name) for shape, (_, told) in SHAPES.items() for name in told])
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow_fault)])
def test_killed_after_any_write_the_next_operator_comes_to_the_same_end(shape: str, name: str, every: int) -> None:
    job, stories = SHAPES[shape]
    cluster = prepared(job)
    undisturbed = told(copy.deepcopy(cluster), stories[name])
    expected = end_of(undisturbed)
    for doomed in deaths(cluster, stories[name], undisturbed.written, every):
        counts = without_meanwhile if doomed.idle and shape == "minReplicas" else dict
        what = f"killed after write {doomed.kill_after}{', idle' * doomed.idle}: {doomed.api.writes}"
        assert counts(end_of(doomed)) == counts(expected), what


@pytest.mark.parametrize(("shape", "name"), [(shape, name) for shape, (_, told) in SHAPES.items() for name in told])
def test_operators_that_each_live_for_one_write_come_to_the_same_end(shape: str, name: str) -> None:
    """Without a network policy: each pass asks for its deletion again, so a life of one write would do nothing else."""
    job, stories = SHAPES[shape]
    expected = end_of(told(prepared(job, policy=False), stories[name]))
    assert end_of(told(prepared(job, policy=False, always=True), stories[name])) == expected
