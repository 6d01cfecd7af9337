"""The operator's HTTP server: /healthz (does every part still work?), /readyz (are the caches filled?), /metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

Problems = Callable[[], list[str]]


async def serve(port: int, dead: Problems, unready: Problems, registry: CollectorRegistry) -> web.AppRunner:
    """Start serving on all addresses; the runner's `cleanup()` stops the server. OSError if the port is taken.

    `dead` and `unready` return what makes the operator unhealthy or not ready; they are called at each request.
    """

    async def healthz(_: web.Request) -> web.Response:
        return _response(dead())

    async def readyz(_: web.Request) -> web.Response:
        return _response(unready())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def _response(problems: list[str]) -> web.Response:
    return web.Response(status=500, text="; ".join(problems)) if problems else web.Response(text="ok")
