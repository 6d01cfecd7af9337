"""The connection to a cluster: by the kubeconfig as kubectl reads it, otherwise as the pod's service account."""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

from tftraining_api.kube.api import Api, read_environment_once
from tftraining_client.cluster.credentials import FileToken, PluginCredentials
from tftraining_client.cluster.exec_plugin import Credential, ExecPlugin, PluginError
from tftraining_client.cluster.kubeconfig import KubeContext, impersonation, read_context, read_entries
from tftraining_client.cluster.transport import Transport, traced
from tftraining_client.errors import UserError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"
UNREADABLE = (*(config.ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError),)


@dataclass(frozen=True)
class Connection:
    """A cluster: its API, its address, and the namespace of the context."""

    api: Api
    server: str
    context: str
    namespace: str


async def connect(
    context: str | None = None,
    kubeconfig: str | None = None,
    impersonate: Mapping[str, Any] = MappingProxyType({}),
    told: Callable[[str], None] | None = None,
) -> Connection:
    """Connect by the kubeconfig (argument, KUBECONFIG, ~/.kube/config), in a pod without one as its service account.

    `impersonate` has fields of the kubeconfig's user (`as`, `as-groups`, `as-uid`), `told` is called with a line about
    each request. No request is sent yet, but an exec plugin runs. UserError with one line if neither is there, or if
    the kubeconfig cannot be used.
    """
    files = _kubeconfig_files(kubeconfig)
    if files:
        return await _by_kubeconfig(files, context, impersonate, told)
    if context is None and kubeconfig is None and (SERVICE_ACCOUNT / "token").is_file():
        return _in_cluster(impersonate, told)
    wanted = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    raise UserError(f"no kubeconfig: {wanted} does not exist; set KUBECONFIG or use --kubeconfig")


def _kubeconfig_files(kubeconfig: str | None) -> list[str]:
    paths = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    files = [str(Path(each).expanduser()) for each in paths.split(os.pathsep) if each]
    return [each for each in files if Path(each).exists()]


def context_names(kubeconfig: str | None) -> list[str]:
    """The contexts of the kubeconfig; UserError if it cannot be read."""
    try:
        return sorted(read_entries(_kubeconfig_files(kubeconfig))[0]["contexts"])
    except UNREADABLE as error:
        raise UserError(f"the kubeconfig cannot be used: {_why(error)}") from error


async def _by_kubeconfig(
    files: Sequence[str], wanted: str | None, impersonate: Mapping[str, Any], told: Callable[[str], None] | None
) -> Connection:
    named = os.pathsep.join(files)
    try:
        context = read_context(files, wanted).impersonating(impersonate)
        return await _connected(context, told)
    except UNREADABLE as error:
        raise UserError(f"the kubeconfig {named} cannot be used: {_why(error)}") from error
    except PluginError as error:
        raise UserError(f"the exec plugin of context {context.name} failed: {error}") from error


def _why(error: Exception) -> str:
    """The error in one line. That of YAML names the line and does not quote it, because it may have the token."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
    return f"{where}not YAML: {error.problem}"


async def _connected(context: KubeContext, told: Callable[[str], None] | None) -> Connection:
    configuration = await _configuration(context)
    configuration.trace_configs = [traced(told)] if told else None
    user, certificate = context.user, None
    transport: Transport
    credentials: PluginCredentials | FileToken | None = None
    if user.fields.get("exec"):
        plugin = ExecPlugin(context)
        first = await plugin.run()
        certificate = first.certificate

        async def use(given: Credential) -> None:
            if given.token:
                configuration.api_key["BearerToken"] = f"Bearer {given.token}"
            if given.certificate:
                transport.use_certificate(*given.certificate)
                await transport.reconnect()

        credentials = PluginCredentials(plugin, first, use)
        if first.token:
            configuration.api_key["BearerToken"] = f"Bearer {first.token}"
    elif path := user.path("tokenFile"):
        credentials = FileToken(Path(path), configuration)
    if credentials is not None:
        configuration.refresh_api_key_hook = credentials.renew
        # The library calls the hook for a token only; of a certificate there is none.
        configuration.api_key.setdefault("BearerToken", "")
    transport = _transport(context, configuration, certificate)
    api = Api(transport, refused=credentials.refused if credentials else None, headers=context.impersonation)
    return Connection(api, configuration.host, context.name, context.namespace)


async def _configuration(context: KubeContext) -> Configuration:
    """The server, its authority, and the credentials that do not end."""
    configuration, cluster, user = Configuration(), context.cluster, context.user.fields
    configuration.host = context.server
    authority = cluster.data("certificate-authority")
    # Only comments are in other letters, which a file may have and this argument may not.
    configuration.ca_cert_data = authority.decode("ascii", "ignore") if authority else None
    configuration.verify_ssl = not cluster.fields.get("insecure-skip-tls-verify")
    configuration.tls_server_name = cluster.fields.get("tls-server-name")
    configuration.proxy = cluster.fields.get("proxy-url")
    if "auth-provider" in user:
        await _by_auth_provider(context, configuration)
    elif token := user.get("token"):
        configuration.api_key["BearerToken"] = f"Bearer {token}"
    elif user.get("username"):
        words = f"{user['username']}:{user.get('password') or ''}"
        configuration.api_key["BearerToken"] = f"Basic {base64.b64encode(words.encode()).decode()}"
    return configuration


async def _by_auth_provider(context: KubeContext, configuration: Configuration) -> None:
    """The token of an auth-provider (OpenID Connect), which the library asks: kubectl has it for old kubeconfigs."""
    one = {
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {}}],
        "users": [{"name": "one", "user": {"auth-provider": context.user.fields["auth-provider"]}}],
    }
    await config.load_kube_config_from_dict(one, "one", configuration)


def _transport(
    context: KubeContext, configuration: Configuration, certificate: tuple[bytes, bytes] | None
) -> Transport:
    """The transport; `certificate` is that of a plugin, otherwise the user's own."""
    read_environment_once(configuration)
    configuration.connection_pool_maxsize = 0
    transport = Transport(configuration)
    if certificate is None:
        certificate = _own_certificate(context)
    if certificate is not None:
        transport.use_certificate(*certificate)
    return transport


def _own_certificate(context: KubeContext) -> tuple[bytes, bytes] | None:
    certificate, key = context.user.data("client-certificate"), context.user.data("client-key")
    if certificate and key:
        return certificate, key
    if certificate or key:
        raise ValueError(f"the user of context {context.name} has a client certificate without its key, or a key alone")
    return None


def _in_cluster(impersonate: Mapping[str, Any], told: Callable[[str], None] | None) -> Connection:
    configuration = Configuration()
    configuration.trace_configs = [traced(told)] if told else None
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        read_environment_once(configuration)
        configuration.connection_pool_maxsize = 0
        api = Api(Transport(configuration), headers=impersonation(impersonate, "the pod's service account"))
    except (config.ConfigException, OSError, ValueError) as error:
        raise UserError(f"the pod's service account cannot be used: {error}") from error
    return Connection(api, configuration.host, "in-cluster", namespace or "default")
