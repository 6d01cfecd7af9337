"""The operator's own HTTP server: /healthz (is the pod watch alive?), /readyz (is the cache filled?) and /metrics."""

from collections.abc import Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from tftraining_operator.cluster.reflector import Reflector


async def serve(port: int, reflectors: Sequence[Reflector], registry: CollectorRegistry) -> web.AppRunner:
    """Start serving on all addresses; the runner's `cleanup()` ends it. OSError if the port is taken."""

    async def healthz(_: web.Request) -> web.Response:
        return _verdict([f"the watch of {each.what} is dead" for each in reflectors if not each.alive])

    async def readyz(_: web.Request) -> web.Response:
        return _verdict([f"{each.what} are not listed yet" for each in reflectors if not each.synced.is_set()])

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def _verdict(problems: list[str]) -> web.Response:
    return web.Response(status=500, text="; ".join(problems)) if problems else web.Response(text="ok")
