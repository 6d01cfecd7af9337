"""The operator's Prometheus metrics: leader, jobs by phase, restarts by reason, durations of passes and recoveries.

The metrics of the operator's own work are in tftraining_operator/cluster/internals.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as Total
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tftraining.launch.failure import incident, restart_rules, same_member
from tftraining_api.model.goodput import WORDS, Goodput
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import REPLICAS_DIFFER, RESUMED_TRAINING_DIFFERS, SLOW_MEMBER, Status
from tftraining_api.model.times import readable
from tftraining_operator.cluster.internals import Internals
from tftraining_operator.model.launcher_report import SOURCES
from tftraining_operator.model.observed import DISRUPTION_REASONS, NODE_REBOOT_REASONS
from tftraining_operator.plan import auxiliary_objects, node_loss
from tftraining_operator.plan.incident import NODE_CONDITION

PHASES = ("Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed")
# Reasons that Kubernetes and Kueue give to pods and containers, beyond those that the operator interprets.
POD_REASONS = (
    "PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC",
    "TerminationByKubelet", "PodDeleted", "DisruptionTarget", "Evicted", "DeadlineExceeded",
    "OutOfcpu", "OutOfmemory", "OutOfpods", "ContainerCannotRun", "StartError", "Completed",
    "WorkloadEvictedDueToPreempted", "WorkloadEvictedDueToPodsReadyTimeout", "WorkloadEvictedDueToAdmissionCheck",
    "WorkloadEvictedDueToClusterQueueStopped", "WorkloadEvictedDueToLocalQueueStopped",
    "WorkloadEvictedDueToNodeFailures", "WorkloadEvictedDueToDeactivated",
)  # fmt: skip
JOB_REASONS = (
    *restart_rules.REASONS,
    *incident.LOSSES,
    *incident.PLANNED,
    node_loss.REASON,
    NODE_CONDITION,
    auxiliary_objects.KEY_LOST,
    RESUMED_TRAINING_DIFFERS,
    *same_member.NEW_POD,
)
# Reasons come from users' pods, and each label value is a permanent time series: unknown reasons share OTHER_REASON.
KNOWN_REASONS = frozenset((*JOB_REASONS, *POD_REASONS, *DISRUPTION_REASONS, *NODE_REBOOT_REASONS))
OTHER_REASON = "Other"
# What one job can have done in a second, at most: the reports of its launchers are not trusted with more. An operator
# that has just started does not know how many restarts it has counted, so one status counts MOST_RESTARTS at most.
RESTARTS_PER_SECOND, STEPS_PER_SECOND, MOST_RESTARTS = 1, 10_000, 3_600
RECOVERY_BUCKETS = (0.5, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600)


class Counted(msgspec.Struct):
    """Until when the restarts, recoveries and losses of one job are counted."""

    restarts: datetime
    recoveries: datetime
    losses: datetime

    @classmethod
    def since(cls, start: datetime) -> "Counted":
        """Nothing is counted since the start of the job."""
        return cls(start, start, start)


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


class Metrics:
    """The operator's registry. `jobs` returns all jobs; `requests` counts the API requests by method. `leading`
    is whether this process is the leader, which alone counts the jobs: a sum over all processes has each job once."""

    def __init__(
        self,
        jobs: Callable[[], list[Manifest]],
        requests: Counter[str],
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self.registry = CollectorRegistry()
        self._jobs = jobs
        self._requests = requests
        self._leading = leading
        self.registry.register(self)
        self.internals = Internals(self.registry)
        self.reconcile = Histogram(
            "tftraining_reconcile_seconds", "Duration of one pass over one job.", registry=self.registry
        )
        self._restarts = Total(
            "tftraining_restarts",
            "Restarts. mode is InPlace for programs restarted in their pods, Recreate for new pods, whatever the job's "
            "mode is. charged is true if the restart was charged to maxRestarts; for InPlace it is true for the "
            "reasons that a program can cause. An unknown reason is Other.",
            ["reason", "charged", "mode"],
            registry=self.registry,
        )
        self._recovery = Histogram(
            "tftraining_recovery_seconds",
            "Time from the interruption of a training until all members train again.",
            buckets=RECOVERY_BUCKETS,
            registry=self.registry,
        )
        self._lost_steps = Total(
            "tftraining_job_lost_steps",
            "Steps repeated because of restarts, by the source of the state: Memory, Peer, Storage, Start, or Other if "
            "no launcher reports it. Those of Start are counted at the next restart or at the end of the job: a later "
            "fit may still resume.",
            ["resumed_from"],
            registry=self.registry,
        )
        self._lost_seconds = Total(
            "tftraining_job_lost_seconds",
            "The seconds that the repeated steps took before the restart, as far as known.",
            ["resumed_from"],
            registry=self.registry,
        )
        self._differing = Total(
            "tftraining_resumed_training_differs",
            "Jobs whose resumed training was found to differ from the undisturbed one.",
            registry=self.registry,
        )
        self._differing_replicas = Total(
            "tftraining_replicas_differ",
            "How often the replicas of a job were found to hold different variables.",
            registry=self.registry,
        )
        self._slow_members = Total(
            "tftraining_slow_members",
            "How often the members of a job were found to wait for a slow one.",
            registry=self.registry,
        )

    def collect(self) -> Iterable[Metric]:
        """Count the jobs by phase at each scrape, so that no job is counted twice or missed."""
        leads = self._leading()
        leader = GaugeMetricFamily(
            "tftraining_leader", "1 if this operator leads, and so reconciles the jobs; 0 if it stands by."
        )
        leader.add_metric([], float(leads))
        requests = CounterMetricFamily("tftraining_api_requests", "Requests to the API server.", labels=["method"])
        for method, count in self._requests.items():
            requests.add_metric([method], count)
        return (leader, requests, *(self._job_gauges() if leads else ()))

    def _job_gauges(self) -> Iterable[Metric]:
        statuses = [_status(raw) for raw in self._jobs()]
        phases = Counter(str(status.get("phase", "Pending")) for status in statuses)
        jobs = GaugeMetricFamily("tftraining_jobs", "Jobs by phase; only the leader has this metric.", labels=["phase"])
        for phase in PHASES:
            jobs.add_metric([phase], phases[phase])
        backed_up = GaugeMetricFamily(
            "tftraining_memory_backup_jobs", "Jobs with a backup in memory; only the leader has this metric."
        )
        backed_up.add_metric([], sum(map(_has_backup, statuses)))
        seconds, now = Counter(dict.fromkeys(WORDS, 0.0)), datetime.now(UTC)
        for status in statuses:
            seconds.update(_goodput(status, now))
        goodput = GaugeMetricFamily(
            "tftraining_goodput_seconds",
            "What the time of all jobs that exist went to, by the names of status.goodput.seconds; only the leader has "
            "this metric.",
            labels=["cause"],
        )
        for cause in WORDS:
            goodput.add_metric([cause], seconds[cause])
        return (jobs, backed_up, goodput)

    def observe(self, old: Status, new: Status, counted: Counted, now: datetime) -> None:
        """Record the restarts and recoveries that a written status adds to the one before it, as far as they can have
        happened since the last ones were `counted`."""
        recreated = new.restarts.recreated - old.restarts.recreated
        in_place = new.restarts.in_place - old.restarts.in_place
        if new.last_restart is not None and recreated + in_place > 0:
            reason = new.last_restart.reason or "Unknown"
            # The charge of a restart in place may have been written before the restart began.
            charged = reason in restart_rules.REASONS if in_place > 0 else new.restarts.counted > old.restarts.counted
            labels = (
                reason if reason in KNOWN_REASONS else OTHER_REASON,
                str(charged).lower(),
                "InPlace" if in_place > 0 else "Recreate",
            )
            most = min(MOST_RESTARTS, 1 + int(_seconds(counted.restarts, now)) * RESTARTS_PER_SECOND)
            self._restarts.labels(*labels).inc(min(recreated + in_place, most))
            counted.restarts = now
        if new.last_restart is not None and new.last_restart.down_seconds is not None:
            before = old.last_restart
            if before is None or before.time != new.last_restart.time or before.down_seconds is None:
                self._recovery.observe(min(new.last_restart.down_seconds, _seconds(counted.recoveries, now)))
                counted.recoveries = now
        self._observe_lost_work(old, new, counted, now)
        if new.is_true(RESUMED_TRAINING_DIFFERS) and not old.is_true(RESUMED_TRAINING_DIFFERS):
            self._differing.inc()
        if new.is_true(REPLICAS_DIFFER) and not old.is_true(REPLICAS_DIFFER):
            self._differing_replicas.inc()
        if new.is_true(SLOW_MEMBER) and not old.is_true(SLOW_MEMBER):
            self._slow_members.inc()

    def _observe_lost_work(self, old: Status, new: Status, counted: Counted, now: datetime) -> None:
        """Count the repeated steps of a restart once: in the first status after which they cannot become fewer."""
        before, last, known = old.last_restart, new.last_restart, _has_lost_for_good(old)
        is_another = before is not None and last is not None and before.time != last.time
        final = [before] if is_another and not known else []
        if _has_lost_for_good(new) and (is_another or not known):
            final.append(last)
        seconds = _seconds(counted.losses, now)
        for each in final:
            if each is None or each.lost_steps is None:
                continue
            counted.losses = now
            source = each.resumed_from if each.resumed_from in SOURCES else OTHER_REASON
            self._lost_steps.labels(source).inc(min(each.lost_steps, seconds * STEPS_PER_SECOND))
            self._lost_seconds.labels(source).inc(min(each.lost_seconds or 0.0, seconds))


def _has_lost_for_good(status: Status) -> bool:
    """Whether it is known what the last restart has lost: behind a `fit` that began again a later one may resume."""
    last = status.last_restart
    known = last is not None and last.lost_steps is not None
    return known and (status.terminal or (last is not None and last.resumed_from != "Start"))


def _status(job: Manifest) -> Manifest:
    """The status; empty where another version, or somebody else, has written something else."""
    status = job.get("status")
    return status if isinstance(status, dict) else {}


def _goodput(status: Manifest, now: datetime) -> dict[str, float]:
    """The seconds of a job by cause; none of a job without an account, or with one that somebody has written."""
    try:
        return msgspec.convert(readable(status.get("goodput") or {}), Goodput).until(now)
    except msgspec.ValidationError:
        return {}


def _has_backup(status: Manifest) -> bool:
    progress = status.get("progress")
    return isinstance(progress, dict) and progress.get("backup") is not None
