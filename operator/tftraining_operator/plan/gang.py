"""The pods of a job, each sorted by what it is to the present attempt of the gang.

* `members`: the pods of the attempt, by replica. `given_up` are pods of the attempt that the status has given up
  (status.replaced), or that have a successor already. Such a pod keeps its place until its object is gone; one that
  Kueue holds, until it has ended (see plan/kueue_successors.py).
* `stale`: pods of an earlier attempt, pods that the spec no longer asks for, and cleanup pods. No pod of the gang is
  created while a stale pod is left: two programs would write the same backup.
* `missing`: replicas without a pod; `vanished` are the missing replicas whose pod the status has counted.
* `completed`: replicas whose program has finished and whose pod is gone.
* `surplus`: workers above the present number, in an elastic gang. A gang is elastic when its launchers can be told of
  another number of workers and no other role has changed its size; surplus pods are in nobody's way.
* `outdated`, `resized`: whether the pods are those of another spec, or of another number of workers; plan/incident.py
  decides what follows.

The evaluator is sorted too, apart from the gang: the gang never waits for the evaluator.
"""

from collections.abc import Collection, Mapping
from functools import cached_property

import msgspec

from tftraining.launch.roles import GANG_ROLES, RESIZABLE_ROLES, ROLES
from tftraining_api.model.indexes import pack, unpack
from tftraining_api.model.job import Job
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Frozen, JobSpec
from tftraining_api.model.status import Counts, Status
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.plan.kueue_successors import free_successors, is_released
from tftraining_operator.plan.restart_request import is_restart_requested


class SortedPods(Frozen, frozen=True, dict=True, gc=True):
    """The sorted pods; see the module. `wanted` is in the order of ranks, the chief first. `resized` and `outdated` say
    that pods must be recreated because of the number of workers, or of anything else in the spec; `restart_requested`,
    because a person asks for it. `successors` are the numbers in the names of pods that are to come."""

    wanted: tuple[Replica, ...] = ()
    wanted_evaluators: tuple[Replica, ...] = ()
    members: dict[Replica, Pod] = msgspec.field(default_factory=dict)
    stale: tuple[Pod, ...] = ()
    given_up: tuple[Pod, ...] = ()
    successors: dict[str, int] = msgspec.field(default_factory=dict)
    missing: tuple[Replica, ...] = ()
    missing_evaluators: tuple[Replica, ...] = ()
    vanished: tuple[Replica, ...] = ()
    completed: frozenset[Replica] = frozenset()
    surplus: tuple[Pod, ...] = ()
    elastic: bool = False
    resized: bool = False
    outdated: bool = False
    restart_requested: bool = False

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of the present attempt, in the order of ranks."""
        return tuple(self.members[each] for each in self.wanted if each in self.members)

    @cached_property
    def evaluators(self) -> tuple[Pod, ...]:
        """The evaluator's pod, if it is there."""
        return tuple(self.members[each] for each in self.wanted_evaluators if each in self.members)

    @cached_property
    def done(self) -> frozenset[Replica]:
        """The replicas whose program has finished, with a pod or without one."""
        return self.completed.union(each for each, pod in self.members.items() if finished(pod))

    @property
    def chief(self) -> Pod | None:
        """The chief's pod, if it is there."""
        return self.members.get(self.wanted[0]) if self.wanted else None

    @cached_property
    def done_or_ready(self) -> int:
        """How many members train or have finished."""
        there = sum(1 for pod in self.pods if pod.ready or finished(pod))
        return there + sum(1 for each in self.completed if each not in self.wanted_evaluators)

    @cached_property
    def ready(self) -> str:
        """status.ready: `1/2`."""
        return f"{self.done_or_ready}/{len(self.wanted)}"

    @property
    def complete(self) -> bool:
        """Whether every member trains or has finished."""
        return self.done_or_ready == len(self.wanted)


def finished(pod: Pod) -> bool:
    """Whether the program has finished its work. A program that ends with 0 after a SIGTERM has not."""
    return pod.succeeded and not was_disrupted(pod)


