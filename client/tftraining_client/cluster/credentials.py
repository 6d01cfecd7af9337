"""Tokens that end: of an exec plugin, and of a token file. A follower outlives many of them.

`renew` is the library's hook before each request. An old token stays in use while it is valid, so that a plugin that
fails once, as during a change of networks, ends nothing. A failure is an ApiError without an answer, as a lost
connection is: watches try again, and a single request tells it.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time as now
from typing import Any

from kubernetes.aio.client.configuration import Configuration

from tftraining_api.kube.api import ApiError
from tftraining_client.cluster.api_errors import NO_CREDENTIALS

# A token is renewed so many seconds before it expires, or at half of its life if that is later.
EARLY_SECONDS = 10.0
# After a failure the plugin rests so long: each request of a watch would start it again.
RETRY_SECONDS = 5.0
# As kubectl does. Kubelets renew projected tokens long before they expire.
FILE_SECONDS = 60.0


class PluginToken:
    """The token of an exec plugin, which runs again shortly before the token expires, or after a refusal."""

    def __init__(self, loader: Any, configuration: Configuration) -> None:
        self._loader = loader
        self._configuration = configuration
        self._lock = asyncio.Lock()
        self._expires, self._renew_at = self._times()

    async def renew(self, _: Configuration) -> None:
        """Run the plugin if it is time."""
        if now() >= self._renew_at:
            async with self._lock:
                if now() >= self._renew_at:
                    await self._run()

    async def refused(self) -> bool:
        """The server has refused the token: whether the plugin gives another."""
        before = self._loader.token
        async with self._lock:
            if self._loader.token == before and now() < self._renew_at:
                await self._run()
        return bool(self._loader.token != before)

    async def _run(self) -> None:
        # Otherwise the library keeps the old token.
        vars(self._loader).pop("exec_plugin_expiry", None)
        with plugin_messages() as said:
            await self._loader.load_from_exec_plugin()
        if said:
            self._renew_at = now() + RETRY_SECONDS
            if now() < self._expires:
                return
            self._renew_at = 0.0
            raise ApiError(0, NO_CREDENTIALS, f"the exec plugin of the kubeconfig failed: {'; '.join(said)}")
        self._configuration.api_key["BearerToken"] = self._loader.token
        self._expires, self._renew_at = self._times()

    def _times(self) -> tuple[float, float]:
        """When the token expires, and when a new one is due."""
        expiry: datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        if expiry is None:
            return float("inf"), float("inf")
        left = expiry.astimezone(UTC).timestamp() - now()
        return now() + left, now() + max(left - EARLY_SECONDS, left / 2)


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


@contextmanager
def plugin_messages() -> Iterator[list[str]]:
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
