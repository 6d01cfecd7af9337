"""The connection to a cluster: by the kubeconfig as kubectl reads it, otherwise as the pod's service account."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from tftraining_api.kube.api import Api, read_environment_once
from tftraining_client.cluster.credentials import FileToken, PluginToken, plugin_messages
from tftraining_client.cluster.transport import Transport
from tftraining_client.errors import UserError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"


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
    token: PluginToken | FileToken | None = None
    if files:
        name, namespace, token = await _by_kubeconfig(configuration, os.pathsep.join(files), context)
    elif context is None and kubeconfig is None and (SERVICE_ACCOUNT / "token").is_file():
        name, namespace = _in_cluster(configuration)
    else:
        wanted = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
        raise UserError(f"no kubeconfig: {wanted} does not exist; set KUBECONFIG or use --kubeconfig")
    try:
        read_environment_once(configuration)
        configuration.connection_pool_maxsize = 0
        client = ApiClient(configuration)
        client.rest_client = Transport(configuration)
        api = Api(client, refused=token.refused if token else None)
        return Connection(api, configuration.host, name, namespace)
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


async def _by_kubeconfig(
    configuration: Configuration, paths: str, context: str | None
) -> tuple[str, str, PluginToken | FileToken | None]:
    """Fill in the configuration; the name of the context, its namespace, and its token if that ends."""
    try:
        known, current = _contexts(paths)
        chosen = context or current
        if chosen not in known:
            raise UserError(_no_context(chosen, sorted(known)))
        with plugin_messages() as said:
            loader = await config.load_kube_config(
                config_file=paths, context=chosen, client_configuration=configuration, persist_config=False
            )
        token = _renewed_token(loader, configuration)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    if _has_plugin(loader) and not _authenticated(loader):
        raise UserError(f"the exec plugin of context {chosen} failed: {'; '.join(said) or 'it gave no credentials'}")
    if token is not None:
        configuration.refresh_api_key_hook = token.renew
    return chosen, known[chosen] or "default", token


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


def _renewed_token(loader: Any, configuration: Configuration) -> PluginToken | FileToken | None:
    """The token of a plugin or a file; OSError if the file cannot be read."""
    user = loader._user
    if _has_plugin(loader):
        return PluginToken(loader, configuration) if hasattr(loader, "token") else None
    if user is None or "tokenFile" not in user:
        return None
    return FileToken(Path(loader._get_base_path(user.path)) / user["tokenFile"], configuration)


def _authenticated(loader: Any) -> bool:
    return bool(getattr(loader, "token", None) or getattr(loader, "cert_file", None))
