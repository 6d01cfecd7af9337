"""Credentials that end: of an exec plugin, a token or a certificate, and of a token file. A follower outlives many.

`renew` is the library's hook before each request. Old credentials stay in use while they are valid, so that a plugin
that fails once, as during a change of networks, ends nothing. A failure is an ApiError without an answer, as a lost
connection is: watches try again, and a single request tells it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time as now

from kubernetes.aio.client.configuration import Configuration

from tftraining_api.kube.api import ApiError
from tftraining_client.cluster.api_errors import NO_CREDENTIALS
from tftraining_client.cluster.exec_plugin import Credential, ExecPlugin, PluginError

# Credentials are renewed so many seconds before they expire, or at half of their life if that is later.
EARLY_SECONDS = 10.0
# After a failure the plugin rests so long: each request of a watch would start it again.
RETRY_SECONDS = 5.0
# As kubectl does. Kubelets renew projected tokens long before they expire.
FILE_SECONDS = 60.0
# Takes new credentials into use.
Use = Callable[[Credential], Awaitable[None]]


class PluginCredentials:
    """The credentials of an exec plugin, which runs again shortly before they expire, or after a refusal. `use` is
    called with those that it gives from now on."""

    def __init__(self, plugin: ExecPlugin, first: Credential, use: Use) -> None:
        self._plugin = plugin
        self._credential = first
        self._use = use
        self._lock = asyncio.Lock()
        self._renew_at = _due(first)

    async def renew(self, _: Configuration) -> None:
        """Run the plugin if it is time."""
        if now() >= self._renew_at:
            async with self._lock:
                if now() >= self._renew_at:
                    await self._run()

    async def refused(self) -> bool:
        """The server has refused the credentials: whether the plugin gives others."""
        before = self._credential
        async with self._lock:
            if self._credential is before and now() < self._renew_at:
                await self._run()
        return (self._credential.token, self._credential.certificate) != (before.token, before.certificate)

    async def _run(self) -> None:
        try:
            given = await self._plugin.run()
            await self._use(given)
        except (PluginError, OSError) as error:
            self._renew_at = now() + RETRY_SECONDS
            if now() < self._credential.expires:
                return
            self._renew_at = 0.0
            raise ApiError(0, NO_CREDENTIALS, f"the exec plugin of the kubeconfig failed: {error}") from error
        self._credential, self._renew_at = given, _due(given)


def _due(credential: Credential) -> float:
    """When new credentials are due."""
    left = credential.expires - now()
    return now() + max(left - EARLY_SECONDS, left / 2)


class FileToken:
    """The token in a file, which is read again each minute, or after the server refused the token."""

    def __init__(self, path: Path, configuration: Configuration) -> None:
        self._path = path
        self._configuration = configuration
        self._text = ""
        self._read()

    async def renew(self, _: Configuration) -> None:
        """Read the file if it is time."""
        if now() >= self._renew_at:
            self._read()

    async def refused(self) -> bool:
        """The server has refused the token: whether the file has another."""
        before = self._text
        self._read()
        return self._text != before

    def _read(self) -> None:
        self._renew_at = now() + FILE_SECONDS
        try:
            text = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            if not self._text:
                raise
            # As a file that is being replaced: the old token may still be valid.
            logging.getLogger(__name__).info("the token file %s cannot be read: %s", self._path, error)
            return
        if text:
            self._text = text
            self._configuration.api_key["BearerToken"] = f"Bearer {text}"
