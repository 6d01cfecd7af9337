"""`tftj completion`, and the names of jobs for the shell."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from typer._completion_shared import get_completion_script

from tftraining_api.kube.api import ApiError
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.connection import context_names
from tftraining_client.commands.output import hint_lines
from tftraining_client.errors import UserError

PROGRAM = "tftj"
SECONDS = 3.0
# The line that each shell reads the completion with.
SOURCED = {
    "bash": "source <(tftj completion bash)",
    "zsh": "source <(tftj completion zsh)",
    "fish": "tftj completion fish | source",
    "powershell": "tftj completion powershell | Out-String | Invoke-Expression",
}


def print_script(shell: str) -> int:
    """Print the completion script of the shell; the exit code."""
    name = "pwsh" if shell == "powershell" else shell
    print(get_completion_script(prog_name=PROGRAM, complete_var="_TFTJ_COMPLETE", shell=name))
    hint_lines(SOURCED[shell])
    return 0


def job_names(connecting: dict[str, Any], incomplete: str) -> list[str]:
    """The names of the jobs that begin with `incomplete`; none if the cluster does not answer in time. `connecting` has
    the arguments of AsyncClient."""

    async def names(client: AsyncClient) -> list[str]:
        return [job.name for job in await client.list()]

    return _ask(connecting, names, incomplete)


def namespaces(connecting: dict[str, Any], incomplete: str) -> list[str]:
    """The namespaces that begin with `incomplete`; none if the cluster does not answer in time or may not list them."""

    async def names(client: AsyncClient) -> list[str]:
        found, _ = await (await client.connection()).api.list("/api/v1/namespaces", [])
        return [each["metadata"]["name"] for each in found]

    return _ask({**connecting, "namespace": None}, names, incomplete)


def contexts(kubeconfig: str | None, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig that begin with `incomplete`."""
    try:
        return [name for name in context_names(kubeconfig) if name.startswith(incomplete)]
    except UserError:
        return []


def _ask(
    connecting: dict[str, Any], names: Callable[[AsyncClient], Awaitable[list[str]]], incomplete: str
) -> list[str]:
    async def found() -> list[str]:
        async with AsyncClient(**connecting, notify=lambda text: None) as client:
            async with asyncio.timeout(SECONDS):
                return await names(client)

    try:
        return [name for name in asyncio.run(found()) if name.startswith(incomplete)]
    except (UserError, ApiError, TimeoutError):
        return []
