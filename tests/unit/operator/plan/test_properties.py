"""Any sequence of faults and observations: the invariants hold at each pass, and when the faults stop the job ends.

The invariants themselves are in `invariants.py` (each plan) and in `simulation.py` (what really exists when a pod is
made). The examples are the same in every run; MODEL_EXAMPLES asks for more of them than `make test` has time for.
"""

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.simulated_cluster.apiserver import Snapshot
from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.roles import GANG_ROLES
from tftraining_api.model.indexes import unpack
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import QUEUE_GROUP, member_of
from tftraining_operator.model.node import parse_node, steady_since
from tftraining_operator.model.observed import owned_by
from tftraining_operator.plan.goodput import CAUSES_OF

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "20"))
PROFILE = settings(derandomize=True, database=None, max_examples=EXAMPLES, stateful_step_count=30)
STORMY = settings(PROFILE, max_examples=EXAMPLES * 5 // 3)
ANY = st.integers(0, 7)
NODES = st.sampled_from(["node-a", "node-b", "node-c", "node-d"])
GRACE = st.sampled_from([0, 5, 30])
RULES: list[list[dict[str, Any]]] = [[{"action": "Ignore", "onExitCodes": [2]}], [{"action": "FailJob", "role": "ps"}]]
# What may change while a job runs, with values that matter within the time that passes here.
LIMITS: dict[str, list[Any]] = {
    "restartPolicy.maxRestarts": [0, 1, 5],
    "restartPolicy.sameFailureLimit": [0, 2, 3],
    "restartPolicy.sameMemberLimit": [0, 1, 3],
    "restartPolicy.onDivergence": ["Report", "Restore"],
    "runPolicy.activeDeadlineSeconds": [60, 5000, 100000],
    "runPolicy.startDeadlineSeconds": [1, 30, 100000],
    "runPolicy.ttlSecondsAfterFinished": [0, 60],
    "runPolicy.evaluatorGraceSeconds": [0, 90],
    "runPolicy.nodeLostSeconds": [1, 60],
}
BOOM, LATE = "ValueError: boom", "TimeoutError: late"
EXCEPTIONS = st.sampled_from([BOOM, BOOM, BOOM, LATE])
STARTED = st.sampled_from([True, True, False])
IMAGES = [
    {"spec": {"containers": [{"name": "tensorflow", "image": image, "command": ["python", "train.py"]}]}}
    for image in ("trainer:1", "trainer:2")
]
EDITS = [(path, value) for path, values in LIMITS.items() for value in values] + [("template", each) for each in IMAGES]


def jobs(launched: bool) -> st.SearchStrategy[JobBuilder]:
    """Small jobs of every shape that this version runs, with launchers or without."""

    def made(workers: int, others: set[str], run_policy: dict[str, object], rest: dict[str, Any]) -> JobBuilder:
        job = (a_launched_job() if launched else a_job()).workers(workers)
        for name, value in run_policy.items():
            job.set(f"runPolicy.{name}", value)
        for role in sorted(others):
            job.role(role)
        if rest["storage"]:
            job.storage()
        if rest["queue"]:
            job.labelled(**{"kueue.x_k8s.io__queue_name": "research"})
        for path, value in rest.items():
            if path not in ("storage", "queue"):
                job.set(path.replace("__", "."), value)
        return job

    others = st.sets(st.sampled_from(["chief", "ps", "evaluator"]))
    rest: dict[str, st.SearchStrategy[Any]] = {
        "storage": st.sampled_from([True, True, False]),
        "queue": st.booleans(),
        "restartPolicy__maxRestarts": st.integers(0, 3),
        "restartPolicy__sameFailureLimit": st.sampled_from([0, 2, 2, 3]),
        "restartPolicy__sameMemberLimit": st.sampled_from([0, 1, 2, 3]),
        "restartPolicy__budgetReset": st.sampled_from(["OnProgress", "Never"]),
    }
    more: dict[str, st.SearchStrategy[Any]] = {
        "restartPolicy__scope": st.sampled_from(["Job", "Pod"]),
        "restartPolicy__rules": st.sampled_from(RULES),
        "successPolicy": st.just("AllWorkers"),
    }
    more |= {"minReplicas": st.just(1)} if launched else {}
    policies = st.fixed_dictionaries(
        {"cleanPodPolicy": st.sampled_from(["Running", "All", "None"])},
        optional={
            "suspend": st.booleans(),
            "activeDeadlineSeconds": st.sampled_from([60, 100000]),
            "startDeadlineSeconds": st.sampled_from([30, 100000]),
            "ttlSecondsAfterFinished": st.sampled_from([0, 60]),
            "nodeLostSeconds": st.sampled_from([1, 60, 100000]),
            "evaluatorGraceSeconds": st.sampled_from([0, 90]),
        },
    )
    return st.builds(made, st.integers(1, 3), others, policies, st.fixed_dictionaries(rest, optional=more))


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)


