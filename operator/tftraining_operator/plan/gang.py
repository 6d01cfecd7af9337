"""The gang of the present attempt, sorted into what each policy asks for.

Pods are classified once: members, stale ones (of another attempt, not wanted any more, or of a cleanup that is not
over), those that are leaving (given up alone, their successors not made yet), missing ones, and those that have
vanished: missing although they had been seen. The evaluator stands aside: it is counted, and in nobody's way.
A gang is elastic when its launchers can be told of another number of workers, and no other role has changed its size:
then those that are not wanted any more are surplus, not stale, for they are not in the way of others.
"""

from collections.abc import Mapping
from functools import cached_property

from tftraining_operator.model.indexes import chosen, pack
from tftraining_operator.model.names import GANG_ROLES, ROLES, Replica
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import Frozen, JobSpec
from tftraining_operator.model.status import Counts, Status


class Gang(Frozen, frozen=True, dict=True, gc=True):
    """The classified gang. `wanted` is in the order of ranks, the chief first; `aside` is the evaluator.

    Policies ask for the same lists again and again, so each is made once."""

    wanted: tuple[Replica, ...]
    aside: tuple[Replica, ...]
    members: dict[Replica, Pod]
    stale: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    missing: tuple[Replica, ...]
    missing_aside: tuple[Replica, ...]
    vanished: tuple[Replica, ...]
    completed: frozenset[Replica]
    surplus: tuple[Pod, ...]
    elastic: bool
    resized: bool
    outdated: bool

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of the present attempt, in the order of ranks."""
        return tuple(self.members[each] for each in self.wanted if each in self.members)

    @cached_property
    def evaluators(self) -> tuple[Pod, ...]:
        """The evaluator's pod, if it is there."""
        return tuple(self.members[each] for each in self.aside if each in self.members)

    @cached_property
    def done(self) -> frozenset[Replica]:
        """Those whose pods have finished, or had before they were deleted."""
        return self.completed.union(each for each, pod in self.members.items() if finished(pod))

    @property
    def chief(self) -> Pod | None:
        """The chief's pod, if it is there."""
        return self.members.get(self.wanted[0])

    @cached_property
    def done_or_ready(self) -> int:
        """How many members train or have finished."""
        there = sum(1 for pod in self.pods if pod.ready or finished(pod))
        return there + sum(1 for each in self.completed if each not in self.aside)

    @cached_property
    def ready(self) -> str:
        """The same for people: `1/2`."""
        return f"{self.done_or_ready}/{len(self.wanted)}"


def finished(pod: Pod) -> bool:
    """Whether the program has finished its work, rather than being told to stop and leaving with a polite 0."""
    return pod.succeeded and not cut_off(pod)


def cut_off(pod: Pod) -> bool:
    """Whether the cluster or a person ended the pod before the program had ended by itself."""
    if pod.disruption and pod.disrupted_at is None:
        return True
    if (told_at := pod.told_at) is None:
        return False
    ended = pod.exit.finished_at if pod.exit else None
    return ended is None or ended >= told_at


def attempt_of(status: Status, seen: Observed) -> int:
    """The present attempt. Pods know it too, so that a status that was wiped does not throw a training away."""
    return max([1, status.attempt, *(pod.attempt for pod in seen.replicas)])


