"""Whether the ResourceQuotas of a namespace have room for a whole gang. A gang whose pods are being created has its
room to itself until they are all there; among gangs that wait the oldest goes first. Never creates or deletes anything.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import Job, parse_job
from tftraining_api.model.names import Key, Replica
from tftraining_api.model.quantity import in_milli
from tftraining_api.model.spec import Frozen, JobSpec, Manifest
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.quotas import MOST_WOKEN, QuotaRequest, Quotas, parse_exceeded_quota
from tftraining_operator.model.observed import QuotaHold, Refusal
from tftraining_operator.model.pod_usage import ONE, selects, usage_of
from tftraining_operator.plan.step import QuotaAsk

Needs = dict[str, Counter[str]]
Rooms = dict[str, "_Room"]


class _Waiting(NamedTuple):
    age: tuple[str, str]
    needs: Needs
    is_too_large: bool


class _Room(Frozen, frozen=True):
    """One quota: its limits, and what is free of them."""

    hard: dict[str, int]
    free: dict[str, int]


class QuotaAdmission:
    """The gangs that are being created, and those that wait. `wake` is called with a job that may go on."""

    def __init__(self, quotas: Quotas, jobs: Jobs, pods: ChildStore, wake: Callable[[Key], None]) -> None:
        self._quotas, self._jobs, self._pods, self._wake = quotas, jobs, pods, wake
        self._admitted: dict[Key, tuple[str, Needs]] = {}
        self._waiting: dict[Key, _Waiting] = {}
        # The amounts of one pod that a refusal told, where they are more than its manifest says.
        self._told: dict[Key, dict[str, int]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def admit(self, job: Job, ask: QuotaAsk | None, refusal: Refusal | None) -> QuotaHold | None:
        """Why the gang has to wait; None if its pods may be created. Its room is its own until `ask` is None."""
        key, told = job.key, parse_exceeded_quota(refusal.message) if refusal is not None else None
        if ask is None or job.spec is None:
            self.end(key)
            return None
        if told is not None:
            self._told[key] = told.requested
        elif self._admitted.get(key, ("",))[0] == job.uid:
            return None
        async with self._locks[key.namespace]:
            # Before the list: what is created meanwhile counts twice rather than not at all.
            taken = [needs for other, (_, needs) in self._admitted.items() if _beside(other, key)]
            quotas = await self._quotas.read(key.namespace, fresh=told is not None)
            return self._judge(job, ask, quotas, taken) if quotas else None

    def request(self, key: Key) -> QuotaRequest | None:
        """What wakes the job: the room that it waits for."""
        waiting = self._waiting.get(key)
        short = next(iter(waiting.needs.items()), None) if waiting else None
        return QuotaRequest(short[0], dict(short[1])) if short else None

    def end(self, key: Key) -> None:
        """The job creates no pods any more, or waits for something else: others may go on."""
        self._told.pop(key, None)
        if self._admitted.pop(key, None) is None and self._waiting.pop(key, None) is None:
            return
        beside = [each for each in self._waiting if _beside(each, key)]
        for each in sorted(beside, key=lambda each: self._waiting[each].age)[:MOST_WOKEN]:
            self._wake(each)

    def _judge(self, job: Job, ask: QuotaAsk, quotas: list[Manifest], taken: list[Needs]) -> QuotaHold | None:
        assert job.spec is not None
        key, needs = job.key, self._needs(job, job.spec, ask.replicas, quotas)
        rooms = {each["metadata"]["name"]: _room(each, taken) for each in quotas}
        short = {name: _over(need, rooms[name].free) for name, need in needs.items()}
        short = {name: over for name, over in short.items() if over}
        self._admitted.pop(key, None)
        age = _age(self._jobs.get(key))
        older = [each for each, other in self._waiting.items() if _beside(each, key) and _goes_first(other, age, needs)]
        if not short and not (older and ask.begins):
            self._waiting.pop(key, None)
            self._admitted[key] = (job.uid, needs)
            return None
        large = [name for name in short if self._is_too_large(job, job.spec, name, needs[name], rooms[name], quotas)]
        first = sorted(needs.items(), key=lambda each: each[0] not in short)
        self._waiting[key] = _Waiting(age, dict(first), bool(large))
        # While another gang waits that this one keeps from starting.
        beside = older or (large and any(_beside(each, key) for each in self._waiting))
        gives_back = ask.begins and ask.holds and bool(beside)
        return QuotaHold(_words(ask, needs, rooms, short, large, older), gives_back)

    def _needs(self, job: Job, spec: JobSpec, replicas: Iterable[Replica], quotas: list[Manifest]) -> Needs:
        """What the replicas need of each quota that limits them."""
        numbers, needs = Counter(each.role for each in replicas), defaultdict[str, Counter[str]](Counter)
        for role, number in numbers.items():
            manifest = pod(job, spec, Replica(role, 0), "")
            told, used = self._told.get(job.key, {}), usage_of(manifest)
            used |= {name: max(amount, used.get(name, 0)) for name, amount in told.items()}
            for quota in quotas:
                if selects(quota, manifest):
                    hard = _hard(quota)
                    need = {name: amount * number for name, amount in used.items() if name in hard and amount}
                    needs[quota["metadata"]["name"]].update(need)
        return {name: need for name, need in needs.items() if need}

    def _is_too_large(
        self, job: Job, spec: JobSpec, name: str, need: Counter[str], room: _Room, quotas: list[Manifest]
    ) -> bool:
        """Whether the quota could not hold the gang if no other job of this operator had a pod."""
        quota = [each for each in quotas if each["metadata"]["name"] == name]
        ours: Counter[str] = Counter()
        known = self._jobs.keys()
        for key in (each for each in known if each.namespace == job.key.namespace):
            live, raw = self._live(key), self._jobs.get(key)
            other = parse_job(raw) if live and raw is not None else None
            if other is not None and other.spec is not None:
                ours.update(self._needs(other, other.spec, live, quota).get(name, {}))
        used = _used(quota[0])
        # The gang's own pods are among ours, and it needs them too.
        own = self._needs(job, spec, self._live(job.key), quota).get(name, Counter())
        others = {each: max(0, used.get(each, 0) - ours[each]) for each in room.hard}
        most = {each: hard - others[each] - own[each] for each, hard in room.hard.items()}
        return bool(_over(need, most))

    def _live(self, key: Key) -> list[Replica]:
        pods = [each.pod for each in self._pods.of(key) if each.pod is not None]
        return [each.replica for each in pods if each.replica is not None and not each.ended]


def _room(quota: Manifest, taken: list[Needs]) -> _Room:
    hard, used = _hard(quota), Counter(_used(quota))
    for needs in taken:
        used.update(needs.get(quota["metadata"]["name"], {}))
    return _Room(hard, {each: amount - used[each] for each, amount in hard.items()})


def _hard(quota: Manifest) -> dict[str, int]:
    return _amounts((quota.get("status") or {}).get("hard") or (quota.get("spec") or {}).get("hard"))


def _used(quota: Manifest) -> dict[str, int]:
    return _amounts((quota.get("status") or {}).get("used"))


def _amounts(written: object) -> dict[str, int]:
    return {name: in_milli(each) or 0 for name, each in written.items()} if isinstance(written, dict) else {}


def _text_of(milli: int) -> str:
    return f"{milli}m" if milli % ONE else str(milli // ONE)


def _over(need: Counter[str], room: dict[str, int]) -> list[str]:
    return [name for name, amount in need.items() if amount > room.get(name, amount)]


def _beside(other: Key, key: Key) -> bool:
    return other.namespace == key.namespace and other != key


def _goes_first(other: _Waiting, age: tuple[str, str], needs: Needs) -> bool:
    return other.age < age and not other.is_too_large and not needs.keys().isdisjoint(other.needs)


def _age(raw: Manifest | None) -> tuple[str, str]:
    meta = (raw or {"metadata": {"uid": ""}})["metadata"]
    return meta.get("creationTimestamp", ""), meta["uid"]


def _words(
    ask: QuotaAsk, needs: Needs, rooms: Rooms, short: dict[str, list[str]], large: list[str], first: list[Key]
) -> str:
    """The message: without what others use, because each change of that would be one more write of the status."""
    if not short:
        return f"room in the quota {next(iter(needs))} goes to the older job {first[0].name} first"
    name = (large or list(short))[0]
    resource = short[name][0]
    asked, hard = _text_of(needs[name][resource]), _text_of(rooms[name].hard[resource])
    pods = f"{len(ask.replicas)} pod{'s' * (len(ask.replicas) != 1)}"
    if large:
        return f"{pods} never fit in the quota {name}: they need {resource}={asked} of {hard}, beside what others use"
    return f"{pods} wait for room in the quota {name}: they need {resource}={asked} of {hard}"
