"""Creates and deletes the children of a job, so that doing it twice is as good as once."""

import asyncio
import logging
import re
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Sequence
from itertools import chain

from tftraining_operator.build.launcher import KEY
from tftraining_operator.cluster import auxiliary_objects
from tftraining_operator.cluster.api import Api, ApiError
from tftraining_operator.cluster.nodes import NodeStore
from tftraining_operator.cluster.refused import Refused
from tftraining_operator.cluster.store import Store, job_of
from tftraining_operator.cluster.warnings import Warnings
from tftraining_operator.model.job import Job
from tftraining_operator.model.leftovers import leaving_pods, leftovers, of_earlier
from tftraining_operator.model.names import GROUP, KIND, LABEL_ATTEMPT, Key
from tftraining_operator.model.observed import ATTEMPT, Observed, owned_by, parse_pod, pods_of
from tftraining_operator.model.spec import Manifest
from tftraining_operator.model.warning import with_warning
from tftraining_operator.plan.creation_errors import EARLIER, KEY_GONE
from tftraining_operator.plan.step import PodAnnotation, PodDeletion, PodFailure, Step

logger = logging.getLogger(__name__)
# As many as a busy API server answers at once; each one more is a TLS connection and its memory.
CONCURRENCY = 16
KEY_BYTES = 32
# The label of an attempt before the first.
PAST = "0"
FOREIGN = "exists already and does not belong to this job: delete it, or give the job another name"
UNLABELLED = "belongs to this job but loses its labels as often as it is given them: see what takes them away"


class Children:
    """The Services and pods of all jobs, with what is known of them and of the pods' nodes."""

    def __init__(self, api: Api, pods: Store, services: Store, nodes: NodeStore) -> None:
        self._api = api
        self.pods = pods
        self.services = services
        self.nodes = nodes
        self.warnings = Warnings(pods.job_of)

    def observe(self, job: Job) -> Observed:
        """The job's own children as they were last seen."""
        children, services = self.pods.of(job.key), self.services.of(job.key)
        left, services_left = of_earlier(job, children), of_earlier(job, services)
        pods = tuple(with_warning(pod, self.warnings.of(pod.uid)) for pod in pods_of(children, job.uid))
        earlier = leaving_pods(left)
        return Observed(
            pods=pods,
            service=any(each.name == job.key.name and each.owner == job.uid for each in services),
            nodes=self.nodes.of({pod.node for pod in (*pods, *earlier) if pod.node}),
            leftovers=(*leftovers(job, "service", services_left), *leftovers(job, "pod", left)),
            earlier=earlier,
        )

    async def change(self, job: Job, plan: Step) -> list[Refused]:
        """Carry out the deletions of a plan and what pods are told; what was refused. One refusal keeps no other write
        from being done, but for the Service: it goes last, after what is deleted only as long as it is there."""
        deletions = (self._delete_pod(job, each) for each in plan.delete_pods)
        endings = (self._end_pod(job, each) for each in plan.fail_pods)
        orders = (self._annotate(job, each) for each in (plan.annotate_pod,) if each is not None)
        refused = await _refused(chain(deletions, endings, orders))
        beside = await _refused(
            auxiliary_objects.remove(self._api, job, each) for each in plan.delete_auxiliary_objects
        )
        if plan.delete_service and not beside:
            beside += await _refused([self._delete_service(job)])
        return refused + beside

    async def create(self, job: Job, plan: Step) -> None:
        """Carry out the creations of a plan: what pods need first, the pods last.

        Raises Refused for the first that was refused; those after it are not tried.
        """
        if plan.create_service is not None:
            await self._create(job, "services", self.services, plan.create_service)
        for each in plan.auxiliary_objects:
            await auxiliary_objects.ensure(self._api, job, each)
        if plan.create_secret is not None:
            await self._create_secret(job, plan.create_secret)
        if plan.verify_secret is not None:
            await self._expect_secret(job, plan.verify_secret)
        await self._create_pods(job, plan.create_pods)

    async def _create_secret(self, job: Job, manifest: Manifest) -> None:
        """Create the Secret with a key that nobody else has seen; one that is there already keeps its own."""
        body = {**manifest, "data": {KEY: b64encode(secrets.token_bytes(KEY_BYTES)).decode()}}
        try:
            await self._api.request("POST", f"/api/v1/namespaces/{job.key.namespace}/secrets", body)
        except ApiError as error:
            if not error.exists:
                raise Refused(f"secret/{manifest['metadata']['name']}", error.status, error.message) from error

    async def _expect_secret(self, job: Job, manifest: Manifest) -> None:
        """Raise Refused if the Secret is not there: to create it is asked for, and not done."""
        child = f"secret/{manifest['metadata']['name']}"
        path = f"/api/v1/namespaces/{job.key.namespace}/secrets"
        try:
            await self._api.request("POST", path, manifest, [("dryRun", "All")])
        except ApiError as error:
            # A quota or a webhook may have its say before: if the Secret is gone then, the pods will tell.
            if error.status not in (400, 403, 409):
                raise Refused(child, error.status, error.message) from error
            return
        raise Refused(child, 410, KEY_GONE)

    async def _create_pods(self, job: Job, manifests: Sequence[Manifest]) -> None:
        """Create the pods, CONCURRENCY at a time; no more manifests than that exist at once."""
        waiting = iter(manifests)
        refused: list[Refused] = []

        async def create() -> None:
            for manifest in waiting:
                if refused:
                    return
                try:
                    await self._create(job, "pods", self.pods, manifest)
                except Refused as error:
                    refused.append(error)

        await asyncio.gather(*(create() for _ in range(min(CONCURRENCY, len(manifests)))))
        if refused:
            raise refused[0]

    async def _create(self, job: Job, kind: str, store: Store, manifest: Manifest) -> None:
        path, name = f"/api/v1/namespaces/{job.key.namespace}/{kind}", manifest["metadata"]["name"]
        try:
            # Strict: a misspelt field in a template is an error, not a surprise.
            store.upsert(await self._api.request("POST", path, manifest, [("fieldValidation", "Strict")]))
        except ApiError as error:
            if not error.exists:
                raise Refused(f"{kind[:-1]}/{name}", error.status, error.message) from error
            await self._adopt(job, kind, store, manifest)

    async def _adopt(self, job: Job, kind: str, store: Store, manifest: Manifest) -> None:
        """Something of that name is there: fine if it is ours (the cache was late, or it has lost its labels, which it
        is given again), otherwise it is in the way."""
        name = manifest["metadata"]["name"]
        child, path = f"{kind[:-1]}/{name}", f"/api/v1/namespaces/{job.key.namespace}/{kind}/{name}"
        try:
            raw = await self._api.request("GET", path)
            if _in_the_way(job, raw) == UNLABELLED:
                logger.info("%s: %s has lost its labels: labelling it again", job.key, child)
                raw = await self._api.request("PATCH", path, _labelled_again(raw, manifest))
        except ApiError as error:
            # It is there, or was: nothing is wrong with what was to be made.
            raise Refused(child, 409 if 400 <= error.status < 500 else error.status, error.message) from error
        if why := _in_the_way(job, raw):
            raise Refused(child, 409, why)
        store.upsert(raw)

    async def _delete_pod(self, job: Job, deletion: PodDeletion) -> None:
        await self._delete(job.key, f"pods/{deletion.name}", deletion.uid, deletion.grace)

    async def _end_pod(self, job: Job, ending: PodFailure) -> None:
        """Declare a pod Failed, if it is still as it was seen. Raises Refused."""
        status = {"phase": "Failed", "message": ending.message}
        await self._patch_pod(job, f"{ending.name}/status", {"metadata": _seen(ending), "status": status})

    async def _annotate(self, job: Job, wanted: PodAnnotation) -> None:
        """Annotate a pod, if it is still as it was seen. Raises Refused."""
        await self._patch_pod(job, wanted.name, {"metadata": {**_seen(wanted), "annotations": wanted.values}})

    async def _patch_pod(self, job: Job, name: str, body: Manifest) -> None:
        path = f"/api/v1/namespaces/{job.key.namespace}/pods/{name}"
        try:
            self.pods.upsert(await self._api.request("PATCH", path, body))
        except ApiError as error:
            # Gone, or changed (409): the watch will tell, and the next pass looks at it as it is then.
            if not error.gone:
                raise Refused.to("PATCH", f"pod/{name}", error) from error

    async def _delete_service(self, job: Job) -> None:
        for each in self.services.of(job.key):
            if each.owner == job.uid:
                await self._delete(job.key, f"services/{each.name}", each.uid)

    async def _delete(self, key: Key, what: str, uid: str, grace: int | None = 0) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **({} if grace is None else {"gracePeriodSeconds": grace}),
            "preconditions": {"uid": uid},
        }
        try:
            await self._api.request("DELETE", f"/api/v1/namespaces/{key.namespace}/{what}", options)
        except ApiError as error:
            if not error.gone:
                kind, _, name = what.partition("/")
                raise Refused.to("DELETE", f"{kind[:-1]}/{name}", error) from error


