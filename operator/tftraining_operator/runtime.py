"""Builds, starts and stops the parts of the operator."""

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from tftraining_api.kube.api import Api, ApiError, connect
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.names import GROUP, PLURAL, VERSION, Key
from tftraining_api.model.spec import Frozen
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.election import Election
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.fence import Fence, FencedApi
from tftraining_operator.cluster.first_passes import first_passes_done
from tftraining_operator.cluster.http_server import serve
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.kopf_session import KopfSessions
from tftraining_operator.cluster.launcher_reports import (
    MAX_PROXIED_LONG_POLLS,
    DirectConnection,
    LauncherReports,
    through_api_server,
)
from tftraining_operator.cluster.leader_election import LeaderElector
from tftraining_operator.cluster.lease import LeaderLease, LeaseName
from tftraining_operator.cluster.logs import FORMATS
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.cluster.namespaces import Namespace
from tftraining_operator.cluster.node_departures import INTERVAL
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.older_operators import older_operator
from tftraining_operator.cluster.quotas import Quotas
from tftraining_operator.cluster.reflector import Reflector, answers
from tftraining_operator.cluster.work_queue import WorkQueue
from tftraining_operator.model.operator_peers import operator_selector
from tftraining_operator.model.served_schema import missing_fields
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.status_writes import longest_delay
from tftraining_operator.reconcile import Dependencies, Reconciler

logger = logging.getLogger(__name__)
WORKERS = 16
# Period of the audit, which finds jobs that were deleted in a gap of kopf's watch.
AUDIT_SECONDS = 300.0
START_PAUSE = 5.0
MOST_NAMED = 5
LONGEST_INTERVAL = 86400
UPDATE = "update it: kubectl apply --server-side -f crds/tftrainingjobs.yaml"
UNSEEN = "an operator that is confined to namespaces may not read nodes, so no pod leaves a node with the conditions"
# At a clean stop the writes in flight may end; the lease is released only after them.
DRAIN_SECONDS = 3.0
# In pauses of one request for which the API server asks, below DRAIN_SECONDS: a pass in a pause holds a worker, and
# delays a clean stop. The queue and the watches wait for the rest.
RETRY_SECONDS = 2.0
ELECTION = "the leader election"


class OperatorConfig(Frozen, frozen=True):
    """The settings from the environment. Empty `namespaces` means all. Helper pods run `image`, which also contains the
    launcher. `launchers` is how to reach launchers: direct, proxy (through the API server), or "" (direct inside the
    cluster, proxy outside). NetworkPolicies admit the pods of `operator_selector`; None for no NetworkPolicies.
    Pods leave nodes on which one of `node_conditions` holds, one in the cluster each `node_condition_interval`.
    `leader_election` is the Lease of the leader election, None for none: the process then always leads. `operator_pods`
    selects, in the lease's namespace, all pods of the operator's release by their labels. `log_format` is
    text or json."""

    namespaces: tuple[str, ...] = ()
    image: str = "tftraining/operator:latest"
    port: int = 8080
    identity: str = "tftraining-operator"
    log_level: str = "INFO"
    log_format: str = FORMATS[0]
    launchers: str = ""
    node_conditions: tuple[str, ...] = ()
    node_condition_interval: timedelta = INTERVAL
    operator_selector: OperatorSelector | None = None
    leader_election: LeaseName | None = None
    operator_pods: str = ""


