"""`tftj completion`, and the names of jobs for the shell."""

import asyncio

from typer._completion_shared import get_completion_script

from tftraining_client.cluster.async_client import AsyncClient
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


def job_names(context: str | None, kubeconfig: str | None, namespace: str | None, incomplete: str) -> list[str]:
    """The names of the jobs that begin with `incomplete`; none if the cluster does not answer in time."""

    async def names() -> list[str]:
        async with AsyncClient(context=context, kubeconfig=kubeconfig, namespace=namespace) as client:
            async with asyncio.timeout(SECONDS):
                return [job.name for job in await client.list()]

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (UserError, TimeoutError):
        return []
