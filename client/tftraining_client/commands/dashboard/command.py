"""`tftj dashboard`: starts the server, prints its address and opens the browser."""

import asyncio
import os
import sys
import webbrowser

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.dashboard.feeds import Feeds
from tftraining_client.commands.dashboard.server import serving
from tftraining_client.commands.output import is_terminal, note


async def show(client: AsyncClient, all_namespaces: bool, port: int, browser: bool) -> int:
    """Serve the dashboard until it is interrupted."""
    # First: a missing right or an unknown context is an error of the command, not a message on the page.
    await client.list(all_namespaces=all_namespaces)
    namespace = "" if all_namespaces else await client.own_namespace()
    context = (await client.connection()).context
    async with Feeds(client, namespace, context) as feeds, serving(feeds, port) as url:
        print(url, flush=True)
        note(f"dashboard of {f'namespace {namespace}' if namespace else 'all namespaces'}, context {context}")
        note("the address contains a secret: whoever has it sees what you see; Ctrl-C ends the dashboard")
        if browser and is_terminal() and has_display():
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()
    return 0


def has_display() -> bool:
    """Whether a browser has a window to open: on a server Python would start a browser for terminals instead."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
