"""The rendezvous client: starts and stops its member's program as the chief's launcher orders, and reports its state.

It must never let its program run after the chief may have declared the member lost. Each heartbeat carries the time and
the chief echoes it. A member whose last echo is too old kills its program and reconnects. That limit, the lease, is
shorter than the chief's member timeout, and the chief echoes only heartbeats that it has received. So the program is
dead before the chief replaces it, whichever direction of the network fails. Another process enforces the lease when
this event loop hangs (lease.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tftraining.launch.config import proxies, round_environment
from tftraining.launch.config.settings import Settings
from tftraining.launch.failure.incident import exit_to_frame
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.result import FAILED, SUCCEEDED, Verdict
from tftraining.launch.gang.restart_scope import restarts_alone, serves
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.process_state import Pulse
from tftraining.launch.process.program import Exit, Program
from tftraining.launch.progress import to_frame
from tftraining.launch.rendezvous.protocol import (
    FRAME_BYTES,
    HANDSHAKE_SECONDS,
    Channel,
    Frame,
    GoneError,
    WireError,
    connect,
)
from tftraining.launch.success_file import read_success

BEATS = 6  # heartbeats per member timeout
# A heartbeat costs the chief's launcher 0.12 ms of CPU: a gang of thousands sends fewer, which still leaves three in a
# lease.
LARGE_GANG, BEATS_IN_LARGE_GANG = 1000, 4
LEASE = 5 / 6  # the maximum age of the last echo, as a fraction of the member timeout
DIALS = (0.0, 0.05, 0.1, 0.2, 0.5)  # seconds before each connection attempt; the last value repeats
DIAL_SECONDS = 3.0  # connection timeout: a new attempt resolves the host name again
CHIEF_LATE = 30.0  # seconds past the start deadline: a chief that runs reports the missing members itself
DUMP_SECONDS = 0.5  # to write the stacks
READ_SECONDS = 2.0  # to read the verdict file: the storage may hang


def beat_interval(timeout: float, members: int) -> float:
    """Seconds between two heartbeats of a member; `timeout` is memberTimeoutSeconds."""
    return timeout / (BEATS if members <= LARGE_GANG else BEATS_IN_LARGE_GANG)


class Member:
    """The client of the rendezvous. `environment` is the program's, without the variables that a round adds."""

    def __init__(self, settings: Settings, secret: bytes, program: Program, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.program = program
        self.incarnation = secrets.token_hex(8)
        self.ledger: Ledger = settings.ledger
        self.round = 0
        self.state = "waiting"  # waiting (for the chief), ready, running, done
        self.started = 0.0
        self.verdict: Verdict | None = None
        self.exit: Exit | None = None
        self._environment = dict(environment)
        self._keeps_fits, self._fit_variables = "", dict[str, str]()
        self._memory: MemoryStore | None = None
        self._secret = secret
        self._channel: Channel | None = None
        self._joined = False  # the chief accepted the last connection
        self._lease = 0.0
        self._down: float | None = None  # when this member's program of the last round was stopped
        self._known = 0  # the highest round number that any chief's launcher has announced
        self._witness = 0  # the last round in which the chief closed the connection
        self._farewell = 0  # the last round in which the chief's launcher reported that its program has ended
        self._left: float | None = None  # when the last rendezvous connection ended
        self._no_gpu = False  # TensorFlow sees none of the GPUs that the container asks for
        self._stopping = False
        self._leaving = False
        self._ended = asyncio.Event()  # set when the program of this round has ended
        self._pulse = Pulse()
        self._start_deadline = settings.policy.start_deadline
        self._evaluator_grace = settings.policy.evaluator_grace
        self._looking: asyncio.Future[Verdict | None] | None = None
        self._complaint = ""
        host, self._port = settings.rendezvous
        self._host = (settings.host or "127.0.0.1") if settings.is_chief else host

    def keep_fits(self, command: str, variables: Mapping[str, str]) -> None:
        """Add `variables` to the program's environment in rounds whose members all have the same `command` digest.

        The programs agree on the end of `fit` by collectives, which hang if one program takes no part.
        """
        self._keeps_fits, self._fit_variables = command, dict(variables)

    def back_up_in_memory(self, memory: MemoryStore) -> None:
        """Let the program back up in memory, in rounds whose members all do."""
        self._memory = memory

    async def run(self) -> Verdict:
        """Take part until the job has ended; return the verdict."""
        alone, tries = time.monotonic(), 0
        while self.verdict is None:
            await asyncio.sleep(DIALS[min(tries, len(DIALS) - 1)])
            try:
                await self._session()
            except ConnectionRefusedError:
                self._complain("no launcher listens there yet")
            except (OSError, asyncio.TimeoutError) as error:
                self._complain(str(error) or "no answer")
            if self._joined:
                alone, tries, self._joined = time.monotonic(), 0, False
            else:
                tries += 1
            if self.verdict is None:
                self.verdict = await self._without_chief(alone)
        return self.verdict

    async def finish(self) -> None:
        """End the program. After a success, one that still trains or evaluates has its grace period to finish."""
        gang, succeeded = self.settings.gang, self.verdict is not None and self.verdict.verdict == SUCCEEDED
        if succeeded and self.state == "running" and not serves(gang.me, gang, self.program.snapshot()):
            grace = self.settings.grace if self.settings.in_gang else self._evaluator_grace
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), grace)
            if not self.settings.in_gang and not self._ended.is_set():
                await self.program.terminate()
        await self._kill()

    async def leave(self) -> Verdict:
        """On SIGTERM: tell the chief, so that no member is blamed, and terminate the program with its grace period."""
        self._leaving = True
        self._tell(type="leaving")
        await self.program.terminate()
        if self.verdict is None:
            self.verdict = Verdict("", "Terminated", f"{self.settings.gang.me} was told to stop")
        return self.verdict

    # The connection.

    async def _session(self) -> None:
        """One connection, from the handshake until it breaks (an OSError) or the verdict arrives."""
        opening = asyncio.open_connection(self._host, self._port, limit=FRAME_BYTES)
        reader, writer = await asyncio.wait_for(opening, DIAL_SECONDS)
        joined: Channel | None = None
        try:
            hello = self._hello(time.monotonic())
            channel = await connect(reader, writer, self._secret, hello)
            answer = await asyncio.wait_for(channel.receive(), HANDSHAKE_SECONDS)
            if answer["type"] != "welcome":
                raise WireError(f"refused: {answer.get('why')}")
            self._lease = hello["t"]
            self._known, self.ledger = int(answer["round"]), Ledger.from_json(answer["ledger"])
            self._start_deadline = float(answer.get("startDeadline", self._start_deadline))
            self._channel = joined = channel
            self._joined = True
            self.program.give_way(bool(answer.get("giveWay")))
            if self.state == "waiting":
                # "done": the program finished under an earlier launcher of this member.
                self.state, self.exit = ("done", Exit(0, None)) if answer.get("done") else ("ready", None)
            self._tell_end()  # again: a new launcher of the chief has not received it
            await self._converse(channel)
        finally:
            self._channel = None
            self.program.give_way(False)
            try:
                await self._cut_off()
                self._part(joined)
            finally:  # also if _cut_off is cancelled
                writer.close()

    def _part(self, channel: Channel | None) -> None:
        """Tell the chief if no program runs here. Without this `bye` the chief waits until the lease is over: anyone on
        the network can break a connection, so its end alone proves nothing."""
        if channel is None or not self.settings.in_gang:
            return
        self._left = time.monotonic()
        if self.program.idle:
            channel.send({"type": "bye"})

    async def _converse(self, channel: Channel) -> None:
        """Receive, obey and send heartbeats until one of the three tasks ends; raise its error."""
        orders: asyncio.Queue[Frame] = asyncio.Queue()
        tasks = [
            asyncio.create_task(each)
            for each in (self._act(orders), self._listen(channel, orders), self._beat(channel))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(tasks)
            self._hear_the_end(orders)
        # Raise the launcher's own errors before network errors, which would hide them.
        failures = [error for task in tasks if not task.cancelled() and (error := task.exception())]
        for error in sorted(failures, key=lambda each: isinstance(each, OSError)):
            raise error

    async def _listen(self, channel: Channel, orders: asyncio.Queue[Frame]) -> None:
        while True:
            try:
                frame = await channel.receive()
            except GoneError:
                self._witness = self.round if not channel.aborted else self._witness
                raise
            if frame["type"] == "beat":
                self._lease = max(self._lease, frame["echo"])
                self.program.lease.renew(self._deadline)
                self.program.give_way(bool(frame.get("giveWay")))
            elif frame["type"] == "bye":
                self._farewell = self.round
            else:
                orders.put_nowait(frame)

    async def _beat(self, channel: Channel) -> None:
        timeout = self.settings.policy.member_timeout
        while True:
            now = time.monotonic()
            left = self._deadline - now
            if left <= 0 or self.program.lease.over:
                raise WireError(f"the chief was not heard of for {now - self._lease:.1f} s")
            self._tell_condition(now)
            await asyncio.sleep(min(beat_interval(timeout, len(self.settings.gang.members)), left))

    @property
    def _deadline(self) -> float:
        """When the program must be dead, unless the chief's echo renews the lease."""
        return self._lease + self.settings.policy.member_timeout * LEASE

    def _hello(self, now: float) -> Frame:
        snapshot = self.program.snapshot()
        return {
            "type": "hello",
            "t": now,
            "uid": self.settings.job["uid"],
            "attempt": self.settings.attempt,
            "member": self.settings.gang.me,
            "incarnation": self.incarnation,
            "round": self.round,
            "known": self._known,
            "ledger": self.ledger.to_json(),
            "running": self.state in ("running", "done"),
            "leaving": self._leaving,
            "down": None if self._down is None else now - self._down,
            "step": snapshot.step,
            "witness": self._witness,
            "farewell": self._farewell,
            "left": None if self._left is None else now - self._left,
            "elastic": True,
            "keepsFits": self._keeps_fits,
            "copies": self._copies(),
        }

    def _tell_condition(self, now: float) -> None:
        """Send a heartbeat with the state of the program."""
        pid, mode = self.program.pid, self.program.mode
        stuck, progress = self._pulse.stuck(pid, now), to_frame(self.program.snapshot(), now)
        self._look_for_gpus()
        condition = {"mode": mode, "pid": pid, "stuck": stuck, "prepared": self.program.prepared, "noGpu": self._no_gpu}
        self._tell(type="beat", t=now, round=self.round, progress=progress, **condition)

    def _look_for_gpus(self) -> None:
        """Note whether TensorFlow sees none of the GPUs that the container requests. The previous round's answer counts
        until this round's program reports."""
        asked, seen = self.settings.gpus, self.program.gpus
        if not asked or seen is None:
            return
        if not seen and not self._no_gpu:
            self.program.say(
                f"tftraining: NoGPU: the container asks for GPUs ({asked}) and TensorFlow sees none: it trains on the "
                "CPU. See that the image has NVIDIA's CUDA libraries"
            )
        self._no_gpu = not seen

    # Orders of the chief.

    async def _act(self, orders: asyncio.Queue[Frame]) -> None:
        frame: Frame | None = None
        while self.verdict is None:
            frame = frame or await orders.get()
            frame = await self._obey(frame, orders)

    async def _obey(self, frame: Frame, orders: asyncio.Queue[Frame]) -> Frame | None:
        """Carry out one order; return the next order if it interrupted this one."""
        if frame["type"] == "start":
            return await self._start_unless_overtaken(frame, orders)
        if frame["type"] == "stop":
            self._blame(frame.get("member"))
            if "ledger" in frame:  # the chief's launcher may be of an older version that omits it
                self.ledger = Ledger.from_json(frame["ledger"])
            await self._stop(int(frame["round"]), str(frame["why"]), bool(frame["dump"]))
        elif frame["type"] == "end":
            self._end_by(frame)
        return None

    async def _start_unless_overtaken(self, frame: Frame, orders: asyncio.Queue[Frame]) -> Frame | None:
        """Start the program, which may take minutes; return the order that interrupted the start, if any."""
        starting = asyncio.ensure_future(self._start(int(frame["round"]), frame))
        later = asyncio.ensure_future(orders.get())
        try:
            await asyncio.wait({starting, later}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
        finally:
            # Cancelling ends only the wait: the start itself goes on until `kill`.
            starting.cancel()
            later.cancel()
            await asyncio.gather(starting, later, return_exceptions=True)
        if starting.cancelled():
            await self._kill()
            self.state = "ready"
        return None if later.cancelled() else later.result()

    def _end_by(self, frame: Frame) -> None:
        """Record the verdict. No other round can start, so the program may run on for its grace period."""
        self.program.lease.end()
        self._evaluator_grace = float(frame.get("evaluatorGrace", self._evaluator_grace))
        self.verdict, self.ledger = Verdict.from_frame(frame), Ledger.from_json(frame["ledger"])
        self._blame(self.verdict.member if self.verdict.verdict == FAILED else None)

    def _hear_the_end(self, orders: asyncio.Queue[Frame]) -> None:
        """After the connection has ended, obey only a verdict among the orders still queued."""
        while not orders.empty():
            if (frame := orders.get_nowait())["type"] == "end" and self.verdict is None:
                self._end_by(frame)

    async def _start(self, number: int, frame: Frame) -> None:
        self.program.say(f"tftraining: round {number} starts")
        self.round, self._known, self.ledger = number, max(number, self._known), Ledger.from_json(frame["ledger"])
        self.state, self.started, self.exit, self._down = "running", time.monotonic(), None, None
        self._stopping = False
        self._ended.clear()
        agreed = self._fit_variables if frame.get("keepsFits") else {}
        agreed = {**agreed, **self._memory_variables(frame)}
        environment = {**self._environment, **agreed, **self._gang(frame), "TFTRAINING_ROUND": str(number)}
        environment |= proxies.exempt(environment, self.settings.worker_address)
        deadline = self._deadline if self.settings.in_gang else math.inf
        await self.program.start(environment, lambda ended: self._exited(number, ended), deadline)
        self._tell_condition(time.monotonic())

    def _copies(self) -> list[list[int]] | None:
        """The backups in memory, which change only while the program runs; None if this member makes none."""
        return None if self._memory is None or not self.settings.in_gang else self._memory.held()

    def _memory_variables(self, frame: Frame) -> dict[str, str]:
        """The variable that makes the program back up in memory, if all members of the round do."""
        told = frame.get("memoryBackup") if frame.get("keepsFits") else None
        return {} if self._memory is None or told is None else self._memory.variables(told.get("restore"))

    def _gang(self, frame: Frame) -> dict[str, str]:
        """The variables that a round adds to the environment; none if the chief does not list the members."""
        if "workers" not in frame:
            return {}
        self._environment |= legacy_keras.request(self._environment, int(frame["size"]))
        own = self._environment["TF_CONFIG"]
        try:
            return round_environment.of_round(self.settings, frame["workers"], int(frame["size"]), own)
        except ValueError as error:
            raise WireError(str(error)) from None

    async def _stop(self, number: int, why: str, dump: bool) -> None:
        self.program.say(f"tftraining: round {number} stops: {why}")
        if dump:
            self.program.dump_stacks()
            await asyncio.sleep(DUMP_SECONDS)
        await self._kill()
        self.state = "ready"
        self._tell(type="ready", round=number, copies=self._copies())

    def _blame(self, member: object) -> None:
        """Tell the program which member ended the round; None if unknown."""
        self.program.blame("" if member in (None, self.settings.gang.me) else str(member))

    def _exited(self, number: int, ended: Exit) -> None:
        """Report that the program ended by itself. Not if this launcher is killing it, nor if the lease is over: then
        the lease watchdog may have killed it, and the connection is about to end."""
        if number != self.round:
            return
        self._ended.set()
        if not self._stopping and not self.program.lease.over:
            self.state, self.exit = "done", ended
            self._tell_end()

    def _tell_end(self) -> None:
        """Tell the chief how this round's program ended, if it ended by itself."""
        if self.state == "done" and self.exit is not None:
            progress = to_frame(self.program.snapshot(), time.monotonic())
            self._tell(type="exited", round=self.round, exit=exit_to_frame(self.exit), progress=progress)

    def _tell(self, **frame: Any) -> None:
        if self._channel is not None:
            self._channel.send(frame)

    async def _kill(self) -> None:
        self._stopping = True
        if self._down is None and self.round:
            self._down = time.monotonic()
        await self.program.kill()

    # Without the chief.

    async def _cut_off(self) -> None:
        """The connection to the chief is lost: kill the program, unless it is an evaluator."""
        if self.verdict is None and self._joined and self.settings.in_gang:
            self._blame(self.settings.gang.chief)
            await self._kill()
            self.state = "waiting"

    async def _without_chief(self, alone: float) -> Verdict | None:
        """The verdict without a chief: a success found in the job's directory, or StartDeadlineExceeded, or None.
        `alone` is when the chief was last connected."""
        found = await self._success()
        gang, policy = self.settings.gang, self.settings.policy
        needed = self.settings.indispensable and not restarts_alone(gang.me, gang, policy)
        deadline = self._start_deadline
        if found is None and needed and time.monotonic() - alone > deadline + CHIEF_LATE:
            limit = f"{deadline:g} s (spec.runPolicy.startDeadlineSeconds)"
            message = f"no rendezvous with {gang.chief} within {limit}: {self._complaint}"
            return Verdict(FAILED, "StartDeadlineExceeded", message)
        return found

    async def _success(self) -> Verdict | None:
        """The success recorded in the job's directory. All attempts share one thread, for the storage may hang it."""
        if self._looking is None:
            uid, look = self.settings.job["uid"], asyncio.get_running_loop().run_in_executor
            self._looking = look(None, read_success, self.settings.directory, uid)
        done, _ = await asyncio.wait([self._looking], timeout=READ_SECONDS)
        if not done:
            return None
        found, self._looking = self._looking.result(), None
        return found

    def _complain(self, why: str) -> None:
        """Say why there is no rendezvous, once."""
        if why != self._complaint and self.verdict is None:
            self._complaint = why
            self.program.say(f"tftraining: {self.settings.gang.chief} at {self._host}:{self._port}: {why}")


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel repeatedly until all tasks have ended: before Python 3.12 wait_for may swallow a cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.05)
