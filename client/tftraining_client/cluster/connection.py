"""The connection to a cluster: by the kubeconfig as kubectl reads it, otherwise as the pod's service account."""

import asyncio
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import time as now
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from tftraining_api.kube.api import Api, read_environment_once
from tftraining_client.errors import UserError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"
# A token is renewed so many seconds before it expires, or at half of its life if that is later.
EARLY_SECONDS = 10.0


@dataclass(frozen=True)
class Connection:
    """A cluster: its API, its address, and the namespace of the context."""

    api: Api
    server: str
    context: str
    namespace: str


async def connect(context: str | None = None, kubeconfig: str | None = None) -> Connection:
    """Connect by the kubeconfig (argument, KUBECONFIG, ~/.kube/config), in a pod without one as its service account.

    No request is sent yet. UserError with one line if neither is there, or if the kubeconfig lacks the context.
    """
    configuration = Configuration()
    files = _kubeconfig_files(kubeconfig)
    if files:
        name, namespace = await _by_kubeconfig(configuration, os.pathsep.join(files), context)
    elif context is None and kubeconfig is None and (SERVICE_ACCOUNT / "token").is_file():
        name, namespace = _in_cluster(configuration)
    else:
        wanted = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
        raise UserError(f"no kubeconfig: {wanted} does not exist; set KUBECONFIG or use --kubeconfig")
    try:
        read_environment_once(configuration)
        configuration.connection_pool_maxsize = 0
        return Connection(Api(ApiClient(configuration)), configuration.host, name, namespace)
    except OSError as error:
        raise UserError(f"the certificates of context {name} cannot be read: {error}") from error


def _kubeconfig_files(kubeconfig: str | None) -> list[str]:
    paths = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    files = [str(Path(each).expanduser()) for each in paths.split(os.pathsep) if each]
    return [each for each in files if Path(each).exists()]


def _in_cluster(configuration: Configuration) -> tuple[str, str]:
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (config.ConfigException, OSError) as error:
        raise UserError(f"the pod's service account cannot be used: {error}") from error
    return "in-cluster", namespace or "default"


async def _by_kubeconfig(configuration: Configuration, paths: str, context: str | None) -> tuple[str, str]:
    """Fill in the configuration; the name of the context and its namespace."""
    try:
        known, current = _contexts(paths)
        chosen = context or current
        if chosen not in known:
            raise UserError(_no_context(chosen, sorted(known)))
        with _said() as said:
            loader = await config.load_kube_config(
                config_file=paths, context=chosen, client_configuration=configuration, persist_config=False
            )
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    if _has_plugin(loader):
        if not _authenticated(loader):
            raise UserError(
                f"the exec plugin of context {chosen} failed: {'; '.join(said) or 'it gave no credentials'}"
            )
        if hasattr(loader, "token"):
            configuration.refresh_api_key_hook = _PluginToken(loader).renew
    return chosen, known[chosen] or "default"


def _contexts(paths: str) -> tuple[dict[str, str], str]:
    """The namespace of each context by name, and the name of the current context."""
    known: dict[str, str] = {}
    current = ""
    for path in paths.split(os.pathsep):
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        current = current or str(document.get("current-context") or "")
        for each in document.get("contexts") or ():
            known.setdefault(str(each["name"]), str((each.get("context") or {}).get("namespace") or ""))
    return known, current


def _no_context(wanted: str, known: list[str]) -> str:
    have = f"it has {', '.join(known)}" if known else "it has none"
    if not wanted:
        return f"the kubeconfig has no current context; choose one with --context: {have}"
    return f"the kubeconfig has no context {wanted}: {have}"


def _has_plugin(loader: Any) -> bool:
    user = loader._user
    return user is not None and "exec" in user


def _authenticated(loader: Any) -> bool:
    return bool(getattr(loader, "token", None) or getattr(loader, "cert_file", None))


@contextmanager
def _said() -> Any:
    """Collect what the library logs while it runs a plugin: it raises no error if the plugin fails."""
    texts: list[str] = []
    logger = logging.getLogger("kubernetes.aio.config.kube_config")
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(" ".join(record.getMessage().split()))  # type: ignore[method-assign]
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield texts
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


class _PluginToken:
    """The token of an exec plugin, which is run again shortly before the token expires."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = asyncio.Lock()
        self._renew_at = self._due()

    async def renew(self, configuration: Configuration) -> None:
        """Called before each request."""
        if now() < self._renew_at:
            return
        async with self._lock:
            if now() < self._renew_at:
                return
            # Otherwise the library keeps the old token.
            vars(self._loader).pop("exec_plugin_expiry", None)
            with _said() as said:
                await self._loader.load_from_exec_plugin()
            if said:
                raise UserError(f"the exec plugin of the kubeconfig failed: {'; '.join(said)}")
            configuration.api_key["BearerToken"] = self._loader.token
            self._renew_at = self._due()

    def _due(self) -> float:
        expiry: datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        if expiry is None:
            return float("inf")
        left = expiry.astimezone(UTC).timestamp() - now()
        return now() + max(left - EARLY_SECONDS, left / 2)
