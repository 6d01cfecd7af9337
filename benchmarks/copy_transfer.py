"""How fast a launcher fetches a copy of the training state from another one, and which part of it is the HMAC.

    python -m benchmarks.copy_transfer              copies of 4, 76 and 530 MB over the loopback
    python -m benchmarks.copy_transfer --state 76

Server and client are processes of their own, as two launchers are; both share the machine. CPU seconds are those of the
process. The share of the HMAC is that of the CPU time of the client's event loop, by a profile of one more fetch. The
last line is JSON.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.launchers.copies import write_copy
from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.rendezvous.copy_client import CopyClient
from tftraining.launch.rendezvous.copy_server import CopyServer

SHM = Path("/dev/shm")
HOST, UID, SECRET = "127.0.0.1", "benchmark", b"a secret of the benchmark"
NAME = (1, 1)  # round and step
TIMES = 5
HMAC = ("hmac", "_hashlib", "compare_digest", "sign_chunk")


async def serve(directory: Path) -> None:
    """Serve the copy in `directory`: print the port, then the CPU seconds so far for each line read."""
    server = CopyServer(directory, UID, lambda: SECRET)
    await server.open(HOST)
    print(server.port, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(time.process_time(), flush=True)
    await server.close()


async def fetch(port: int) -> tuple[float, float]:
    """Fetch the copy once: seconds, and CPU seconds of this process."""
    store = MemoryStore.temporary(MemoryBackupSettings())
    client = CopyClient(store, UID, lambda: SECRET)
    try:
        at, used = time.monotonic(), time.process_time()
        await client.fetch(NAME, HOST, port)
        return time.monotonic() - at, time.process_time() - used
    finally:
        client.close()
        store.close(ended=True)


def hmac_share(port: int) -> float:
    """The share of the HMAC in the CPU time of the client's event loop."""
    profile = cProfile.Profile(time.thread_time)
    profile.runcall(asyncio.run, fetch(port))
    stats: dict[tuple[str, int, str], tuple[Any, ...]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = {f"{file}:{function}": float(times[2]) for (file, _, function), times in stats.items()}
    return sum(each for name, each in own.items() if any(word in name for word in HMAC)) / sum(own.values())


def measure(megabytes: float) -> dict[str, float]:
    """The figures of a copy of this size."""
    with tempfile.TemporaryDirectory(dir=SHM, prefix="copy-transfer-") as folder:
        write_copy(Path(folder), *NAME, size=int(megabytes * 1e6))
        command = [sys.executable, "-m", "benchmarks.copy_transfer", "--serve", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            port = int(_answer(server, ask=False))
            before = float(_answer(server))
            fetched = [asyncio.run(fetch(port)) for _ in range(TIMES)]
            served = (float(_answer(server)) - before) / TIMES
            share = hmac_share(port)
            server.terminate()
    seconds = [each for each, _ in fetched]
    return {
        "seconds_median": statistics.median(seconds),
        "seconds_worst": max(seconds),
        "mb_a_second": megabytes / statistics.median(seconds),
        "client_cpu_s_a_gb": 1000 * statistics.median(used for _, used in fetched) / megabytes,
        "server_cpu_s_a_gb": 1000 * served / megabytes,
        "hmac_share": share,
    }


def _answer(server: subprocess.Popen[str], ask: bool = True) -> str:
    assert server.stdin is not None and server.stdout is not None
    if ask:
        server.stdin.write("\n")
        server.stdin.flush()
    return server.stdout.readline()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.copy_transfer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--state", type=float, nargs="+", default=[4.0, 76.0, 530.0], metavar="MB", help="sizes")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    told: dict[str, Any] = {}
    for megabytes in options.state:
        told[f"{megabytes:g}"] = {name: round(value, 3) for name, value in measure(megabytes).items()}
        print(f"{megabytes:g} MB: {told[f'{megabytes:g}']}", flush=True)
    print(json.dumps({**told, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