def read_settings(env: Mapping[str, str] = os.environ) -> OperatorConfig:
    """Read the settings. ValueError with a one-line message if one is invalid."""
    port = env.get("TFTRAINING_PORT", str(OperatorConfig().port))
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"TFTRAINING_PORT must be a port number from 1 to 65535, not {port!r}")
    level = env.get("TFTRAINING_LOG_LEVEL", OperatorConfig().log_level).upper()
    if level not in logging.getLevelNamesMapping():
        raise ValueError(f"TFTRAINING_LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {level!r}")
    log_format = env.get("TFTRAINING_LOG_FORMAT") or OperatorConfig().log_format
    if log_format not in FORMATS:
        raise ValueError(f"TFTRAINING_LOG_FORMAT must be {' or '.join(FORMATS)}, not {log_format!r}")
    launchers = env.get("TFTRAINING_LAUNCHERS", "")
    if launchers not in ("", "direct", "proxy"):
        raise ValueError(f"TFTRAINING_LAUNCHERS must be direct, proxy or empty, not {launchers!r}")
    image = env.get("TFTRAINING_IMAGE") or OperatorConfig().image
    if image.split() != [image]:
        # It is in every pod: the API server would refuse each of them, as if the user's template were at fault.
        raise ValueError(f"TFTRAINING_IMAGE must be the name of an image, without white space, not {image!r}")
    return OperatorConfig(
        namespaces=tuple(each.strip() for each in env.get("TFTRAINING_NAMESPACES", "").split(",") if each.strip()),
        image=image,
        port=int(port),
        identity=env.get("POD_NAME") or OperatorConfig().identity,
        log_level=level,
        log_format=log_format,
        launchers=launchers,
        node_conditions=_node_conditions(env.get("TFTRAINING_NODE_CONDITIONS", "")),
        node_condition_interval=_interval(env.get("TFTRAINING_NODE_CONDITION_INTERVAL", "")),
        operator_selector=operator_selector(
            env.get("TFTRAINING_NETWORK_POLICY", ""), env.get("TFTRAINING_METRICS_FROM", "")
        ),
        leader_election=_lease_name(env.get("TFTRAINING_LEADER_ELECTION", "")),
        operator_pods=env.get("TFTRAINING_OPERATOR_PODS", ""),
    )


def _node_conditions(text: str) -> tuple[str, ...]:
    """The types of conditions, without that which holds on each node that is well."""
    types = tuple(each.strip() for each in text.split(",") if each.strip())
    if "Ready" in types:
        raise ValueError("TFTRAINING_NODE_CONDITIONS must not contain Ready, which holds on nodes that are well")
    return types


def _interval(text: str) -> timedelta:
    if not text:
        return INTERVAL
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= LONGEST_INTERVAL:
        allowed = f"a number of seconds from 1 to {LONGEST_INTERVAL}"
        raise ValueError(f"TFTRAINING_NODE_CONDITION_INTERVAL must be {allowed}, not {text!r}")
    return timedelta(seconds=int(text))


def _lease_name(text: str) -> LeaseName | None:
    """Parse NAMESPACE/NAME of the Lease; None if empty."""
    namespace, _, name = text.partition("/")
    if text and not (namespace and name and "/" not in name):
        raise ValueError(f"TFTRAINING_LEADER_ELECTION must be empty or NAMESPACE/NAME of a Lease, not {text!r}")
    return LeaseName(namespace, name) if text else None


async def _watch_nothing(_: str) -> None:
    """kopf watches all namespaces from the start."""


