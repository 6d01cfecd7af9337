"""The chiefs' launchers of many jobs in one process: the launcher's own HTTP server, long polls and revisions answer
for each chief on its pod's address. No program runs; a gang trains when all its pods exist.

The real launcher checks ten times a second whether a waiting client is to be answered; here once in CHECK_SECONDS, for
a thousand launchers share the processor with the measured operator.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from benchmarks.api_client import Client, Manifest, Watch
from benchmarks.job_objects import core_path
from tests.support.control_plane.chief_launcher import PORT
from tftraining.launch.http import long_polls
from tftraining.launch.http.long_polls import LongPolls
from tftraining.launch.http.revision import RevisionCounter
from tftraining.launch.http.server import HttpServer, Response

CHECK_SECONDS = 1.0
STEPS_PER_SECOND, STEPS_PER_EPOCH = 20, 1200
# A pod without containers that take their time changes twice after its creation: it is bound, and it runs.
CHANGES_UNTIL_IT_RUNS = 2
POD = re.compile(r"(?P<job>.*)-worker-(?P<index>\d+)")


class Chief:
    """The launcher of one chief: a gang of `workers` whose members in `present` have pods."""

    def __init__(self, name: str, workers: int) -> None:
        self.name = name
        self.present: set[int] = set()
        self.uid = self._job = ""
        self.asked = False
        self._workers = workers
        self._round = 0
        self._trained_at = 0.0
        self._down_since: datetime | None = None
        self._last_restart: Manifest | None = None
        self._server: HttpServer | None = None

    @property
    def trains(self) -> bool:
        """Whether the gang is complete and the launcher is there."""
        return self._server is not None and len(self.present) == self._workers

    def change(self, index: int, is_there: bool) -> None:
        """A member's pod is there, or is gone."""
        before = self.trains
        (self.present.add if is_there else self.present.discard)(index)
        self._note(before)

    def _note(self, before: bool) -> None:
        now = datetime.now(UTC)
        if before and not self.trains:
            self._down_since = now
        if self.trains and not before:
            self._round, self._trained_at = self._round + 1, time.monotonic()
            if self._down_since is not None:
                down = round((now - self._down_since).total_seconds(), 3)
                told = {"member": "worker-1", "reason": "MemberLost", "downSeconds": down}
                self._last_restart = {"time": self._down_since.isoformat(), **told}

    async def open(self, uid: str, ip: str, job: str) -> None:
        """Listen on the address of the chief's pod; `uid` is the pod's, `job` that of its job."""
        await self.close()
        self.uid, self._job = uid, job
        counter = RevisionCounter(uid, self._state)

        def page() -> Response:
            self.asked = True
            return Response(200, self._status(counter.current()), "application/json")

        server = HttpServer({"/status": page}, {"/status": LongPolls(counter.current)})
        await server.open(ip, PORT)
        before, self._server = self.trains, server
        self._note(before)

    async def close(self) -> None:
        """The launcher is gone, and its memory with it."""
        if self._server is not None:
            server, self._server, self._round, self._last_restart = self._server, None, 0, None
            self._down_since, self.uid = None, ""
            await server.close()

    def _state(self) -> object:
        return (self._round, self.trains)

    def _status(self, revision: str) -> str:
        missing = [f"worker-{index}" for index in range(self._workers) if index not in self.present][:16]
        phase = "Training" if self.trains else "Restarting" if self._round else "Waiting"
        restarts = max(0, self._round - 1)
        ledger = {"inPlace": restarts, "processFailures": 0, "podFailures": 0, "refilledAt": 0, "withoutProgress": 0}
        body: dict[str, Any] = {
            "version": 1,
            "job": {"uid": self._job},
            "revision": revision,
            "phase": phase,
            "reason": phase,
            "message": "simulated",
            "round": self._round,
            "missing": missing,
            "gang": {"size": self._workers, "full": self._workers},
            "ledger": ledger,
            "lastRestart": self._last_restart,
            "progress": self._progress() if self.trains else None,
        }
        return json.dumps(body)

    def _progress(self) -> Manifest:
        step = int((time.monotonic() - self._trained_at) * STEPS_PER_SECOND)
        return {
            "epoch": step // STEPS_PER_EPOCH,
            "epochs": 1000,
            "step": step,
            "stepsPerEpoch": STEPS_PER_EPOCH,
            "stepsPerSecond": STEPS_PER_SECOND,
            "metrics": {"loss": 1 / (1 + step), "accuracy": 0.5},
            "updatedTime": datetime.now(UTC).isoformat(),
        }