def used_temporaries(cluster: SimulatedCluster) -> bool:
    """Whether there may be a temporary directory: there was a worker that is not the chief."""
    first = 0 if "chief" in cluster.status.replicas else 1
    return any(f"create pod/{cluster.name(f'worker-{index}')}" in cluster.api.writes for index in range(first, 5))


class Life(RuleBasedStateMachine):
    """The life of one job among faults."""

    cluster: SimulatedCluster

    def a_program_finishes(self, which: int) -> None:
        """It does its work."""
        raise NotImplementedError

    def begin(self, job: JobBuilder, started: bool) -> None:
        """A new job, or one that has had the time to start: then faults strike a gang that trains."""
        self.cluster = SimulatedCluster(job)
        self.cluster.nodes.add("node-b", "node-c")
        if started:
            self.cluster.run()
        self.end: tuple[object, ...] | None = None
        self.seen: list[Snapshot] = [self.cluster.api.snapshot()]
        self.faults = 0
        self.failures = 0  # those included that a rule forgives
        self.blows = 0  # disruptions that were dealt, at most one each
        self.allowed = 0
        self.worked = False  # whether a program has done its work, and was not just told to go

    # --- the operator

    @rule()
    def one_pass(self) -> None:
        """What a pass has seen it remembers (the cleanup must know of each index that was ever used), and what is asked
        for it counts by."""
        there = [pod["metadata"]["labels"] for pod in self._training()]
        self.cluster.step()
        status = self.cluster.status
        if status.phase in ("Starting", "Running", "Restarting", "Suspended"):
            for each in there:
                role, index = each["tftraining.dev/role"], int(each["tftraining.dev/index"])
                assert index <= status.replicas[role].highest
            asked = self.cluster.api.job["spec"]["replicaSpecs"]
            for name, counts in status.replicas.items():
                assert counts.desired == asked[name].get("replicas", 1)

    @rule(writes=st.integers(0, 4), soon=st.booleans())
    def a_pass_that_is_cut_short(self, writes: int, soon: bool) -> None:
        self.cluster.step(writes=writes, soon=soon)

    @rule()
    def a_pass_whose_status_can_wait(self) -> None:
        self.cluster.step(soon=True)

    @rule()
    def passes_until_nothing_is_left_to_do(self) -> None:
        self.cluster.settle()
        written = len(self.cluster.api.writes)
        assert not self.cluster.step()
        assert len(self.cluster.api.writes) == written
        timer, now = self.cluster.timer, self.cluster.now
        assert timer is None or timer > now, "it would look again at once, for ever"
        if timer is None or timer > now + timedelta(seconds=1):
            self.cluster.wait(1).step()
            assert len(self.cluster.api.writes) == written, "nothing has happened but that time has passed"

    @rule()
    def look_without_acting(self) -> None:
        self.seen.append(self.cluster.api.snapshot())

    @rule()
    def all_that_is_due_is_done(self) -> None:
        """After its passes an operator that hears all has left nothing undone."""
        cluster, run_policy = self.cluster, self.cluster.api.job["spec"]["runPolicy"]
        cluster.launcher_report = cluster.launchers.last_report() if cluster.launched else None
        cluster.settle()
        status = cluster.status
        if status.phase not in ("Starting", "Running", "Restarting") or cluster.refusal:
            return
        assert not self._absent() or not self._is_free_to_make_pods()
        limit = run_policy.get("activeDeadlineSeconds")
        assert limit is None or status.start_time is None or cluster.now < later(status.start_time, limit)
        assert not [pod for pod in self._training() if self._is_given_up(pod, run_policy.get("nodeLostSeconds", 60))]
        gang = (
            cluster.launcher_report.report.gang
            if cluster.launcher_report is not None and cluster.launcher_report.report.phase == "Training"
            else None
        )
        if gang is not None and gang.size < gang.full and status.ready != f"{gang.full}/{gang.full}":
            assert (status.phase, status.reason) == ("Running", "FewerWorkers")

    @rule(which=ANY)
    def a_pass_on_an_old_observation(self, which: int) -> None:
        self.cluster.step(snapshot=self.seen[which % len(self.seen)])

    @rule()
    def the_operator_is_restarted(self) -> None:
        self.cluster.forget()

    @rule(seconds=st.sampled_from([0, 0, 1, 70]))
    def all_goes_well_for_a_while(self, seconds: float) -> None:
        """Without this few examples would ever get as far as a gang that trains."""
        self.cluster.wait(seconds).run()

    # --- the cluster

    @rule()
    def kubelets_start_everything(self) -> None:
        self.cluster.kubelet.start_all(self.cluster.launched)

    @rule(which=ANY)
    def a_kubelet_starts_one(self, which: int) -> None:
        self._on(which, self._waiting, lambda name: self.cluster.kubelet.start(name, ready=not self.cluster.launched))

    @rule()
    def kubelets_carry_out_deletions(self) -> None:
        self.cluster.kubelet.remove_deleted()

    @rule(which=ANY, code=st.sampled_from([1, 2, 137, 143]))
    def a_program_fails(self, which: int, code: int, exception: str = "") -> None:
        forgiven = code == 2 and RULES[0] == self.cluster.api.job["spec"]["restartPolicy"].get("rules")
        words = f"Traceback (most recent call last):\n{exception}\n" if exception else ""
        done = self._on(which, self._running, lambda name: self.cluster.kubelet.exit(name, code, message=words))
        self.failures += done
        self.faults += done and not forgiven

    @rule(which=ANY, code=st.sampled_from([1, 1, 2]), times=st.integers(1, 5), pause=st.sampled_from([0, 61]))
    def a_program_fails_again_and_again(self, which: int, code: int, times: int, pause: float) -> None:
        """A loop of crashes: only so the budget and the pauses are ever used up."""
        for _ in range(times):
            self.a_program_fails(which, code)
            self.cluster.settle().kubelet.remove_deleted()
            self._catch_up()
            self.cluster.wait(pause)
        self.cluster.wait(61 - pause)
        self.all_that_is_due_is_done()

    @rule(which=ANY, exception=EXCEPTIONS, times=st.integers(2, 4), pause=st.sampled_from([31, 61]))
    def the_same_exception_again_and_again(self, which: int, exception: str, times: int, pause: float) -> None:
        """After half a minute, in which a program has made steps, or more."""
        for _ in range(times):
            self._catch_up()
            self.cluster.wait(pause)
            self.a_program_fails(which, 1, exception)
            self.cluster.settle().kubelet.remove_deleted()
        self._catch_up()

    @rule(which=ANY)
    def one_that_has_finished_is_deleted(self, which: int) -> None:
        self.a_program_finishes(which)
        self.cluster.settle()
        ended = [name for name in self._existing() if self.cluster.api.pods[name]["status"]["phase"] == "Succeeded"]
        self.blows += self._on(which, lambda: ended, self.cluster.kubelet.force_delete)
        self.cluster.settle()

    @rule(which=ANY, seconds=st.sampled_from([0, 61, 200]))
    def a_machine_with_pods_dies(self, which: int, seconds: float) -> None:
        """And the node controller notices, while others are well."""
        self.cluster.nodes.add("node-z")
        nodes = [self.cluster.api.pods[name]["spec"]["nodeName"] for name in self._running()]
        if nodes and (name := nodes[which % len(nodes)]) in self.cluster.api.nodes and name != "node-z":
            self.something_happens_to_a_node(name, "die")
            self.something_happens_to_a_node(name, "notice")
            self.cluster.wait(seconds)
            self.all_that_is_due_is_done()

    @rule(which=ANY, how=st.sampled_from(["evict", "announce", "delete", "delete", "vanish"]), grace=GRACE)
    def a_pod_is_taken(self, which: int, how: str, grace: int) -> None:
        kubelet, delete = self.cluster.kubelet, self.cluster.api.delete_pod
        ways: dict[str, Callable[[str], None]] = {
            "evict": kubelet.evict,
            "announce": lambda name: kubelet.mark_disrupted(name, "PreemptionByScheduler"),
            "delete": lambda name: delete(name, grace),
            "vanish": kubelet.force_delete,
        }
        self.blows += self._on(which, self._running if how in ("evict", "announce") else self._existing, ways[how])

    @rule(which=ANY)
    def a_successor_is_lost_too(self, which: int) -> None:
        """Under a queue, and so with a name that counts on."""
        names = [name for name in self._running() if "kueue" in str(self.cluster.api.pods[name]["metadata"]["labels"])]
        for _ in range(2 if names else 0):
            self.a_pod_is_taken(which, "delete", 5)
            self.cluster.run()

    @rule()
    def the_queue_takes_its_quota_back(self) -> None:
        """Kueue preempts the job, or somebody stops its queue."""
        said = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted"}
        for name, pod in list(self.cluster.api.pods.items()):
            if QUEUE_GROUP in pod["metadata"]["labels"] and pod["status"]["phase"] in ("Pending", "Running"):
                self.cluster.kubelet.condition(name, said)
                self.cluster.api.delete_pod(name, 30)
                self.blows += 1

    @rule(which=ANY)
    def what_waits_beside_the_gang_ends(self, which: int) -> None:
        """An evaluator has seen enough, a cleanup is done."""
        self._on(which, self._aside, lambda name: self.cluster.kubelet.exit(name, 0, message='{"removed": 1}'))

    @rule(refused=st.sampled_from(["", "", "chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0", "cleanup"]))
    def a_quota_has_no_room(self, refused: str) -> None:
        """Or it has room again."""
        self.cluster.api.refusals.clear()
        if refused:
            self.cluster.api.refusals[f"pod/mnist-{refused}"] = (403, "exceeded quota: pods")

    # --- the nodes

    @rule(name=NODES, what=st.sampled_from(["die", "cut", "notice", "come back", "remove", "taint", "join"]))
    def something_happens_to_a_node(self, name: str, what: str) -> None:
        nodes, there = self.cluster.nodes, name in self.cluster.api.nodes
        hears, dead = nodes.is_reachable(name), name in nodes.powered_off
        may: dict[str, tuple[bool, Callable[[str], None]]] = {
            "die": (there, nodes.power_off),
            "cut": (there, lambda name: nodes.partition(name, noticed=False)),
            "notice": (there and not hears, nodes.mark_not_ready),
            "come back": (there and not dead, nodes.reconnect),
            "remove": (there and not hears, nodes.remove),
            "taint": (there and dead, nodes.taint),
            "join": (not there and hears, nodes.add),
        }
        possible, act = may[what]
        if possible:
            self.blows += sum(pod["spec"].get("nodeName") == name for pod in self.cluster.api.pods.values())
            act(name)

    @rule(which=ANY)
    def a_detector_finds_a_bad_node(self, which: int) -> None:
        """Each pod leaves at most once for that, those included that are on their way to a node."""
        nodes = [self.cluster.api.pods[name]["spec"]["nodeName"] for name in self._running()]
        if nodes and (name := nodes[which % len(nodes)]) in self.cluster.api.nodes:
            self.cluster.nodes.set_condition(name)
            self.cluster.wait(1)
            self.blows += len(self.cluster.api.pods)

    @rule(readable=st.booleans())
    def the_right_to_read_nodes_changes(self, readable: bool) -> None:
        self.cluster.api.nodes_readable = readable

    # --- time and people

    @rule(seconds=st.sampled_from([0.4, 1, 5, 61, 700]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.wait(seconds)

    @rule(edit=st.sampled_from(EDITS))
    def a_person_changes_a_limit(self, edit: tuple[str, Any]) -> None:
        self.cluster.api.edit(*edit)

    @rule(workers=st.integers(1, 4), suspended=st.none() | st.booleans())
    def a_person_scales(self, workers: int, suspended: bool | None) -> None:
        """Perhaps with a suspension or a resumption in the same edit."""
        self.cluster.api.edit("replicaSpecs.worker.replicas", workers)
        if suspended is not None:
            self.cluster.api.edit("runPolicy.suspend", suspended)

    @rule(suspended=st.booleans())
    def a_person_suspends_or_resumes(self, suspended: bool) -> None:
        self.cluster.api.edit("runPolicy.suspend", suspended)

    @precondition(lambda self: not self.cluster.status.terminal)
    @rule()
    def the_service_is_deleted(self) -> None:
        self.cluster.api.delete_service("mnist")

    @rule()
    def the_secret_is_deleted(self) -> None:
        self.blows += len(self.cluster.api.secrets)
        self.cluster.api.secrets.clear()

    # --- what always holds

    @invariant()
    def never_two_attempts_at_once(self) -> None:
        if hasattr(self, "cluster"):
            alive = [pod for pod in self._training() if pod["status"]["phase"] in ("Pending", "Running")]
            assert len({pod["metadata"]["labels"]["tftraining.dev/attempt"] for pod in alive}) <= 1

    @invariant()
    def what_is_done_is_done(self) -> None:
        if hasattr(self, "cluster") and self.cluster.status.terminal:
            status = self.cluster.status
            end = (status.phase, status.reason, status.completion_time, status.restarts, status.failure)
            self.end = self.end or end
            assert self.end == end

    @invariant()
    def the_budget_is_never_exceeded(self) -> None:
        if hasattr(self, "cluster"):
            self.allowed = max(self.allowed, self.cluster.api.job["spec"]["restartPolicy"]["maxRestarts"])
            restarts = self.cluster.status.restarts
            # Launchers hear of a pod's failure only from its successor: what that costs is held in each plan.
            node_not_ready = restarts.pod_failures if self.cluster.launched else 0
            assert restarts.budget_used - node_not_ready <= self.allowed
            if not node_not_ready and self.cluster.api.job["spec"]["restartPolicy"]["budgetReset"] == "Never":
                assert restarts.counted - restarts.disruptions - node_not_ready <= self.allowed

    @invariant()
    def phase_and_conditions_say_the_same(self) -> None:
        if hasattr(self, "cluster"):
            status = self.cluster.status
            for kind in ("Succeeded", "Failed", "Suspended"):
                assert status.is_true(kind) == (status.phase == kind)
            assert not status.is_true("Ready") or status.phase == "Running"
            assert not status.is_true("NoProgress") or status.phase in ("Starting", "Running", "Restarting")
            assert status.phase == "Pending" or (status.reason and status.message is not None)

    @invariant()
    def everything_counts_once(self) -> None:
        if hasattr(self, "cluster"):
            restarts = self.cluster.status.restarts
            assert restarts.counted <= self.faults
            assert restarts.disruptions <= self.blows + self.failures

    @invariant()
    def the_time_is_accounted_for(self) -> None:
        if hasattr(self, "cluster") and (goodput := self.cluster.status.goodput) is not None:
            assert goodput.start_time == parse_job(self.cluster.api.job).created
            assert goodput.updated_time is not None and min(goodput.seconds.values()) >= 0
            assert (
                abs(sum(goodput.seconds.values()) - (goodput.updated_time - goodput.start_time).total_seconds()) < 0.1
            )
            assert goodput.cause in CAUSES_OF.get(self.cluster.status.phase, (None,))

    # --- the end

    def teardown(self) -> None:
        """The faults stop: the job runs, finishes and is cleaned, or has failed for a reason; then nothing is left."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.api.edit("runPolicy.suspend", False)
        self._mend()
        self._finish("chief")
        self._finish("cleanup")
        assert cluster.status.terminal
        assert cluster.status.phase == "Failed" or self.worked
        late = cluster.status.reason in ("DeadlineExceeded", "StartDeadlineExceeded")
        assert cluster.status.phase == "Succeeded" or self.faults > 0 or late
        cleaned = cluster.status.condition("Cleaned")
        assert cleaned is not None and cleaned.status != "Unknown"
        if cleaned.status == "True" and "storage" in cluster.api.job["spec"] and used_temporaries(cluster):
            assert f"create pod/{cluster.name('cleanup')}" in cluster.api.writes
        assert cluster.api.gone == ("ttlSecondsAfterFinished" in cluster.api.job["spec"]["runPolicy"])
        assert not cluster.step() and cluster.timer is None

    def an_outage_ends(self) -> None:
        """After a while; until then the operator looks at the nodes again and again."""
        if None in steady_since([parse_node(raw) for raw in self.cluster.api.nodes.values()]).values():
            self.cluster.wait(601).run().nodes.add("node-x", "node-y")

    def _mend(self) -> None:
        """The cluster is well again: what is dead has been noticed and removed, and there is room."""
        nodes = self.cluster.nodes
        for name in list(self.cluster.api.nodes):
            if name in nodes.powered_off:
                nodes.remove(name)
            else:
                nodes.reconnect(name)
        nodes.add("node-z")
        self.cluster.api.nodes_readable = True
        self.cluster.api.refusals.clear()

    def _training(self) -> list[dict[str, Any]]:
        pods = self.cluster.api.pods.values()
        return [pod for pod in pods if pod["metadata"]["labels"]["tftraining.dev/role"] in GANG_ROLES]

    def _finish(self, who: str) -> None:
        """Healthy kubelets; the one that all wait for does its work as soon as it runs."""
        for _ in range(200):
            self.cluster.run()
            names = [name for name in self._running() if self._is(who, name)]
            if names and self._finishes(who, names[0]):
                continue
            if self.cluster.timer is not None:
                self.cluster.api.now = max(self.cluster.now, self.cluster.timer)
            else:
                return
        raise AssertionError(f"never at rest: {self.cluster.trajectory[-5:]}")

    def _finishes(self, who: str, name: str) -> bool:
        """Whether the program could do its work; behind a launcher it waits for the whole gang."""
        if who == "chief" and self.cluster.launched:
            self.worked = True
            return self.cluster.launchers.finish(*self.cluster.launchers.trainers)
        self.worked |= who == "chief"
        self.cluster.kubelet.exit(name, 0, message='{"removed": 1}')
        return True

    def _is(self, who: str, name: str) -> bool:
        spec = self.cluster.api.job["spec"]
        if who == "chief" and spec.get("successPolicy") == "AllWorkers":
            return any(f"-{role}-" in name for role in ("chief", "worker"))
        chief = "chief-0" if "chief" in spec["replicaSpecs"] else "worker-0"
        return member_of("mnist", name) == (chief if who == "chief" else "cleanup")

    def _on(self, which: int, names: Callable[[], list[str]], act: Callable[[str], object]) -> int:
        """Do something to one of the pods, if there is any; how many it was done to."""
        if not (found := names()):
            return 0
        act(found[which % len(found)])
        return 1

    def _catch_up(self) -> None:
        """All goes well, and what waits its time is waited for, but for what may never be."""
        for _ in range(3):
            self.cluster.run()
            if (timer := self.cluster.timer) is not None and timer <= later(self.cluster.now, 60):
                self.cluster.api.now = timer
        self.cluster.run()

    def _absent(self) -> set[str]:
        """The pods of the gang that are not there, and have not finished before."""
        wanted = {
            f"{role}-{index}"
            for role, counts in self.cluster.status.replicas.items()
            for index in set(range(counts.desired)) - unpack(counts.completed_indexes, range(counts.desired))
        }
        return wanted - {member_of("mnist", name) for name in self.cluster.api.pods} - {"evaluator-0"}

    def _is_free_to_make_pods(self) -> bool:
        """Whether no pod is in the way, and the longest pause is over."""
        last, uid = self.cluster.status.last_restart, self.cluster.api.job["metadata"]["uid"]
        pods = [pod for pod in self.cluster.api.pods.values() if owned_by(pod, uid)]
        attempts = {pod["metadata"]["labels"]["tftraining.dev/attempt"] for pod in self._training()}
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in pods) or "cleanup" in self.cluster.pods
        late = last is None or (self.cluster.now - last.time).total_seconds() > 60
        return late and not leaving and attempts <= {str(self.cluster.status.attempt)}

    def _is_given_up(self, pod: dict[str, Any], patience: int) -> bool:
        """Whether the pod is on a node that has not been ready for so long, and should have been replaced."""
        nodes = self.cluster.nodes_of(list(self.cluster.api.pods.values()), list(self.cluster.api.nodes.values()))
        node = nodes.named.get(pod["spec"].get("nodeName", ""))
        if node is None or node.gone or node.unready_since is None or node.out_of_service:
            return False
        begun, since = max(node.unready_since, node.noticed_at or node.unready_since), nodes.steady_since[node.zone]
        due = later(begun, 10 * patience)
        due = due if since is None else min(due, later(max(begun, since), patience))
        running = pod["status"]["phase"] == "Running" and self.cluster.api.nodes_readable
        # One that a smaller size has no place for goes when the launchers know of that size.
        role, index = (pod["metadata"]["labels"][f"tftraining.dev/{each}"] for each in ("role", "index"))
        wanted = int(index) < self.cluster.api.job["spec"]["replicaSpecs"][role].get("replicas", 1)
        return running and wanted and due < self.cluster.now

    def _existing(self) -> list[str]:
        return sorted(self.cluster.api.pods)

    def _running(self) -> list[str]:
        """Those whose program runs, also if somebody has asked for their end."""
        return [name for name in self._existing() if self.cluster.api.pods[name]["status"]["phase"] == "Running"]

    def _aside(self) -> list[str]:
        return [name for name in self._running() if name.endswith(("-evaluator-0", "-cleanup"))]

    def _waiting(self) -> list[str]:
        return [name for name in self._existing() if self.cluster.api.pods[name]["status"]["phase"] == "Pending"]


class LifeWithoutLaunchers(Life):
    """Restarts by new pods of the whole gang."""

    @initialize(job=jobs(launched=False), started=STARTED)
    def begin(self, job: JobBuilder, started: bool) -> None:
        super().begin(job, started)

    @rule(which=ANY)
    def a_program_finishes(self, which: int) -> None:
        self._on(which, self._running, self._end_well)

    @rule(which=ANY)
    def a_disruption_takes_others_along(self, which: int) -> None:
        """What fails after it is no failure of its own."""
        cluster = self.cluster.run()
        before, names = cluster.status.restarts.counted, sorted(pod["metadata"]["name"] for pod in self._training())
        if cluster.status.phase != "Running" or len(names) < 2 or not set(names) <= set(self._running()):
            return
        first, second = names[which % len(names)], names[(which + 1) % len(names)]
        cluster.api.delete_pod(first, 30)
        cluster.wait(1).kubelet.exit(second, 1)
        self.blows, self.failures = self.blows + 1, self.failures + 1
        alone = cluster.api.job["spec"]["restartPolicy"].get("scope") or (
            "ps" in cluster.api.job["spec"]["replicaSpecs"]
        )
        self.faults += alone not in (False, "Job")
        cluster.settle()
        assert alone not in (False, "Job") or cluster.status.restarts.counted == before

    def _end_well(self, name: str) -> None:
        """With a 0, which from one that was told to go is mere politeness."""
        pod = self.cluster.api.pods[name]
        announced = any(each["type"] == "DisruptionTarget" for each in pod["status"].get("conditions", ()))
        self.worked |= not announced and "deletionTimestamp" not in pod["metadata"]
        self.cluster.kubelet.exit(name, 0, message='{"removed": 1}')


class LifeWithLaunchers(Life):
    """Restarts in place, and lost pods replaced alone."""

    @initialize(job=jobs(launched=True), started=STARTED)
    def begin(self, job: JobBuilder, started: bool) -> None:
        super().begin(job, started)

    @rule(which=ANY)
    def a_program_finishes(self, which: int) -> None:
        launchers = self.cluster.launchers
        self._on(which, lambda: [each for each in launchers.trainers if each in launchers.running], launchers.finish)
        self.worked |= bool(launchers.done)

    @rule(workers=st.integers(1, 4))
    def a_gang_that_trains_is_scaled(self, workers: int) -> None:
        cluster = self.cluster.run()
        self.a_person_scales(workers, None)
        cluster.settle().run()
        status = cluster.status
        if status.phase == "Running" and status.reason == "Training" and cluster.launchers.phase == "Training":
            # Nobody carries out the deletion of one on a node that is cut off.
            staying = [pod["metadata"] for pod in self._training() if "deletionTimestamp" not in pod["metadata"]]
            assert all(int(each["labels"]["tftraining.dev/index"]) < workers for each in staying), "surplus pods stay"

    @rule(which=ANY)
    def two_are_lost_one_after_the_other(self, which: int) -> None:
        """And what was made in place of the first: nothing of it starts before all are gone."""
        cluster = self.cluster.run()
        names, quiet = self._calm(), cluster.status.restarts
        first, second = names[which % 2 :][:1], names[1 - which % 2 :][:1]
        for number, name in enumerate(first + second + first if len(names) == 2 else first, 1):
            if name not in cluster.api.pods:
                return  # it waits for its time
            cluster.kubelet.force_delete(name)
            self.blows += 1
            while cluster.step() or cluster.poll_launchers():
                pass
            self.all_that_is_due_is_done()
            assert cluster.status.terminal or cluster.status.restarts.disruptions == quiet.disruptions + number

    def _calm(self) -> list[str]:
        """The workers but the first, if the whole gang trains and nothing is the matter."""
        status = self.cluster.status
        calm = (status.phase, status.reason) == ("Running", "Training") and not self.cluster.refusal
        ready = status.ready == "{0}/{0}".format((status.ready or "").rpartition("/")[2]) and not self._absent()
        calm &= ready and self.cluster.launchers.phase == "Training" and not self.cluster.launchers.done
        plain = not self.cluster.api.job["metadata"].get("labels") and self.cluster.api.secrets
        return [name for name in self._running() if "-worker-" in name and name[-1] != "0"] if calm and plain else []

    @rule()
    def launchers_do_what_there_is_to_do(self) -> None:
        self.cluster.launchers.tick()

    @rule()
    def the_operator_asks_the_chief(self) -> None:
        self.cluster.launcher_report = self.cluster.launchers.last_report()

    @rule(which=ANY, code=st.sampled_from([None, 1]))
    def a_program_crashes(self, which: int, code: int | None) -> None:
        if members := sorted(self.cluster.launchers.running):
            self.faults += self.cluster.launchers.crash(members[which % len(members)], code)

    @rule(which=ANY, times=st.integers(2, 4))
    def a_program_raises_the_same_again_and_again(self, which: int, times: int) -> None:
        for _ in range(times):
            if members := sorted(self.cluster.launchers.running):
                self.faults += self.cluster.launchers.crash(members[which % len(members)], 1, exception=BOOM)
            self.cluster.wait(31).run()

    @rule(epoch=st.integers(1, 5))
    def the_training_goes_on(self, epoch: int) -> None:
        if self.cluster.launchers.phase == "Training":
            self.cluster.launchers.advance(epoch, 70 * epoch)

    @rule(which=ANY)
    def a_member_makes_no_step(self, which: int) -> None:
        members = sorted(self.cluster.launchers.running)
        if members and self.cluster.launchers.phase == "Training":
            self.cluster.launchers.stall(members[which % len(members)])
            self.faults += 1

    @rule()
    def the_launchers_have_waited_too_long(self) -> None:
        if self.cluster.launchers.phase in ("Waiting", "Restarting"):
            self.cluster.launchers.end("Failed", "StartDeadlineExceeded", "worker-1 did not join", {})

    @rule()
    def the_chief_finishes(self) -> None:
        self.worked |= self.cluster.launchers.finish()


TestLifeWithoutLaunchers = LifeWithoutLaunchers.TestCase
TestLifeWithoutLaunchers.settings = PROFILE
TestLifeWithLaunchers = LifeWithLaunchers.TestCase
TestLifeWithLaunchers.settings = PROFILE


# What seldom comes up by chance, as it needs a gang that trains, and then one thing after the other.
Storm = tuple[str, dict[str, Any]]
STORMS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "a_program_fails_again_and_again": {
        "which": ANY,
        "code": st.sampled_from([1, 1, 2]),
        "times": st.integers(1, 5),
        "pause": st.sampled_from([0, 61]),
    },
    "one_that_has_finished_is_deleted": {"which": ANY},
    "a_detector_finds_a_bad_node": {"which": ANY},
    "a_machine_with_pods_dies": {"which": ANY, "seconds": st.sampled_from([0, 61, 200])},
}
WITHOUT_LAUNCHERS = STORMS | {
    "a_disruption_takes_others_along": {"which": ANY},
    "the_same_exception_again_and_again": {
        "which": ANY,
        "exception": EXCEPTIONS,
        "times": st.integers(2, 4),
        "pause": st.sampled_from([31, 61]),
    },
}
WITH_LAUNCHERS = STORMS | {
    "a_program_raises_the_same_again_and_again": {"which": ANY, "times": st.integers(2, 4)},
    "a_gang_that_trains_is_scaled": {"workers": st.integers(1, 4)},
    "two_are_lost_one_after_the_other": {"which": ANY},
    "the_training_goes_on": {"epoch": st.integers(1, 5)},
}


def some(storms: dict[str, dict[str, st.SearchStrategy[Any]]]) -> st.SearchStrategy[list[Storm]]:
    one = [st.tuples(st.just(name), st.fixed_dictionaries(fields)) for name, fields in storms.items()]
    return st.lists(st.one_of(*one), min_size=1, max_size=4)


def weather(life: Life, job: JobBuilder, storms: list[Storm]) -> None:
    """The storms over a gang that trains, and its end."""
    job.set("runPolicy.suspend", False).set("runPolicy.activeDeadlineSeconds", None)
    Life.begin(life, job, True)
    for name, fields in storms:
        getattr(life, name)(**fields)
        life.an_outage_ends()
        life.cluster.run_timers()
        for held in (
            "what_is_done_is_done",
            "the_budget_is_never_exceeded",
            "everything_counts_once",
            "the_time_is_accounted_for",
        ):
            getattr(life, held)()
    life.teardown()


def a_repeater(limit: int) -> JobBuilder:
    """What may fail by the same exception so many times."""
    job = a_job().workers(2).storage().max_restarts(9).set("restartPolicy.budgetReset", "OnProgress")
    return job.set("restartPolicy.sameFailureLimit", limit)


A_ROW: Storm = ("the_same_exception_again_and_again", {"which": 1, "exception": BOOM, "times": 3, "pause": 31})


@STORMY
@given(jobs(launched=False), some(WITHOUT_LAUNCHERS))
@example(a_repeater(3), [A_ROW])
@example(a_repeater(2).set("restartPolicy.scope", "Pod"), [A_ROW])
def test_storms_without_launchers(job: JobBuilder, storms: list[Storm]) -> None:
    weather(LifeWithoutLaunchers(), job, storms)


@STORMY
@given(jobs(launched=True), some(WITH_LAUNCHERS))
def test_storms_with_launchers(job: JobBuilder, storms: list[Storm]) -> None:
    weather(LifeWithLaunchers(), job, storms)
