"""One pass over one job: cache → plan → one status write → children → events.

The status is written first, because it holds the intent (a new attempt, a charge, the end): after a crash the next pass
carries the intent out, and the API server rejects a pass on an outdated job (409) before that pass changes anything.
A pass that writes no status reads the job again before it touches a child: nothing else detects an outdated job.
A new job without launchers has no intent to lose: its children are created before its first status write. The intent
of one with launchers is its Keras (see plan/keras.py).
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from tftraining_api.kube.api import ApiError
from tftraining_api.model.job import Job, dump_status, has_condition, parse_job, readable_status, restart_request
from tftraining_api.model.names import KIND, Key
from tftraining_api.model.spec import Manifest
from tftraining_api.model.times import saturated
from tftraining_operator.cluster import logs
from tftraining_operator.cluster.children import Children, Turn
from tftraining_operator.cluster.errors import WriteRefused
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.launcher_reports import LauncherReports, launcher_endpoint
from tftraining_operator.cluster.metrics import Counted, Metrics
from tftraining_operator.cluster.node_departures import INTERVAL, NodeDepartures
from tftraining_operator.cluster.quota_admission import QuotaAdmission
from tftraining_operator.cluster.quotas import Quotas
from tftraining_operator.cluster.storage_admission import StorageAdmission
from tftraining_operator.cluster.work_queue import Lane, WorkQueue
from tftraining_operator.model.observed import Observed, QuotaHold, Refusal
from tftraining_operator.plan.failing_pass import RECONCILE_ERROR, event_of, failing, reason_of
from tftraining_operator.plan.look_first import must_look
from tftraining_operator.plan.refused_writes import judge, reworded
from tftraining_operator.plan.status_writes import (
    KERAS,
    Path,
    dropped_fields,
    due,
    is_progress,
    is_written,
    longest_delay,
)
from tftraining_operator.plan.step import Planner, Step

logger = logging.getLogger(__name__)
# Number of replicas or pods of a large gang. The planner takes less than a few milliseconds for a smaller one.
LARGE = 500


class _Memory(msgspec.Struct):
    """The reconciler's memory of a job between passes; its loss costs a request, but never causes a wrong step.
    `written` is when the status was last written, `dropped` what the API server did not keep of it. The last pass may
    be `interrupted` for the turn of others; `prepared` is whether it had begun to create pods."""

    uid: str
    generation: int
    written: datetime
    counted: Counted
    looked: bool = False
    dropped: frozenset[Path] = frozenset()
    refusal: Refusal | None = None
    refused_changes: dict[str, Refusal] = msgspec.field(default_factory=dict)
    interrupted: bool = False
    prepared: bool = False


class Dependencies(NamedTuple):
    """The dependencies of a pass."""

    jobs: Jobs
    children: Children
    launcher_reports: LauncherReports
    quotas: Quotas
    events: Events
    metrics: Metrics


class Reconciler:
    """Carries out passes. `plan` is the planner with its settings bound, `departure_interval` the time between two pods
    that leave nodes for a condition; `clock` returns the time, with a time zone."""

    def __init__(
        self, dependencies: Dependencies, queue: WorkQueue, plan: Planner, departure_interval: timedelta = INTERVAL
    ) -> None:
        self._jobs, self._children, self._launcher_reports, self._quotas, self._events, self._metrics = dependencies
        self._queue = queue
        self._quota_admission = QuotaAdmission(self._quotas, self._jobs, self._children.pods, queue.add)
        self._storage = StorageAdmission(self._jobs, self._children.pods, queue.add)
        self._departures = NodeDepartures(self._jobs, departure_interval)
        self._plan = plan
        self._memories: dict[Key, _Memory] = {}
        self._deciding = asyncio.Semaphore(1)
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def __call__(self, key: Key) -> None:
        """Do one pass. Raises ApiError for an error after which the queue should retry."""
        raw = self._jobs.get(key)
        if raw is None:
            self._memories.pop(key, None)
            self._launcher_reports.follow(key, None)
            self._quotas.follow(key, None)
            self._quota_admission.end(key)
            self._storage.passed(key)
            return
        with self._metrics.reconcile.time():
            await self._pass(key, raw)
        self._storage.passed(key)
        await self._end_failing(key)

    def lane(self, key: Key) -> Lane:
        """The job's lane in the queue: a job is new until a pass over it has begun."""
        memory = self._memories.get(key)
        if memory is None:
            return Lane.NEW
        return Lane.INTERRUPTED if memory.interrupted else Lane.OTHER

    @property
    def reconciled(self) -> int:
        """The number of jobs over which a pass has begun. It reaches that of all jobs some time after a start."""
        return len(self._memories)

    async def report_failure(self, key: Key, error: Exception, failures: int) -> None:
        """Count a failing pass; once several in a row have failed, set the condition ReconcileError."""
        is_answer = isinstance(error, ApiError)
        reason = reason_of(error.status if isinstance(error, ApiError) else None)
        self._metrics.internals.failed(reason)
        if (raw := self._jobs.get(key)) is None:
            return
        words = str(error) if is_answer else f"a fault of the operator; its log has the place: {error!r}"
        condition = failing(readable_status(raw.get("status")), failures, (reason, words), self.clock())
        if condition is not None:
            # Before the condition, which may be refused as the status is: that of a job that is too large.
            self._events.publish(parse_job(raw), event_of(condition))
            await self._jobs.patch_condition(key, raw, condition)

    async def _end_failing(self, key: Key) -> None:
        """Remove the condition ReconcileError after a pass that succeeded."""
        raw = self._jobs.head(key)
        if raw is None or not has_condition(raw.get("status"), RECONCILE_ERROR):
            return
        try:
            await self._jobs.remove_condition(key, raw, RECONCILE_ERROR)
        except ApiError as error:
            if not error.gone:
                raise
            await self._jobs.refresh(key)
            self._queue.add(key)

    async def _pass(self, key: Key, raw: Manifest) -> None:
        job, now = parse_job(raw), self.clock()
        logs.current.set((key, job.status.attempt))
        memory = self._memory(job, now)
        memory.interrupted = False
        if memory.refusal is not None and self._quotas.has_room(key):
            memory.refusal = msgspec.structs.replace(memory.refusal, retry_at=now)
        observed = self._observe(job, memory)
        step = await self._decide(job, observed, now)
        if (hold := await self._quota_admission.admit(job, step.quota, memory.refusal)) is not None:
            memory.refusal = None
            observed = self._observe(job, memory, hold)
            step = await self._decide(job, observed, now)
        if must_look(job, step, memory.looked):
            await self._children.look(job)
            memory.looked = True
            observed = self._observe(job, memory, hold)
            step = await self._decide(job, observed, now)
        if step.departs and (due_from := self._departures.take(now)) is not None:
            observed = msgspec.structs.replace(observed, departs_from=due_from)
            step = await self._decide(job, observed, now)
        self._launcher_reports.follow(key, launcher_endpoint(job, step.status, observed.pods))
        due_at = due(job, step.status, memory.written, self._launcher_reports.followed)
        # `written <= now`: a clock that was set back must not delay the status until the clock has caught up.
        is_unchanged = is_written(job.status, step.status, memory.dropped)
        kept = is_unchanged or memory.written <= now < due_at
        if kept and not step.delete_job:
            if not is_unchanged:
                self._queue.add_after(key, (due_at - now).total_seconds())
            may_apply = not step.touches_children or await self._is_unchanged(key, raw)
        else:
            may_apply = await self._write(raw, job, step, memory)
        if not may_apply:
            return
        await self._apply(job, step, memory)
        self._quotas.follow(key, None if step.status.terminal else memory.refusal, self._quota_admission.request(key))
        if step.requeue_at is not None:
            self._queue.add_after(key, (step.requeue_at - self.clock()).total_seconds())

    def _observe(self, job: Job, memory: _Memory, hold: QuotaHold | None = None) -> Observed:
        return msgspec.structs.replace(
            self._children.observe(job),
            refusal=memory.refusal,
            refused_changes=memory.refused_changes,
            launcher_report=self._launcher_reports.last_report(job.key),
            launcher_silent=self._launcher_reports.is_silent(job.key),
            storage=self._storage.observe(job, may_begin=hold is None),
            quota=hold,
            keras_dropped=KERAS in memory.dropped,
        )

    async def _decide(self, job: Job, observed: Observed, now: datetime) -> Step:
        """The next step. Planning for a large gang takes 0.1 s on a slow machine: a thread does it, so the event loop
        stays responsive. One thread at a time: several would all compete with the event loop."""
        size = max(len(observed.pods), len(job.spec.gang) if job.spec is not None else 0)
        if size < LARGE:
            return self._plan(job, observed, now)
        async with self._deciding:
            return await asyncio.to_thread(self._plan, job, observed, now)

    def _memory(self, job: Job, now: datetime) -> _Memory:
        """The memory of the job. It is reset for a new job of that name and for a new spec: the API server may accept
        their writes where it refused the old ones."""
        memory = self._memories.get(job.key)
        if memory is None or (memory.uid, memory.generation) != (job.uid, job.generation):
            # The children of a new job are known from the answers to their creation.
            looked = job.status.phase == "Pending" or (memory is not None and memory.uid == job.uid and memory.looked)
            start = saturated(max(job.created, job.status.start_time or job.created))
            counted = memory.counted if memory is not None and memory.uid == job.uid else Counted.since(start)
            memory = self._memories[job.key] = _Memory(job.uid, job.generation, now, counted, looked)
        return memory

    async def _write(self, raw: Manifest, job: Job, step: Step, memory: _Memory) -> bool:
        """Write the status (or delete the job), then publish the events. False if the pass must stop, because the job
        has changed or its deletion was refused."""
        key = job.key
        try:
            answer = await self._write_job(key, raw, step)
        except ApiError as error:
            if not error.gone and step.delete_job:
                self._remember(job, memory, [WriteRefused.to("DELETE", f"{KIND.lower()}/{key.name}", error)])
                return False
            if not error.gone:
                raise
            await self._jobs.refresh(key)
            self._queue.add(key)
            return False
        if answer is not None:
            memory.written = self.clock()
            if step.patch_condition is None:  # a patch sends no other field
                memory.dropped = frozenset(dropped_fields(dump_status(step.status), answer.get("status") or {}))
        self._metrics.observe(job.status, step.status, memory.counted, self.clock())
        for event in step.events:
            self._events.publish(job, event)
        if is_progress(job.status, step.status):
            # The next progress is written then: its news before that start no pass of their own.
            self._queue.add_after(key, longest_delay(self._launcher_reports.followed).total_seconds())
        else:
            # The next step may follow from this one. The watch event of this write starts no pass: the cache has the
            # job from the answer already.
            self._queue.add(key)
        return True

    async def _write_job(self, key: Key, raw: Manifest, step: Step) -> Manifest | None:
        """The job in the answer; None for a deletion."""
        if step.delete_job:
            await self._jobs.delete(key, raw)
            return None
        if step.patch_condition is not None:
            return await self._jobs.patch_condition(key, raw, step.patch_condition)
        return await self._jobs.write_status(key, raw, step.status)

    async def _is_unchanged(self, key: Key, raw: Manifest) -> bool:
        """Whether the job has not changed since this pass read it from the cache. The watch of this operator, or of a
        second one, may lag behind a change or a deletion."""
        await self._jobs.refresh(key)
        known = self._jobs.head(key)
        if known is not None and known["metadata"] is raw["metadata"]:
            return True
        self._queue.add(key)
        return False

    async def _apply(self, job: Job, step: Step, memory: _Memory) -> None:
        turn = Turn(partial(self._is_current, job), lambda: self._queue.crowded)
        prepared, memory.prepared = memory.prepared, False
        refused = await self._children.change(job, step, turn)
        self._forget_refusals(job, memory, step, refused, turn)
        self._remember(job, memory, refused)
        if turn.over:
            self._interrupt(job, memory, prepared)
            return
        if prepared:
            # The interrupted pass has made sure of them a moment ago.
            step = msgspec.structs.replace(step, auxiliary_objects=(), create_secret=None, verify_secret=None)
        try:
            await self._children.create(job, step, turn)
        except WriteRefused as error:
            memory.refusal = self._refusal_of(job, error, memory.refusal)
            self._queue.add(job.key)
        else:
            if step.creates or step.auxiliary_objects:
                memory.refusal = None
                self._queue.add(job.key)
            if turn.over:
                self._interrupt(job, memory, True)

    def _interrupt(self, job: Job, memory: _Memory, prepared: bool) -> None:
        """Leave the rest of the pass to the next one."""
        memory.interrupted, memory.prepared = self._is_current(job), prepared
        self._queue.add(job.key)

    def _is_current(self, job: Job) -> bool:
        """Whether the cached job is still the one that the step was planned for, but for its status."""
        meta = (self._jobs.head(job.key) or {"metadata": {}})["metadata"]
        deleting, asked = "deletionTimestamp" in meta, restart_request(meta.get("annotations"))
        known = (meta.get("uid"), meta.get("generation", 1), deleting, asked)
        return known == (job.uid, job.generation, job.deleting, job.restarted_at)

    def _forget_refusals(self, job: Job, memory: _Memory, step: Step, refused: list[WriteRefused], turn: Turn) -> None:
        """Forget refused writes that are no longer wanted or have succeeded."""
        before = memory.refused_changes
        if turn.over or not before:
            return
        still_refused = {each.write for each in refused} | set(step.held_writes)
        memory.refused_changes = {each: old for each, old in before.items() if each in still_refused}
        if len(memory.refused_changes) < len(before):
            # The status still reports the refusal, and the store swallows the watch event of a write whose answer it
            # has: nothing else starts the next pass.
            self._queue.add(job.key)

    def _remember(self, job: Job, memory: _Memory, refused: list[WriteRefused]) -> None:
        """Keep the refused changes; the next pass reports them in the status."""
        for error in refused:
            before = memory.refused_changes.get(error.write)
            # A new dict: the observation of the current pass shares the old one.
            memory.refused_changes = {**memory.refused_changes, error.write: self._refusal_of(job, error, before)}
        if refused:
            self._queue.add(job.key)

    def _refusal_of(self, job: Job, error: WriteRefused, before: Refusal | None) -> Refusal:
        logger.warning("%s: %s was refused: %s", job.key, error.write, error.message)
        self._metrics.internals.refused(error.verb, error.status)
        tries = before.tries + 1 if before is not None else 1
        refusal = judge(error.child, error.status, error.message, tries, self.clock(), error.retry_after)
        return reworded(before, refusal)
