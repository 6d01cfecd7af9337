"""The operator's metrics of its own work: queue, failed passes, refusals, events, requests, watches, event loop."""

import asyncio
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

PROBE_SECONDS = 0.25
LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
QUEUE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Internals:
    """The metrics of the operator's own work, in `registry`. The attributes `queue_depth`, `failing_jobs`,
    `reconciled_jobs`, `watch_ages` (the seconds since the last answer to each watch) and `refused_watches` are called
    at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.queue_depth: Callable[[], int] = lambda: 0
        self.failing_jobs: Callable[[], int] = lambda: 0
        self.reconciled_jobs: Callable[[], int] = lambda: 0
        self.watch_ages: Callable[[], dict[str, float]] = dict
        self.refused_watches: Callable[[], list[str]] = list
        self._queue = Histogram(
            "tftraining_queue_seconds",
            "The wait of a job for its pass, without the pauses after failing passes.",
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self._failed = Counter(
            "tftraining_failed_passes",
            "Passes that failed, by the reasons of the condition ReconcileError.",
            ["reason"],
            registry=registry,
        )
        self._refused = Counter(
            "tftraining_refused_writes",
            "Writes of children, and deletions of jobs, that the API server refused, by HTTP status.",
            ["method", "code"],
            registry=registry,
        )
        self._dropped = Counter(
            "tftraining_dropped_events",
            "Kubernetes Events that were not sent: QueueFull if 1,000 others were waiting, NotAccepted if the API "
            "server refused the event or gave no answer.",
            ["cause"],
            registry=registry,
        )
        self._lag = Histogram(
            "tftraining_event_loop_lag_seconds",
            "How much later than asked the operator's event loop, which all its work shares, ran a timer; measured "
            "four times a second.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self._requests = Histogram(
            "tftraining_api_request_seconds",
            "Seconds from a request to the head of its answer. method is WATCH for a watch, and PROXY for a request "
            "to a launcher through the API server, which the launcher may hold; code is 0 for no answer.",
            ["method", "code"],
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The states at the moment of the scrape."""
        depth = GaugeMetricFamily("tftraining_queue_depth", "Jobs that wait for a pass.")
        depth.add_metric([], self.queue_depth())
        failing = GaugeMetricFamily("tftraining_failing_jobs", "Jobs whose last pass failed.")
        failing.add_metric([], self.failing_jobs())
        reconciled = GaugeMetricFamily(
            "tftraining_reconciled_jobs",
            "Jobs that have had a pass of this process. After a start or a take-over it reaches the sum of "
            "tftraining_jobs once the operator has looked at every job.",
        )
        reconciled.add_metric([], self.reconciled_jobs())
        ages = GaugeMetricFamily(
            "tftraining_watch_age_seconds",
            "Seconds since the API server's last answer to a watch. A bookmark a minute keeps it below 90; that of "
            "the jobs is exact to a second.",
            labels=["watch"],
        )
        for watch, age in self.watch_ages().items():
            ages.add_metric([watch], age)
        refused = GaugeMetricFamily(
            "tftraining_refused_watches",
            "1 for each watch that the API server refuses to the operator's account; it is tried again once a minute "
            "at least.",
            labels=["watch"],
        )
        for watch in self.refused_watches():
            refused.add_metric([watch], 1)
        return (depth, failing, reconciled, ages, refused)

    def waited(self, seconds: float) -> None:
        """A job has waited so long for its pass."""
        self._queue.observe(seconds)

    def failed(self, reason: str) -> None:
        """A pass has failed."""
        self._failed.labels(reason).inc()

    def refused(self, method: str, code: int) -> None:
        """The API server has refused a write."""
        self._refused.labels(method, str(code)).inc()

    def dropped(self, cause: str) -> None:
        """An event was not sent: QueueFull or NotAccepted."""
        self._dropped.labels(cause).inc()

    def answered(self, method: str, code: int, seconds: float) -> None:
        """A request was answered after so long; code 0 for no answer."""
        self._requests.labels(method, str(code)).observe(seconds)

    async def probe_event_loop(self) -> None:
        """Measure until cancelled how late the event loop runs a timer."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_SECONDS
            await asyncio.sleep(PROBE_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))
