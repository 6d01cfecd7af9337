"""Runs an exec plugin of a kubeconfig (client.authentication.k8s.io), as kubectl does.

What it writes to standard error reaches the person at once, and it reads the terminal if there is one: it may ask for a
password, or tell to open a page.
"""

import asyncio
import base64
import codecs
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining_api.model.times import parse_time
from tftraining_client.cluster.kubeconfig import KubeContext

KEPT = 500  # characters of what a plugin said, for the error


class PluginError(Exception):
    """A plugin failed; the message says how."""


@dataclass(frozen=True)
class Credential:
    """What a plugin gave: a token, a certificate with its key, or both. `expires` is in seconds since 1970."""

    token: str | None
    certificate: tuple[bytes, bytes] | None
    expires: float


class ExecPlugin:
    """The plugin of a context's user."""

    def __init__(self, context: KubeContext) -> None:
        self._settings: dict[str, Any] = context.user.fields["exec"]
        command = str(self._settings["command"])
        # A name is looked up in PATH, a path belongs to the kubeconfig.
        self._command = command if Path(command).name == command else str(context.user.directory / command)
        self._cluster = context.cluster

    async def run(self) -> Credential:
        """Run it once. PluginError if it fails, or answers with something else."""
        mode = self._settings.get("interactiveMode")
        interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not interactive:
            raise PluginError(f"{self._command} needs a terminal (interactiveMode: Always)")
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *map(str, self._settings.get("args") or ()),
                env=self._environment(interactive),
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = " ".join(str(self._settings.get("installHint") or "").split())
            raise PluginError(f"{self._command}: {error.strerror}{f'; {hint}' if hint else ''}") from error
        assert process.stdout is not None and process.stderr is not None
        answer, said = await asyncio.gather(process.stdout.read(), _passed_on(process.stderr))
        if code := await process.wait():
            raise PluginError(f"{self._command} ended with exit code {code}{f': {said}' if said else ''}")
        return self._credential(answer)

    def _environment(self, interactive: bool) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._settings.get("provideClusterInfo"):
            spec["cluster"] = _cluster_info(self._cluster.fields, self._cluster.data("certificate-authority"))
        info = {"apiVersion": self._settings["apiVersion"], "kind": "ExecCredential", "spec": spec}
        own = {str(each["name"]): str(each["value"]) for each in self._settings.get("env") or ()}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _credential(self, answer: bytes) -> Credential:
        try:
            document = json.loads(answer)
            if document["apiVersion"] != self._settings["apiVersion"]:
                raise PluginError(f"it answers in {document['apiVersion']}, not in {self._settings['apiVersion']}")
            status = document["status"]
            token, certificate, key = (status.get(f"{each}") for each in _PARTS)
            expiry = status.get("expirationTimestamp")
            expires = parse_time(expiry).timestamp() if expiry else float("inf")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PluginError(f"{self._command} answers with no ExecCredential: {error}") from error
        if bool(certificate) != bool(key) or not (token or certificate):
            raise PluginError(f"{self._command} gives neither a token nor a certificate with its key")
        return Credential(token, (certificate.encode(), key.encode()) if certificate else None, expires)


_PARTS = ("token", "clientCertificateData", "clientKeyData")
_CLUSTER_FIELDS = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
_EXTENSION = "client.authentication.k8s.io/exec"


def _cluster_info(cluster: dict[str, Any], authority: bytes | None) -> dict[str, Any]:
    """The cluster as a plugin is told it, with the configuration that the kubeconfig has for plugins."""
    info = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    for each in cluster.get("extensions") or ():
        if each.get("name") == _EXTENSION:
            info["config"] = each.get("extension")
    if authority is not None:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    return info


async def _passed_on(stream: asyncio.StreamReader) -> str:
    """Write the stream to standard error as it comes; its last words in one line."""
    decoder, text = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while chunk := await stream.read(4096):
        part = decoder.decode(chunk)
        if sys.stderr is not None:
            sys.stderr.write(part)
            sys.stderr.flush()
        text = (text + part)[-4096:]
    return " ".join(text.split())[-KEPT:]
