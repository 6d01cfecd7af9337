"""Kubernetes Events about a job, sent in the background so that they never delay a pass."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from tftraining_api.kube.api import Api
from tftraining_api.model.job import Job
from tftraining_api.model.names import API_VERSION, KIND, MANAGER
from tftraining_api.model.spec import Manifest
from tftraining_operator.plan.step import Event

logger = logging.getLogger(__name__)
NOTE_BYTES, REASON_LENGTH = 1024, 128


class Events:
    """Publishes events as events.k8s.io/v1 Events. `dropped` is called with the cause of each event not sent."""

    def __init__(self, api: Api, instance: str, dropped: Callable[[str], None] = lambda cause: None) -> None:
        self._api = api
        self._dropped = dropped
        self._instance = instance
        self._queue: asyncio.Queue[Manifest] = asyncio.Queue(maxsize=1000)

    def publish(self, job: Job, event: Event) -> None:
        """Queue an event; if the API server does not keep up, events are dropped to bound memory."""
        logger.info("%s: %s: %s", job.key, event.reason, event.message)
        try:
            self._queue.put_nowait(_event(job, event, self._instance, self._api.clock.now()))
        except asyncio.QueueFull:
            self._dropped("QueueFull")
            logger.warning("%s: event %s dropped: too many events are waiting", job.key, event.reason)

    async def run(self) -> None:
        """Send queued events until cancelled."""
        while True:
            event = await self._queue.get()
            namespace = event["metadata"]["namespace"]
            try:
                await self._api.request("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
            except Exception as error:  # the writer goes on, whatever is wrong with one event
                self._dropped("NotAccepted")
                logger.warning("cannot write an event: %s", error)


def _event(job: Job, event: Event, instance: str, now: datetime) -> Manifest:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{job.key.name}-", "namespace": job.key.namespace},
        "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": job.key.name,
            "namespace": job.key.namespace,
            "uid": job.uid,
        },
        "type": event.type,
        "reason": event.reason[:REASON_LENGTH],
        "note": event.message.encode()[:NOTE_BYTES].decode(errors="ignore"),
        "action": "Reconcile",
        "reportingController": MANAGER,
        "reportingInstance": instance[:128],
    }