def was_disrupted(pod: Pod) -> bool:
    """Whether the cluster or a person ended the pod before the program ended by itself. Within one second, the
    resolution of Kubernetes' times, the program counts as ended by the disruption unless the status says otherwise."""
    if pod.was_finished:
        return False
    if pod.disruption and pod.disrupted_at is None:
        return True
    if (announced := pod.disruption_announced_at) is None:
        return False
    ended = pod.exit.finished_at if pod.exit else None
    return ended is None or ended >= announced


def attempt_of(status: Status, observed: Observed) -> int:
    """The present attempt. The label of a pod has the attempt too, so a status that was wiped costs no training."""
    return max([1, status.attempt, *(pod.attempt for pod in observed.replicas)])


def accepted_templates(job: Job, observed: Observed) -> dict[str, str]:
    """status.acceptedTemplates: by role, the hash of the template of which the API server last accepted a pod."""
    if job.spec is None:
        return job.status.accepted_templates
    present = job.spec.fingerprint
    there = {pod.replica.role for pod in observed.replicas if pod.replica and pod.template_hash in ("", present)}
    return {**job.status.accepted_templates, **{role: present for role in ROLES if role in there}}


def answered_request(status: Status, observed: Observed) -> str | None:
    """status.restarts.restartedAt: the last request for a restart after which pods were created."""
    attempt = [pod.restarted_at for pod in observed.replicas if pod.restarted_at and pod.attempt == status.attempt]
    return attempt[0] if attempt else status.restarts.restarted_at


def classify(spec: JobSpec | None, status: Status, observed: Observed, restarted_at: str = "") -> SortedPods:
    """Sort the observed pods for the attempt in `status`, in time linear in the number of replicas and pods. A job
    without a valid spec has no gang. `restarted_at` is the job's request for a restart."""
    if spec is None:
        return SortedPods()
    wanted, evaluators, fingerprint = spec.gang, spec.evaluators, spec.fingerprint
    # Of several pods of a replica the last successor is the current one: `replicas` has them in that order.
    current = {pod.replica: pod for pod in observed.replicas if pod.replica and _is_current(pod, spec, status)}
    replaced = set(status.replaced.values())
    everyone = (*wanted, *evaluators)
    there = [each for each in everyone if each in current and current[each].uid not in replaced]
    members = {each: _with_known_finish(current[each], each, status) for each in there}
    given_up = _given_up(spec, status, observed, {pod.uid for pod in members.values()})
    held = any(pod.queue_group for pod in given_up)
    in_the_way = {pod.replica for pod in given_up if not (held and is_released(pod))}
    gang = [members[each] for each in wanted if each in members]
    sizes = {pod.gang for pod in gang}
    reshaped = any(_fixed(each) != _fixed(spec.gang_shape) for each in sizes)
    # Kueue holds a group of pods to the number that it had at first (see tftraining_api/manifests/kueue.py).
    updatable = bool(gang) and all(pod.spec_updates and not pod.queued for pod in gang)
    elastic = spec.in_place and updatable and not reshaped
    surplus = _surplus(current, frozenset(wanted)) if elastic else ()
    kept = {pod.uid for pod in (*members.values(), *given_up, *surplus)}
    absent = tuple(each for each in everyone if each not in members)
    completed = _completed(absent, status)
    not_there = [each for each in absent if each not in completed and each not in in_the_way]
    missing = tuple(each for each in not_there if each not in evaluators)
    lost = {pod.replica for pod in given_up}
    return SortedPods(
        wanted=wanted,
        wanted_evaluators=evaluators,
        members=members,
        stale=tuple(pod for pod in observed.pods if pod.uid not in kept),
        given_up=given_up,
        successors=free_successors(status.successors, given_up) if held else status.successors,
        missing=missing,
        missing_evaluators=tuple(each for each in not_there if each in evaluators),
        vanished=_vanished(spec, tuple(each for each in missing if each not in lost), status),
        completed=completed,
        surplus=surplus,
        elastic=elastic,
        resized=not elastic and not reshaped and bool(sizes - {spec.gang_shape}),
        outdated=reshaped or any(pod.template_hash not in ("", fingerprint) for pod in gang),
        restart_requested=bool(restarted_at) and is_restart_requested(gang, restarted_at, status.restarts.restarted_at),
    )