class Operator:
    """All running parts. The watch of the custom resource feeds `jobs` and `queue`; `watch_jobs` adds one of the
    configured namespaces to it."""

    def __init__(
        self,
        api: Api,
        settings: OperatorConfig,
        lost_lease: Callable[[str], None] = lambda why: None,
        election: Election | None = None,
        watch_jobs: Callable[[str], Awaitable[None]] = _watch_nothing,
    ) -> None:
        self._settings = settings
        self._lost_lease = lost_lease
        self._watch_jobs = watch_jobs
        self.queue = WorkQueue()
        self._election = election
        self._elector = election.elector if election is not None else None
        if self._elector is not None:
            # All parts but the election write only while this process leads.
            api = FencedApi(api, self._elector.fence)
            self.queue.pause()
        api.retry_seconds = RETRY_SECONDS
        self._api = api
        self.jobs = Jobs(api)
        self._metrics = Metrics(self.jobs.all, api.requests, self._leads)
        internals = self._metrics.internals
        api.answered = internals.answered
        if election is not None:
            election.count(api.requests, internals.answered)
        self.kopf_sessions = KopfSessions(api.requests, internals.answered)
        internals.queue_depth, internals.failing_jobs = (lambda: self.queue.depth), (lambda: self.queue.failing)
        internals.watch_ages, internals.refused_watches = self._watch_ages, self._refused
        self.queue.waited = internals.waited
        self._nodes = NodeStore(api, settings.node_conditions)
        self._children = Children(api, ChildStore(), ChildStore(), self._nodes)
        self._events = Events(api, settings.identity, internals.dropped)
        direct = settings.launchers == "direct" or (api.inside and settings.launchers != "proxy")
        self._direct = DirectConnection() if direct else None
        self._launcher_reports = self._reports(api)
        self._quotas = Quotas(api, self.queue.add, everywhere=not settings.namespaces)
        dependencies = Dependencies(
            self.jobs, self._children, self._launcher_reports, self._quotas, self._events, self._metrics
        )
        self._reconciler = Reconciler(
            dependencies,
            self.queue,
            partial(plan, image=settings.image, operator_selector=settings.operator_selector),
            settings.node_condition_interval,
        )
        self._reconciler.clock = self._nodes.clock = self._children.pods.clock = api.clock.now
        self.queue.failed, self.queue.lane = self._reconciler.report_failure, self._reconciler.lane
        internals.reconciled_jobs = lambda: self._reconciler.reconciled
        self._namespaces = [
            Namespace(api, name, self._children, self.queue.add, self._serve) for name in settings.namespaces or ("",)
        ]
        # Nodes have no namespace: an operator that is confined to namespaces may not read them.
        nodes = [] if settings.namespaces else [Reflector(api, "nodes", "", self._nodes, self._node_changed)]
        self._node_watch: list[Reflector[Any]] = nodes
        self._served: list[str] = []
        self._any_served = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._server: web.AppRunner | None = None

    @classmethod
    async def start(
        cls,
        settings: OperatorConfig,
        lost_lease: Callable[[str], None] = lambda why: None,
        watch_jobs: Callable[[str], Awaitable[None]] = _watch_nothing,
    ) -> "Operator":
        """Connect, wait for the API server, and start. RuntimeError or OSError with a one-line message on failure.
        `lost_lease` is called with the reason when this process leads no longer: it must end. `watch_jobs` is called
        with each of the configured namespaces whose jobs may be watched from now on."""
        if settings.namespaces and settings.node_conditions:
            logger.warning("%s: %s", UNSEEN, ", ".join(settings.node_conditions))
        api = await connect()
        operator = cls(api, settings, lost_lease, await _election(settings), watch_jobs)
        try:
            # First, so that the kubelet finds the operator healthy while it waits for the API server.
            pages = operator.dead, operator.unready, operator._refused, operator._metrics.registry
            operator._server = await serve(settings.port, *pages)
            await _check_installed(api)
        except BaseException:
            await operator._disconnect()
            raise
        parts = {f"the watch of {each.description}": each.run() for each in operator._node_watch}
        for namespace in operator._namespaces:
            parts |= namespace.parts()
        parts |= {
            "the event writer": operator._events.run(),
            "the reconciler": operator._work(),
            "the audit": operator._audit(),
        }
        parts["the event loop probe"] = operator._metrics.internals.probe_event_loop()
        parts["the ages of the jobs' watches"] = operator.kopf_sessions.ages.sample_until_cancelled()
        if operator._election is not None:
            parts[ELECTION] = operator._elect(operator._election)
            parts["the sign of life"] = operator._election.elector.fence.keep_moving()
        operator._tasks = {name: asyncio.create_task(part) for name, part in parts.items()}
        for name, task in operator._tasks.items():
            task.add_done_callback(partial(_log_end, name))
        return operator

    def _reports(self, api: Api) -> LauncherReports:
        """What asks the chiefs' launchers: at their pods, or through the API server."""
        fetch, most = through_api_server(api), MAX_PROXIED_LONG_POLLS
        if self._direct is not None:
            fetch, most = self._direct.fetch, self._direct.max_long_polls
        return LauncherReports(fetch, self.queue.add, most, self._progressed)

    async def _serve(self, namespace: str) -> None:
        await self._watch_jobs(namespace)
        self._served.append(namespace)
        self.kopf_sessions.ages.expect(namespace)
        self._any_served.set()

    async def _synced(self) -> None:
        """Wait until each cache is filled or refused to this account, and one namespace at least is served."""
        await asyncio.gather(
            *(each.settled() for each in self._namespaces), *(each.tried.wait() for each in self._node_watch)
        )
        await self._any_served.wait()

    @property
    def _caches(self) -> list[Reflector[Any]]:
        """What passes need: all but the events."""
        return [*(each for namespace in self._namespaces for each in namespace.caches), *self._node_watch]

    def _refused(self) -> list[str]:
        """The watches that the API server refuses to this account."""
        nodes = [each.description for each in self._node_watch if each.refused]
        return [*(each for namespace in self._namespaces for each in namespace.refused), *nodes, *self._quotas.refused]

    def dead(self) -> list[str]:
        """The failures that only a restart of the operator can fix, such as a part that has ended."""
        ended = [f"{name} has stopped" for name, task in self._tasks.items() if task.done()]
        begun = self._caches if self._tasks else []
        silent = [each.description for each in begun if not each.alive]
        silent += [name for name, age in self._ages_of_jobs().items() if not answers(age)]
        return ended + [f"the watch of {name} gets no answer" for name in silent]

    def unready(self) -> list[str]:
        """The caches that are not filled yet; after them the lease, if this process has not been able to read it: an
        upgrade keeps the old operators as long as the new one lacks the permission."""
        caches = [f"{each.description} are not synced yet" for each in self._caches if not each.tried.is_set()]
        if not (caches or self._any_served.is_set()):
            refused = self._refused()
            why = f": this account may not list and watch {', '.join(refused)}" if refused else ""
            caches = [f"no namespace is served yet{why}"]
        if caches or self._elector is None or self._elector.knows_lease:
            return caches
        return [f"the lease {self._settings.leader_election} is not read yet"]

    def _leads(self) -> bool:
        return self._elector is None or self._elector.fence.open

    def _watch_ages(self) -> dict[str, float]:
        """The age of each watch that has begun."""
        begun = [*self._caches, *(each.events for each in self._namespaces)] if self._tasks else []
        return {**self._ages_of_jobs(), **{each.description: each.age for each in begun if each.synced.is_set()}}

    def _ages_of_jobs(self) -> dict[str, float]:
        ages = self.kopf_sessions.ages.by_namespace()
        return {f"jobs in {namespace or 'all namespaces'}": age for namespace, age in ages.items()}

    def _progressed(self, key: Key) -> None:
        """A job has made steps: a pass when its status is due, and no pass at every answer of its launcher."""
        self.queue.add_within(key, longest_delay(self._launcher_reports.followed).total_seconds())

    def _node_changed(self, name: str) -> None:
        for key in self._children.pods.on_node(name):
            self.queue.add(key)

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            await self.jobs.audit(self._served, self.queue.add)

    async def _elect(self, election: Election) -> None:
        """Take part in the leader election once the caches are filled: only a warm standby takes over at once."""
        await self._synced()
        try:
            why = await election.run()
        except Exception as error:
            # No renewal follows: this process must end before its lease does, as after a lost lease.
            election.elector.fence.close()
            logger.exception("the leader election failed")
            why = f"a fault of the leader election: {error!r}"
        self._lost_lease(f"lost the lease {self._settings.leader_election}: {why}")

    async def _work(self) -> None:
        """Run the workers once the caches are filled, as an empty cache looks like a cluster that lost every pod, and
        this process leads."""
        await self._synced()
        if self._elector is not None:
            await self._elector.fence.opened()
            self.queue.resume(self.jobs.keys())
        logger.info("caches synced; reconciling jobs")
        self._launcher_reports.pause()
        workers = (self.queue.run(self._reconciler) for _ in range(WORKERS))
        await asyncio.gather(self._resume_launcher_reports(), *workers)

    async def _resume_launcher_reports(self) -> None:
        await first_passes_done(lambda: self.queue.depth, lambda: self._reconciler.reconciled)
        self._launcher_reports.resume()

    async def stop(self) -> None:
        """Stop all parts, then let another process lead. Trainings continue."""
        self.queue.close()
        if self._election is not None and ELECTION in self._tasks:
            await _end([self._tasks.pop(ELECTION)])
            await self._election.resign(DRAIN_SECONDS)
        await _end(self._tasks.values())
        await self._launcher_reports.close()
        await self._quotas.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._server is not None:
            await self._server.cleanup()
        if self._direct is not None:
            await self._direct.close()
        if self._election is not None:
            await self._election.close()
        await self._api.close()


