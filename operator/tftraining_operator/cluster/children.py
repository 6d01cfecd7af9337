"""Creates and deletes the children of a job; every operation is idempotent."""

import asyncio
import logging
import re
import secrets
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from tftraining.launch.roles import GANG_ROLES
from tftraining_api.kube.api import Api, ApiError, encoded
from tftraining_api.manifests.launcher import KEY
from tftraining_api.model.job import Job
from tftraining_api.model.names import GROUP, KIND, LABEL_ATTEMPT, LABEL_JOB, LABEL_ROLE, Key
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster import auxiliary_objects
from tftraining_operator.cluster.child_store import ChildStore, job_of
from tftraining_operator.cluster.errors import WriteRefused
from tftraining_operator.cluster.kubelet_warnings import KubeletWarnings
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.model.kubelet_warning import with_kubelet_warning
from tftraining_operator.model.leftovers import leaving_pods, leftovers, of_earlier
from tftraining_operator.model.observed import ATTEMPT, Child, Observed, owned_by, parse_pod, pods_of
from tftraining_operator.plan.context import GRACE_SECONDS
from tftraining_operator.plan.refused_writes import EARLIER, KEY_GONE
from tftraining_operator.plan.step import PodAnnotation, PodDeletion, PodFailure, Step

logger = logging.getLogger(__name__)
# The parallel writes of a pass: an equal share of CONCURRENCY among the passes that write, at least LEAST_CONCURRENCY.
# Beside the scheduler and the kubelets of the first pods, the API server creates the pods of one large job faster with
# 64 requests at a time than with 16. Each one more costs a TLS connection and 0.3 MiB.
CONCURRENCY, LEAST_CONCURRENCY = 64, 16
# Seconds: most manifests take less than a thousandth.
LONG_BUILD = 0.002
KEY_BYTES = 32
# Attempt label of a pod whose attempt is unknown: older than attempt 1.
PAST = "0"
GROUP_DROPPED = (
    "the API server drops spec.schedulingGroup: turn on the feature gate GenericWorkload of all API servers, or remove "
    "spec.runPolicy.scheduling.gang"
)
NOT_OWNED = "already exists and does not belong to this job: delete it, or rename the job"
UNLABELLED = "belongs to this job, but its labels keep disappearing: find the controller or webhook that removes them"