async def _refused(writes: Iterable[Awaitable[None]]) -> list[Refused]:
    """Do all writes, CONCURRENCY at a time; those that were refused, in their order. No more of them than that are
    begun at once: the tasks of 5,000 would keep everybody else waiting."""
    waiting = enumerate(writes)
    refused: dict[int, Refused] = {}

    async def write() -> None:
        for number, each in waiting:
            try:
                await each
            except Refused as error:
                refused[number] = error

    for error in await asyncio.gather(*(write() for _ in range(CONCURRENCY)), return_exceptions=True):
        if error is not None:
            raise error
    return [refused[number] for number in sorted(refused)]


def _labelled_again(raw: Manifest, wanted: Manifest) -> Manifest:
    """A merge patch that gives the object the operator's labels. Only its own label says which attempt a pod is of: one
    that has lost that too becomes one of the past, which is replaced."""
    labels = {name: value for name, value in wanted["metadata"]["labels"].items() if name.startswith(f"{GROUP}/")}
    if LABEL_ATTEMPT in labels:
        own = (raw["metadata"].get("labels") or {}).get(LABEL_ATTEMPT, "")
        labels[LABEL_ATTEMPT] = own if re.fullmatch(ATTEMPT, own) else PAST
    return {"metadata": {"uid": raw["metadata"]["uid"], "labels": labels}}


def _seen(pod: PodAnnotation | PodFailure) -> Manifest:
    """By what the API server knows whether the pod is still as it was seen; otherwise it answers 409."""
    return {"uid": pod.uid, "resourceVersion": pod.version}


def _in_the_way(job: Job, raw: Manifest) -> str:
    """Why the object cannot be taken for the child that was to be made; empty if it can.

    What the planner would not recognise must be refused here, or it would be created again and again, without a pause.
    """
    if owned_by(raw, job.uid):
        recognised = job_of(raw) == job.key and (raw["kind"] != "Pod" or parse_pod(raw) is not None)
        return "" if recognised else UNLABELLED
    owners = raw["metadata"].get("ownerReferences") or ()
    earlier = any(each.get("kind") == KIND and each.get("name") == job.key.name for each in owners)
    return EARLIER if earlier else FOREIGN