async def _election(settings: OperatorConfig) -> Election | None:
    """The election of this process. Its identity is new for each start: a restarted container keeps the pod's name."""
    if (name := settings.leader_election) is None:
        return None
    api = await connect()
    # The elector has pauses of its own, and little time.
    api.retry_seconds = 0.0
    may_lead = partial(older_operator, api, name.namespace, settings.operator_pods)
    identity = f"{settings.identity}_{secrets.token_hex(4)}"
    return Election(LeaderElector(LeaderLease(api, name), identity, Fence(), may_lead), api)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _log_end(name: str, task: asyncio.Task[None]) -> None:
    """Log a part that has ended by itself, which is a fault; /healthz fails from then on. The end of the leader
    election was reported with its reason."""
    if not task.cancelled() and not (name == ELECTION and task.exception() is None):
        logger.error("%s has stopped", name, exc_info=task.exception())


async def _check_installed(api: Api) -> None:
    """Wait for the API server, and check that it serves the custom resource. RuntimeError for a permanent error.

    Exiting on a temporary error would cost minutes after an outage: the kubelet restarts a container with a back-off.
    """
    while True:
        try:
            await _check_served(api)
        except ApiError as error:
            if not _may_pass(error):
                raise RuntimeError(_why_not(error)) from error
            logger.warning("%s; retrying in %g s", _why_not(error), START_PAUSE)
            await asyncio.sleep(START_PAUSE)
        else:
            return