class Turn:
    """The turn of one pass among the writes of all jobs: `next` says whether it may send one more. The turn is over as
    soon as the pass is out of date, and after LEAST_CONCURRENCY writes if others wait: a small job waits for the writes
    that are on their way, and not for all those of a large job."""

    def __init__(
        self, is_current: Callable[[], bool] = lambda: True, others_wait: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_current = is_current
        self._others_wait = others_wait
        self._writes = 0
        self.over = False

    def next(self) -> bool:
        """Whether the pass may send one more write."""
        self._writes += 1
        gives_way = self._writes > LEAST_CONCURRENCY and self._others_wait()
        self.over = self.over or gives_way or not self._is_current()
        return not self.over


class Children:
    """The Services and pods of all jobs, with caches of them, of the pods' nodes and of kubelets' warnings."""

    def __init__(self, api: Api, pods: ChildStore, services: ChildStore, nodes: NodeStore) -> None:
        self._api = api
        self.pods = pods
        self.services = services
        self.nodes = nodes
        self.warnings = KubeletWarnings(pods.job_of)
        pods.forgotten = self.warnings.forget
        self._writing_passes = 0
        self._building = asyncio.Lock()

    def observe(self, job: Job) -> Observed:
        """The job's children, and leftovers of an earlier job of the name, from the caches."""
        children, services = self.pods.of(job.key), self.services.of(job.key)
        left, services_left = of_earlier(job, children), of_earlier(job, services)
        pods = tuple(with_kubelet_warning(pod, self.warnings.of(pod.uid)) for pod in pods_of(children, job.uid))
        earlier = leaving_pods(left)
        return Observed(
            pods=pods,
            service=any(each.name == job.key.name and each.owner == job.uid for each in services),
            nodes=self.nodes.of({pod.node for pod in (*pods, *earlier) if pod.node}),
            leftovers=(*leftovers(job, "service", services_left), *leftovers(job, "pod", left)),
            earlier=earlier,
            unreadable=_unreadable(job, "pod", children) or _unreadable(job, "service", services),
        )

    async def look(self, job: Job) -> None:
        """Read the job's pods, and those of their nodes that are not ready, from the API server itself into the caches.
        ApiError if they cannot be read."""
        selector = [("labelSelector", f"{LABEL_JOB}={job.key.name}")]
        listed = await self._api.list(f"/api/v1/namespaces/{job.key.namespace}/pods", selector, ChildStore.lean)
        self.pods.replace_job(job.key, *listed)
        await self.nodes.look({child.node for child in self.pods.of(job.key) if child.node})

    async def change(self, job: Job, step: Step, turn: Turn | None = None) -> list[WriteRefused]:
        """Carry out a step's deletions, pod failures and annotations, until the turn is over; returns the refused ones.
        After a refusal the other writes continue. The Service is deleted last, once all auxiliary objects are deleted:
        a pass deletes those only while the Service exists."""
        turn = turn or Turn()
        deletions = [partial(self._delete_pod, job, each) for each in step.delete_pods]
        failures = [partial(self._fail_pod, job, each) for each in step.fail_pods]
        annotations = [partial(self._annotate, job, each) for each in (step.annotate_pod,) if each is not None]
        refused = await self._write_all([*deletions, *failures, *annotations], turn)
        refused_auxiliary = await self._write_all(
            [partial(auxiliary_objects.remove, self._api, job, each) for each in step.delete_auxiliary_objects], turn
        )
        if step.delete_service and not refused_auxiliary:
            refused_auxiliary += await self._write_all([partial(self._delete_service, job)], turn)
        return refused + refused_auxiliary

    async def create(self, job: Job, step: Step, turn: Turn | None = None) -> None:
        """Carry out a step's creations: first the objects that pods need, then the pods until the turn is over.

        Raises WriteRefused for the first refused creation; the later ones are not tried.
        """
        if step.create_service is not None:
            await self._create(job, "services", self.services, step.create_service)
        for each in step.auxiliary_objects:
            await auxiliary_objects.ensure(self._api, job, each)
        if step.create_secret is not None:
            await self._create_secret(job, step.create_secret)
        if step.verify_secret is not None:
            await self._verify_secret(job, step.verify_secret)
        await self._verify_scheduling_group(job, step.create_pods)
        await self._create_pods(job, step.create_pods, turn or Turn())

    async def _verify_scheduling_group(self, job: Job, manifests: Sequence[Manifest]) -> None:
        """Raise WriteRefused if the API server drops spec.schedulingGroup of the first pod: such pods would be placed
        one by one, and half a gang would hold nodes. The check is a dry-run creation."""
        if not manifests or job.spec is None or not job.spec.native_gang:
            return
        first, path = manifests[0], f"/api/v1/namespaces/{job.key.namespace}/pods"
        if not _needs_group(job, first):  # an evaluator
            return
        try:
            answer = await self._api.request("POST", path, first, [("dryRun", "All")])
        except ApiError:
            # A webhook may refuse dry runs only. The answer to the creation itself is looked at, too.
            return
        if "schedulingGroup" not in answer["spec"]:
            raise WriteRefused(f"pod/{first['metadata']['name']}", 501, GROUP_DROPPED)

    async def _verify_created(self, job: Job, raw: Manifest) -> None:
        """Delete a new pod without the spec.schedulingGroup that it was created with, and raise WriteRefused: the dry
        run may have failed, or met another API server. A pod that runs is placed already, so it stays."""
        grouped = not _needs_group(job, raw) or "schedulingGroup" in raw["spec"]
        if grouped or (raw.get("status") or {}).get("phase", "Pending") != "Pending":
            return
        name = raw["metadata"]["name"]
        await self._delete(job.key, f"pods/{name}", raw["metadata"]["uid"], GRACE_SECONDS)
        raise WriteRefused(f"pod/{name}", 501, GROUP_DROPPED)

    async def _create_secret(self, job: Job, manifest: Manifest) -> None:
        """Create the Secret with a new random key; an existing Secret keeps its key."""
        body = {**manifest, "data": {KEY: b64encode(secrets.token_bytes(KEY_BYTES)).decode()}}
        try:
            await self._api.request("POST", f"/api/v1/namespaces/{job.key.namespace}/secrets", body)
        except ApiError as error:
            if not error.exists:
                raise WriteRefused.to("POST", f"secret/{manifest['metadata']['name']}", error) from error

    async def _verify_secret(self, job: Job, manifest: Manifest) -> None:
        """Raise WriteRefused if the Secret does not exist.

        The check is a dry-run creation: the operator may not read Secrets.
        """
        child = f"secret/{manifest['metadata']['name']}"
        path = f"/api/v1/namespaces/{job.key.namespace}/secrets"
        try:
            await self._api.request("POST", path, manifest, [("dryRun", "All")])
        except ApiError as error:
            # A quota or a webhook may answer first. If the Secret is missing all the same, the pods will show it.
            if error.status not in (400, 403, 409):
                raise WriteRefused.to("POST", child, error) from error
            return
        raise WriteRefused(child, 410, KEY_GONE)

    async def _create_pods(self, job: Job, manifests: Sequence[Manifest], turn: Turn) -> None:
        """Create the pods; no more manifests than parallel writes are in memory at once."""
        numbers = iter(range(len(manifests)))
        refused: list[WriteRefused] = []

        async def create() -> None:
            for number in numbers:
                if refused or not turn.next():
                    return
                try:
                    await self._create(job, "pods", self.pods, await self._built(manifests, number))
                except WriteRefused as error:
                    refused.append(error)

        await self._run_workers(create, len(manifests))
        if refused:
            raise refused[0]

    async def _built(self, manifests: Sequence[Manifest], number: int) -> Manifest:
        """The manifest of that number. Of manifests that take long, one is made and encoded in each turn of the event
        loop: 64 pods of a megabyte would hold it for a second."""
        async with self._building:
            began = time.perf_counter()
            manifest = manifests[number]
            if "spec" in manifest:
                manifest = {**manifest, "spec": msgspec.Raw(encoded(manifest["spec"]))}
            if time.perf_counter() - began > LONG_BUILD:
                await asyncio.sleep(0)
            return manifest

    async def _write_all(self, writes: Sequence[Callable[[], Awaitable[None]]], turn: Turn) -> list[WriteRefused]:
        """Do all writes, until the turn is over; returns the refusals in the order of the writes."""
        waiting = enumerate(writes)
        refused: dict[int, WriteRefused] = {}

        async def write() -> None:
            for number, each in waiting:
                if not turn.next():
                    return
                try:
                    await each()
                except WriteRefused as error:
                    refused[number] = error

        await self._run_workers(write, len(writes))
        return [refused[number] for number in sorted(refused)]

    async def _run_workers(self, worker: Callable[[], Awaitable[None]], writes: int) -> None:
        """Run as many workers as there may be parallel requests, until all have ended; raises the first error.

        Starting 5,000 tasks at once would block the event loop. Most passes have no write, and a task costs more than
        all their other work here.
        """
        if not writes:
            return
        self._writing_passes += 1
        try:
            most = max(LEAST_CONCURRENCY, CONCURRENCY // self._writing_passes)
            workers = [worker() for _ in range(min(most, writes))]
            for error in await asyncio.gather(*workers, return_exceptions=True):
                if error is not None:
                    raise error
        finally:
            self._writing_passes -= 1

    async def _create(self, job: Job, kind: str, store: ChildStore, manifest: Manifest) -> None:
        path, name = f"/api/v1/namespaces/{job.key.namespace}/{kind}", manifest["metadata"]["name"]
        try:
            # Strict: the API server rejects a misspelt field in a template instead of dropping it.
            raw = await self._api.request("POST", path, manifest, [("fieldValidation", "Strict")])
        except ApiError as error:
            if not error.exists:
                raise WriteRefused.to("POST", f"{kind[:-1]}/{name}", error) from error
            raw = await self._adopt(job, kind, manifest)
        if kind == "pods":
            await self._verify_created(job, raw)
        store.upsert(raw)

    async def _adopt(self, job: Job, kind: str, manifest: Manifest) -> Manifest:
        """The existing object of that name if the job owns it: the cache lagged, or the object has lost its labels,
        which are restored. Raises WriteRefused for any other object."""
        name = manifest["metadata"]["name"]
        child, path = f"{kind[:-1]}/{name}", f"/api/v1/namespaces/{job.key.namespace}/{kind}/{name}"
        try:
            raw = await self._api.request("GET", path)
            if _conflict(job, raw) == UNLABELLED:
                logger.info("%s: %s lost its labels; restoring them", job.key, child)
                raw = await self._api.request("PATCH", path, _labelled_again(raw, manifest))
        except ApiError as error:
            # 409 instead of any other 4xx: the object exists or existed, so the manifest is not at fault.
            status = 409 if 400 <= error.status < 500 else error.status
            raise WriteRefused(child, status, error.message, retry_after=error.retry_after) from error
        if why := _conflict(job, raw):
            raise WriteRefused(child, 409, why)
        return raw

    async def _delete_pod(self, job: Job, deletion: PodDeletion) -> None:
        await self._delete(job.key, f"pods/{deletion.name}", deletion.uid, deletion.grace, deletion.version)

    async def _fail_pod(self, job: Job, failure: PodFailure) -> None:
        """Set a pod's phase to Failed, if the pod has not changed since it was observed. Raises WriteRefused."""
        status = {"phase": "Failed", "message": failure.message}
        await self._patch_pod(job, f"{failure.name}/status", {"metadata": _precondition(failure), "status": status})

    async def _annotate(self, job: Job, wanted: PodAnnotation) -> None:
        """Annotate a pod, if it has not changed since it was observed. Raises WriteRefused."""
        await self._patch_pod(job, wanted.name, {"metadata": {**_precondition(wanted), "annotations": wanted.values}})

    async def _patch_pod(self, job: Job, name: str, body: Manifest) -> None:
        path = f"/api/v1/namespaces/{job.key.namespace}/pods/{name}"
        try:
            self.pods.upsert(await self._api.request("PATCH", path, body))
        except ApiError as error:
            # The pod is gone or has changed (409): the watch will report it, and the next pass decides again.
            if not error.gone:
                raise WriteRefused.to("PATCH", f"pod/{name}", error) from error

    async def _delete_service(self, job: Job) -> None:
        for each in self.services.of(job.key):
            if each.owner == job.uid:
                await self._delete(job.key, f"services/{each.name}", each.uid)

    async def _delete(self, key: Key, what: str, uid: str, grace: int | None = 0, version: str = "") -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **({} if grace is None else {"gracePeriodSeconds": grace}),
            "preconditions": {"uid": uid, **({"resourceVersion": version} if version else {})},
        }
        try:
            await self._api.request("DELETE", f"/api/v1/namespaces/{key.namespace}/{what}", options)
        except ApiError as error:
            if not error.gone:
                kind, _, name = what.partition("/")
                raise WriteRefused.to("DELETE", f"{kind[:-1]}/{name}", error) from error


def _unreadable(job: Job, kind: str, children: list[Child]) -> str:
    """A child of the job that cannot be read, and why; empty if there is none."""
    found = (each for each in children if each.unreadable and each.owner == job.uid)
    return next((f"{kind}/{each.name}: {each.unreadable}" for each in found), "")


def _needs_group(job: Job, raw: Manifest) -> bool:
    """Whether Kubernetes' own scheduler is to place the pod with its gang."""
    role = (raw["metadata"].get("labels") or {}).get(LABEL_ROLE)
    return job.spec is not None and job.spec.native_gang and role in GANG_ROLES


def _labelled_again(raw: Manifest, wanted: Manifest) -> Manifest:
    """A merge patch that restores the operator's labels. Only the pod's own label tells its attempt: a pod without it
    is labelled as of a past attempt, which the planner replaces."""
    labels = {name: value for name, value in wanted["metadata"]["labels"].items() if name.startswith(f"{GROUP}/")}
    if LABEL_ATTEMPT in labels:
        own = (raw["metadata"].get("labels") or {}).get(LABEL_ATTEMPT, "")
        labels[LABEL_ATTEMPT] = own if re.fullmatch(ATTEMPT, own) else PAST
    return {"metadata": {"uid": raw["metadata"]["uid"], "labels": labels}}


def _precondition(pod: PodAnnotation | PodFailure) -> Manifest:
    """The precondition for a patch: the API server answers 409 if the pod has changed since it was observed."""
    return {"uid": pod.uid, "resourceVersion": pod.version}


def _conflict(job: Job, raw: Manifest) -> str:
    """Why the existing object cannot serve as the wanted child; empty if it can.

    An object that the planner would not recognise must be refused here, or each pass would create it again at once.
    """
    if owned_by(raw, job.uid):
        recognised = job_of(raw) == job.key and (raw["kind"] != "Pod" or parse_pod(raw) is not None)
        return "" if recognised else UNLABELLED
    owners = raw["metadata"].get("ownerReferences") or ()
    earlier = any(each.get("kind") == KIND and each.get("name") == job.key.name for each in owners)
    return EARLIER if earlier else NOT_OWNED
