"""Puts the parts of the operator together, starts them, and stops them again."""

import asyncio
import logging
import os
from collections.abc import Mapping

from aiohttp import web

from tftraining_operator.cluster.api import Api, ApiError, connect
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.cluster.queue import WorkQueue
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.cluster.server import serve
from tftraining_operator.cluster.store import Store
from tftraining_operator.model.names import GROUP, PLURAL, VERSION
from tftraining_operator.model.spec import Frozen
from tftraining_operator.reconcile import Reconciler

logger = logging.getLogger(__name__)
WORKERS = 16


class Settings(Frozen, frozen=True):
    """What the environment says. No namespaces means all of them; `image` is what helper pods run."""

    namespaces: tuple[str, ...] = ()
    image: str = "tftraining/operator:latest"
    port: int = 8080
    identity: str = "tftraining-operator"
    log_level: str = "INFO"


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. ValueError with one clear line if one of them is nonsense."""
    port = env.get("TFTRAINING_PORT", str(Settings().port))
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"TFTRAINING_PORT must be a port number from 1 to 65535, not {port!r}")
    level = env.get("TFTRAINING_LOG_LEVEL", Settings().log_level).upper()
    if level not in logging.getLevelNamesMapping():
        raise ValueError(f"TFTRAINING_LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {level!r}")
    return Settings(
        namespaces=tuple(each.strip() for each in env.get("TFTRAINING_NAMESPACES", "").split(",") if each.strip()),
        image=env.get("TFTRAINING_IMAGE") or Settings().image,
        port=int(port),
        identity=env.get("POD_NAME") or Settings().identity,
        log_level=level,
    )


class Operator:
    """All parts, running. `jobs` and `queue` are what the watch of the custom resource feeds."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self.queue = WorkQueue()
        self.jobs = Jobs(api)
        self._children = Children(api, Store(), Store())
        self._events = Events(api, settings.identity)
        self._metrics = Metrics(self.jobs.all, api.requests)
        self._reconciler = Reconciler(
            self.jobs, self._children, self._events, self._metrics, self.queue, settings.image
        )
        self._reflectors = [
            Reflector(api, kind, namespace, store, self.queue.add)
            for namespace in settings.namespaces or ("",)
            for kind, store in (("pods", self._children.pods), ("services", self._children.services))
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._server: web.AppRunner | None = None

    @classmethod
    async def start(cls, settings: Settings) -> "Operator":
        """Connect and start. RuntimeError with one clear line if the custom resource is not installed."""
        api = await connect()
        await _check_installed(api)
        operator = cls(api, settings)
        operator._server = await serve(settings.port, operator._reflectors, operator._metrics.registry)
        background = [each.run() for each in operator._reflectors] + [operator._events.run()]
        operator._tasks = [asyncio.create_task(each) for each in (*background, operator._work())]
        return operator

    async def _work(self) -> None:
        """Start working once the caches are filled: an empty cache looks like a cluster that lost every pod."""
        await asyncio.gather(*(each.synced.wait() for each in self._reflectors))
        logger.info("the caches are filled: working on the jobs")
        await asyncio.gather(*(self.queue.run(self._reconciler) for _ in range(WORKERS)))

    async def stop(self) -> None:
        """Stop everything that was started. Trainings go on."""
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.cleanup()
        await self._api.close()


async def _check_installed(api: Api) -> None:
    try:
        served = await api.request("GET", f"/apis/{GROUP}/{VERSION}")
    except ApiError as error:
        await api.close()
        if error.status == 404:
            raise RuntimeError(
                f"the custom resource {PLURAL}.{GROUP} is not installed: kubectl apply -f crds/tftrainingjobs.yaml"
            ) from error
        raise RuntimeError(f"the API server does not answer as it should: {error}") from error
    logger.debug("served: %s", [each["name"] for each in served["resources"]])