async def _check_served(api: Api) -> None:
    """Check that the API server serves the jobs, their status, and the fields that this version knows.

    Fields of a newer version are missing while an older definition is installed: the operator works without them, and
    says which. RuntimeError if jobs could not work at all.
    """
    served = {each["name"] for each in (await api.request("GET", f"/apis/{GROUP}/{VERSION}"))["resources"]}
    if unserved := sorted({PLURAL, f"{PLURAL}/status"} - served):
        raise RuntimeError(f"the API server does not serve {unserved[0]} of {GROUP}/{VERSION}: {UPDATE}")
    try:
        missing = missing_fields(await api.request("GET", f"/openapi/v3/apis/{GROUP}/{VERSION}"))
    except ApiError as error:
        if _may_pass(error):
            raise
        logger.warning("cannot read the schema that the API server serves: %s", error)
        return
    if missing:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        names = ", ".join(missing[:MOST_NAMED]) + more
        words = f"the definition of {PLURAL}.{GROUP} is older than this operator: it lacks {names}"
        logger.warning("%s; %s", words, UPDATE)


def _may_pass(error: ApiError) -> bool:
    """Whether the error is temporary, rather than due to a wrong name, address or certificate."""
    wrong = (aiohttp.ClientConnectorDNSError, aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)
    return (error.status in (0, 429) or error.status >= 500) and not isinstance(error.__cause__, wrong)


def _why_not(error: ApiError) -> str:
    if error.status == 404:
        return f"the custom resource {PLURAL}.{GROUP} is not installed: kubectl apply -f crds/tftrainingjobs.yaml"
    if error.status == 0:
        return f"cannot reach the API server: {error.message}"
    return f"unexpected answer of the API server: {error}"