class SimulatedChiefs:
    """`async with SimulatedChiefs(client, namespace, workers) as chiefs:` follows the pods of the namespace."""

    def __init__(self, client: Client, namespace: str, workers: int) -> None:
        self._client = client
        self._path = core_path(namespace, "pods")
        self._workers = workers
        self._chiefs: dict[str, Chief] = {}
        self._opening: set[str] = set()
        self._seen: dict[str, str] = {}
        self._changes: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        long_polls.CHECK_SECONDS = CHECK_SECONDS

    async def __aenter__(self) -> Self:
        self._watch = _PodWatch(self._client, self._path, self._take)
        await self._watch.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watch.__aexit__(None, None, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._chiefs.values():
            await each.close()

    @property
    def training(self) -> int:
        """The number of gangs that train."""
        return sum(each.trains for each in self._chiefs.values())

    @property
    def asked(self) -> int:
        """The number of chiefs whose status somebody has asked for since `forget_requests`."""
        return sum(each.asked for each in self._chiefs.values())

    def forget_requests(self) -> None:
        """Begin to count the asked chiefs anew."""
        for each in self._chiefs.values():
            each.asked = False

    @property
    def pods(self) -> dict[str, str]:
        """The UIDs of the pods by name."""
        return self._seen

    async def until(self, reached: Callable[[], bool], what: str, seconds: float) -> float:
        """Wait until `reached`; the time (time.perf_counter) of that. TimeoutError if never."""
        deadline = time.monotonic() + seconds
        while not reached():
            self._watch.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {len(self._seen)} pods, {self.training} gangs train")
            await asyncio.sleep(0.02)
        return time.perf_counter()

    def _take(self, kind: str, meta: Manifest) -> None:
        found = POD.fullmatch(meta["name"])
        if found is None:
            return
        chief = self._chiefs.setdefault(found["job"], Chief(found["job"], self._workers))
        is_there = kind != "DELETED" and "deletionTimestamp" not in meta
        index = int(found["index"])
        if kind == "DELETED":
            self._seen.pop(meta["name"], None)
        else:
            self._seen[meta["name"]] = meta["uid"]
        if index == 0:
            self._take_chief(chief, meta, is_there)
        chief.change(index, is_there)

    def _take_chief(self, chief: Chief, meta: Manifest, is_there: bool) -> None:
        if not is_there and chief.uid == meta["uid"]:
            self._run(chief.close())
        elif is_there and chief.uid != meta["uid"] and chief.name not in self._opening and self._may_run(meta):
            self._opening.add(chief.name)
            self._run(self._open(chief, meta["name"]))

    def _may_run(self, meta: Manifest) -> bool:
        """Whether the pod has changed often enough to run: a request for each pod that cannot run yet would be a load
        that no launcher is."""
        changes = self._changes[meta["uid"]] = self._changes.get(meta["uid"], -1) + 1
        return changes >= CHANGES_UNTIL_IT_RUNS

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, chief: Chief, pod: str) -> None:
        """Open the launcher once the pod runs."""
        try:
            while True:
                raw = msgspec.json.decode(await self._client.request("GET", f"{self._path}/{pod}"))
                status = raw.get("status", {})
                if status.get("phase") == "Running" and status.get("podIP"):
                    (job,) = raw["metadata"]["ownerReferences"]
                    await chief.open(raw["metadata"]["uid"], status["podIP"], job["uid"])
                    return
                await asyncio.sleep(0.5)
        except (RuntimeError, OSError) as error:
            print(f"cannot play the launcher of {pod}: {error}", flush=True)
        finally:
            self._opening.discard(chief.name)


class _PodWatch(Watch):
    """A watch that hands each event over, and keeps no objects."""

    def __init__(self, client: Client, path: str, take: Callable[[str, Manifest], None]) -> None:
        super().__init__(client, path)
        self._hand_over = take

    def _take(self, event: Manifest) -> None:
        self._hand_over(event["type"], event["object"]["metadata"])
