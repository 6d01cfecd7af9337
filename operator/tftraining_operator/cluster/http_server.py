"""The operator's HTTP server: /healthz (does every part still work?), /readyz (are the caches filled?), /metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

Problems = Callable[[], list[str]]


async def serve(
    port: int, dead: Problems, unready: Problems, refused: Problems, registry: CollectorRegistry
) -> web.AppRunner:
    """Start serving on all addresses; the runner's `cleanup()` stops the server. OSError if the port is taken.

    `dead` and `unready` return what makes the operator unhealthy or not ready, `refused` the watches that a ready one
    does without; they are called at each request.
    """

    async def healthz(_: web.Request) -> web.Response:
        return _response(dead())

    async def readyz(_: web.Request) -> web.Response:
        return _response(unready(), refused())

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


def _response(problems: list[str], refused: list[str] | None = None) -> web.Response:
    if problems:
        return web.Response(status=500, text="; ".join(problems))
    return web.Response(text=f"ok, but this account may not list and watch {', '.join(refused)}" if refused else "ok")
