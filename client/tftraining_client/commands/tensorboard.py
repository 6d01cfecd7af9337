"""`tftj tensorboard`: TensorBoard over the job's storage, on a loopback port, until Ctrl-C."""

from contextlib import aclosing

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.output import is_terminal, note


async def show(client: AsyncClient, name: str, port: int, image: str) -> int:
    """Print the address and serve until Ctrl-C."""
    async with aclosing(client.tensorboard(name, port=port, image=image)) as addresses:
        async for address in addresses:
            print(address, flush=True)
            if is_terminal():
                note("Ctrl-C ends TensorBoard, and deletes its pod")
    return 0
