"""A headless Chromium, driven by its DevTools protocol. It leaves no process and writes into its own directory only."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.needed import need_or_skip

PATIENCE = 30.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


# Words that are broken although they would fit or are short, texts over one another, and what is cut off.
LAYOUT_FAULTS = """(() => {
  const faults = [], places = [];
  const short = (text) => text.trim().slice(0, 40);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, range = document.createRange();
    if (!node.data.trim() || parent.closest("select, noscript, title") || !parent.getClientRects().length) continue;
    if (getComputedStyle(parent.closest("thead") || parent).clipPath !== "none") continue;
    let block = parent;
    while (getComputedStyle(block).display === "inline") block = block.parentElement;
    for (const word of node.data.matchAll(/[^\\s/-]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const parts = [...range.getClientRects()].filter((each) => each.width > 0);
      const wide = parts.reduce((sum, each) => sum + each.width, 0);
      if (parts.length > 1 && wide <= Math.max(160, block.clientWidth * 0.7)) faults.push(`broken: ${word[0]}`);
    }
    range.selectNodeContents(node);
    const scroller = parent.closest("pre");
    for (const each of range.getClientRects()) {
      if (each.width > 0 && !scroller) places.push([each, short(node.data), node]);
    }
    if (parent.tagName === "text") {
      const outer = parent.closest("svg").getBoundingClientRect(), own = parent.getBoundingClientRect();
      if (own.left < outer.left || own.right > outer.right) faults.push(`cut: ${node.data}`);
    }
  }
  places.forEach(([one, text, node], number) => {
    if (one.left < -1 || one.right > innerWidth + 1) faults.push(`outside: ${text}`);
    for (const [other, its, another] of places.slice(number + 1)) {
      if (node === another) continue;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 1 && down > 3) faults.push(`overlap: ${text} and ${its}`);
    }
  });
  for (const each of document.querySelectorAll("body *:not(svg, svg *, thead, thead *)")) {
    if (each.clientWidth && each.scrollWidth > each.clientWidth + 1) {
      faults.push(`cut: ${each.tagName} ${each.id} ${short(each.innerText)}`);
    }
  }
  return faults;
})()"""


class Page:
    """One page. `requested` are the addresses that it has asked for, `complaints` its errors."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol; its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, PATIENCE)

    async def read(self) -> None:
        """Take what the browser tells."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if "error" in told:
                    answer.set_exception(RuntimeError(told["error"]["message"]))
                else:
                    answer.set_result(told["result"])
            elif told["method"] == "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.complaints.append(json.dumps(told["params"]["entry"]))

    async def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open an address in a window of that size."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])
        await self.command("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = await self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    async def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.value(expression):  # noqa: ASYNC110  the page has no event for it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise AssertionError(f"never: {expression}\n{self.complaints}\n{text}") from None

    async def layout_faults(self) -> list[str]:
        """What is cut, overlaps or breaks in the page."""
        found: list[str] = await self.value(LAYOUT_FAULTS)
        return found

    async def nodes(self) -> list[dict[str, Any]]:
        """The nodes that a screen reader sees."""
        tree = await self.command("Accessibility.getFullAXTree")
        return [node for node in tree["nodes"] if not node.get("ignored")]

    async def picture(self) -> bytes:
        """A picture of the window as PNG."""
        taken = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(taken["data"])


@asynccontextmanager
async def chromium(directory: Path) -> AsyncIterator[Page]:
    """A running Chromium with one page."""
    need_or_skip("chromium")
    profile = directory / "chromium"
    # Chromium leaves its temporary files when it is killed, and has a socket among them: their path must be short.
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    process = await asyncio.create_subprocess_exec(
        "chromium",
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        env={**os.environ, "HOME": str(directory), "TMPDIR": temporary.name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _port(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (target,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                reader = asyncio.create_task(page.read())
                try:
                    for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
                        await page.command(f"{domain}.enable")
                    yield page
                finally:
                    reader.cancel()
                    await asyncio.gather(reader, return_exceptions=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        temporary.cleanup()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    """The port of the DevTools, once Chromium has written it."""
    async with asyncio.timeout(PATIENCE):
        while (port := _written(file)) is None:
            assert process.returncode is None, f"chromium has ended with {process.returncode}"
            await asyncio.sleep(0.05)
    return port


def _written(file: Path) -> int | None:
    """The number in the first line of the file; None while there is none."""
    lines = file.read_text().splitlines() if file.exists() else []
    return int(lines[0]) if lines else None
