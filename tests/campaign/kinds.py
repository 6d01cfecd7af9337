"""The kinds of faults and of jobs, and what a fault may cost a job. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of fault. The costs are upper bounds for each job that the fault hits; a member is one of its pods.

    `disruptions` is None where the fault may take any number of the job's pods. A fault that does not `restart` must
    leave every program of the job as it is.
    """

    name: str
    charges: int = 0
    disruptions: int | None = 0
    restarts: bool = True
    all_jobs: bool = False  # of a node or of the cluster, not of one job
    around: bool = False  # what other clients and the network do, at the same time as the faults of nodes and servers
    seconds: tuple[float, float] = (0.0, 0.0)  # how long it lasts: the bounds of the draw
    only: tuple[str, ...] = ()  # the kinds of jobs that it makes sense for; empty: all


WITH_MORE_WORKERS = ("fit", "custom", "elastic", "evaluator")

KINDS = {
    kind.name: kind
    for kind in (
        Kind("program-killed", charges=1),
        Kind("program-frozen", restarts=False, seconds=(1, 8)),
        # TensorFlow needs semaphores in /dev/shm at the end of each epoch of `fit`, and fails without them.
        Kind("shm-filled", charges=2, seconds=(0.5, 3)),
        # Shorter than two starts of a program, with an epoch each: three equal failures at a step would end the job.
        Kind("disk-filled", charges=2, seconds=(0.5, 3)),
        Kind("launcher-clock-moved", restarts=False, seconds=(1, 8)),
        Kind("launcher-killed", charges=1, disruptions=1),
        # The others give a silent launcher up, and a launcher that is silent for longer is a lost pod for its probe.
        Kind("launcher-frozen", disruptions=1, seconds=(1, 8)),
        Kind("pod-deleted", disruptions=1),
        Kind("pod-deleted-by-force", disruptions=1),
        Kind("pod-evicted", disruptions=1),
        Kind("pod-relabelled", disruptions=1),
        Kind("operator-killed", restarts=False, all_jobs=True),
        Kind("leader-killed", restarts=False, all_jobs=True),
        Kind("operator-clock-moved", restarts=False, all_jobs=True, seconds=(1, 12)),
        Kind("api-server-killed", restarts=False, all_jobs=True),
        Kind("etcd-killed", restarts=False, all_jobs=True),
        Kind("controller-manager-killed", restarts=False, all_jobs=True),
        Kind("scheduler-killed", restarts=False, all_jobs=True),
        Kind("control-plane-paused", restarts=False, all_jobs=True, seconds=(1, 12)),
        Kind("kubelet-killed", restarts=False, all_jobs=True),
        # A kubelet may find no sandbox while containerd starts, and ends the containers of the node with SIGTERM.
        Kind("containerd-killed", charges=3, disruptions=None, all_jobs=True),
        Kind("node-paused", disruptions=None, all_jobs=True, seconds=(1, 12)),
        Kind("node-off", disruptions=None, all_jobs=True, seconds=(1, 40)),
        Kind("network-cut", disruptions=None, all_jobs=True, seconds=(1, 12)),
        Kind("network-slow", disruptions=None, all_jobs=True, seconds=(3, 12)),
        Kind("pods-watch-stale", restarts=False, all_jobs=True, around=True, seconds=(5, 20)),
        Kind("nodes-watch-stale", restarts=False, all_jobs=True, around=True, seconds=(5, 20)),
        Kind("webhook-slow", restarts=False, all_jobs=True, around=True, seconds=(5, 20)),
        Kind("quota-short", restarts=False, all_jobs=True, around=True, seconds=(5, 20)),
        Kind("pods-of-others", restarts=False, all_jobs=True, around=True, seconds=(3, 10)),
        Kind("secret-deleted", disruptions=None, restarts=False),
        Kind("service-deleted", restarts=False),
        Kind("network-policy-deleted", restarts=False),
        Kind("suspended", disruptions=None, seconds=(0, 8)),
        Kind("scaled", disruptions=None, seconds=(2, 15), only=WITH_MORE_WORKERS),
        Kind("edited", restarts=False),
    )
}
# The first few, so that a campaign of a minute has one of each tier: program, launcher, pod, node, operator, server.
BASIC = ("program-killed", "launcher-killed", "pod-deleted", "node-paused", "operator-killed", "api-server-killed")


STEPS_PER_EPOCH = 40


@dataclass(frozen=True)
class JobKind:
    """A kind of job: the program notes its steps one at a time, or `steps_at_once`."""

    name: str
    epochs: int = 40
    workers: int = 2
    steps_at_once: int = 1

    @property
    def steps(self) -> int:
        """The number of its last step."""
        return self.epochs * STEPS_PER_EPOCH


# An undisturbed training takes about a minute: long enough to be hit, short enough to be one of many.
JOBS = {
    kind.name: kind
    for kind in (
        JobKind("fit"),
        JobKind("custom", epochs=80, steps_at_once=STEPS_PER_EPOCH),
        JobKind("ps", epochs=80, steps_at_once=STEPS_PER_EPOCH),
        JobKind("elastic", workers=3),
        JobKind("evaluator"),
    )
}