def _given_up(spec: JobSpec, status: Status, observed: Observed, members: Collection[str]) -> tuple[Pod, ...]:
    """The pods that are no members, by their UIDs, although the spec wants their replicas in this attempt; and outdated
    evaluators."""
    others = [pod for pod in observed.replicas if pod.uid not in members]
    wanted = frozenset(spec.gang) if others else frozenset()
    return tuple(
        pod
        for pod in others
        if pod.replica in spec.evaluators or (pod.replica in wanted and _is_current(pod, spec, status))
    )


def _fixed(size: str) -> list[str]:
    """The sizes of the roles whose size launchers cannot change, from the shape of a gang."""
    return [each for each in size.split(",") if each.partition("=")[0] not in RESIZABLE_ROLES]


def _surplus(current: Mapping[Replica, Pod], wanted: frozenset[Replica]) -> tuple[Pod, ...]:
    return tuple(pod for each, pod in current.items() if each.traits.resizable and each not in wanted)


def _is_current(pod: Pod, spec: JobSpec, status: Status) -> bool:
    """Whether the pod is of the present attempt. An evaluator without a launcher outlives attempts of the gang, as long
    as its TF_CONFIG is right."""
    if pod.replica is not None and not pod.replica.traits.in_gang and not spec.in_place:
        return (pod.gang, pod.template_hash) == (spec.gang_shape, spec.fingerprint)
    return pod.attempt == status.attempt


def count(gang: SortedPods, old: Mapping[str, Counts]) -> dict[str, Counts]:
    """status.replicas: the numbers of each role."""
    counts: dict[str, Counts] = {}
    # The index of an existing pod counts as used even if no status was written since the pod was created.
    there = [pod.replica for pod in (*gang.stale, *gang.given_up, *gang.surplus) if pod.replica]
    for role in ROLES:
        wanted = [each for each in (*gang.wanted, *gang.wanted_evaluators) if each.role == role]
        used = [each.index for each in (*wanted, *there) if each.role == role]
        pods = [gang.members[each] for each in wanted if each in gang.members]
        if wanted or role in old:
            gone = sum(1 for each in gang.completed if each.role == role)
            counts[role] = Counts(
                desired=len(wanted),
                active=sum(1 for pod in pods if not pod.ended),
                ready=sum(1 for pod in pods if pod.ready),
                succeeded=sum(1 for pod in pods if pod.succeeded) + gone,
                failed=sum(1 for pod in pods if pod.failed),
                highest=max((old.get(role, Counts()).highest, *used)),
                completed_indexes=pack(each.index for each in wanted if is_done(gang, each)),
                absent_indexes=pack(each.index for each in wanted if each not in gang.members),
            )
    return counts


def _vanished(spec: JobSpec, missing: tuple[Replica, ...], status: Status) -> tuple[Replica, ...]:
    """The missing replicas that had a pod before. A gang with launchers may train without some members for long, so the
    status says which members had a pod; without launchers every member of a complete gang had one."""
    then = [counts for role, counts in status.replicas.items() if role in GANG_ROLES]
    complete = bool(then) and all(counts.desired <= counts.total for counts in then)
    if not complete and (not spec.in_place or status.phase not in ("Running", "Restarting")):
        return ()
    had = {role: counts.had(_indexes(missing, role)) for role, counts in status.replicas.items()}
    return tuple(each for each in missing if each.index in had.get(each.role, ()))


def is_done(gang: SortedPods, member: Replica) -> bool:
    """Whether the member's pod has finished, or had before it was deleted."""
    return member in gang.done


def _completed(absent: tuple[Replica, ...], status: Status) -> frozenset[Replica]:
    """The absent members whose program had finished before somebody deleted the pod: they never run again."""
    done = {role: unpack(counts.completed_indexes, _indexes(absent, role)) for role, counts in status.replicas.items()}
    return frozenset(each for each in absent if each.index in done.get(each.role, ()))


def _with_known_finish(pod: Pod, replica: Replica, status: Status) -> Pod:
    """The pod of a member, with `was_finished` if an earlier pass has seen its program finished."""
    if not (pod.succeeded and (pod.disruption or pod.deleting)):
        return pod
    return msgspec.structs.replace(pod, was_finished=replica in _completed((replica,), status))


def _indexes(replicas: tuple[Replica, ...], role: str) -> list[int]:
    return [each.index for each in replicas if each.role == role]