def classify(spec: JobSpec, status: Status, seen: Observed) -> Gang:
    """Sort the observed pods by what they are to the attempt in `status`. Linear in the number of replicas and pods."""
    wanted, aside, fingerprint = spec.gang, spec.evaluators, spec.fingerprint
    current = {pod.replica: pod for pod in seen.replicas if pod.replica and _is_current(pod, spec, status)}
    given_up = set(status.replaced.values())
    everyone = (*wanted, *aside)
    members = {each: current[each] for each in everyone if each in current and current[each].uid not in given_up}
    leaving = {each: current[each] for each in everyone if each in current and each not in members}
    leaving |= {pod.replica: pod for pod in seen.replicas if pod.replica in aside and pod.replica not in current}
    gang = [members[each] for each in wanted if each in members]
    sizes = {pod.gang for pod in gang}
    reshaped = any(_fixed(each) != _fixed(spec.gang_size) for each in sizes)
    # Kueue holds a group of pods to the number that it had at first (see build/kueue.py).
    told = bool(gang) and all(pod.orders and not pod.queued for pod in gang)
    elastic = spec.in_place and told and not reshaped
    surplus = _surplus(current, frozenset(wanted)) if elastic else ()
    kept = {pod.uid for pod in (*members.values(), *leaving.values(), *surplus)}
    absent = tuple(each for each in everyone if each not in members)
    completed = _completed(absent, status)
    not_there = [each for each in absent if each not in completed and each not in leaving]
    missing = tuple(each for each in not_there if each not in aside)
    return Gang(
        wanted=wanted,
        aside=aside,
        members=members,
        stale=tuple(pod for pod in seen.pods if pod.uid not in kept),
        leaving=tuple(leaving.values()),
        missing=missing,
        missing_aside=tuple(each for each in not_there if each in aside),
        vanished=_vanished(spec, missing, status),
        completed=completed,
        surplus=surplus,
        elastic=elastic,
        resized=not elastic and not reshaped and bool(sizes - {spec.gang_size}),
        outdated=reshaped or any(pod.made_from not in ("", fingerprint) for pod in gang),
    )


def _fixed(size: str) -> list[str]:
    """The numbers of the roles that launchers cannot be told of, in the shape of a gang: of all but the workers."""
    return [each for each in size.split(",") if not each.startswith("worker=")]


def _surplus(current: Mapping[Replica, Pod], wanted: frozenset[Replica]) -> tuple[Pod, ...]:
    return tuple(pod for each, pod in current.items() if each.role == "worker" and each not in wanted)


def _is_current(pod: Pod, spec: JobSpec, status: Status) -> bool:
    """Whether the pod is of the present attempt. Without a launcher an evaluator goes on over those of the gang, as
    long as what it was told of the gang is right."""
    if pod.replica is not None and pod.replica.role == "evaluator" and not spec.in_place:
        return (pod.gang, pod.made_from) == (spec.gang_size, spec.fingerprint)
    return pod.attempt == status.attempt


def count(gang: Gang, old: Mapping[str, Counts]) -> dict[str, Counts]:
    """The numbers of the status, a role at a time."""
    counts: dict[str, Counts] = {}
    # Pods that are there were used, also if no status was written since they were made.
    there = [pod.replica for pod in (*gang.stale, *gang.leaving, *gang.surplus) if pod.replica]
    for role in ROLES:
        wanted = [each for each in (*gang.wanted, *gang.aside) if each.role == role]
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
                highest=max(old.get(role, Counts()).highest, *used, 0),
                completed_indexes=pack(each.index for each in wanted if is_done(gang, each)),
                absent_indexes=pack(each.index for each in wanted if each not in gang.members),
            )
    return counts


def _vanished(spec: JobSpec, missing: tuple[Replica, ...], status: Status) -> tuple[Replica, ...]:
    """Those of the missing that are lost rather than not made yet. Once it has trained a gang with launchers may be
    without some for long: then it counts who was there, otherwise whether all were."""
    then = [counts for role, counts in status.replicas.items() if role in GANG_ROLES]
    complete = bool(then) and all(counts.desired <= counts.seen for counts in then)
    if not complete and (not spec.in_place or status.phase not in ("Running", "Restarting")):
        return ()
    had = {role: counts.had(_indexes(missing, role)) for role, counts in status.replicas.items()}
    return tuple(each for each in missing if each.index in had.get(each.role, ()))


def is_done(gang: Gang, member: Replica) -> bool:
    """Whether the member's pod has finished, or had before it was deleted."""
    return member in gang.done


def _completed(absent: tuple[Replica, ...], status: Status) -> frozenset[Replica]:
    """The absent members that had finished before somebody deleted their pods: they never run again."""
    done = {role: chosen(counts.completed_indexes, _indexes(absent, role)) for role, counts in status.replicas.items()}
    return frozenset(each for each in absent if each.index in done.get(each.role, ()))


def _indexes(replicas: tuple[Replica, ...], role: str) -> list[int]:
    return [each.index for each in replicas if each.role == role]
