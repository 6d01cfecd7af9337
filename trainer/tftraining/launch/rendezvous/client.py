"""The rendezvous client: connects a member to the chief's launcher again and again, and passes frames on.

Each heartbeat carries the time and the chief echoes it. A member whose last echo is too old kills its program and
reconnects: it must never let its program run after the chief may have declared the member lost (chief_contact.py). The
chief's orders are carried out by program_control.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from tftraining.launch.config.settings import Settings
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import TERMINATED
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import Result
from tftraining.launch.gang.memory_backups import HELD
from tftraining.launch.process.program import Program
from tftraining.launch.rendezvous.chief_contact import ChiefContact
from tftraining.launch.rendezvous.program_control import ProgramControl
from tftraining.launch.rendezvous.protocol import (
    FRAME_BYTES,
    HANDSHAKE_SECONDS,
    Channel,
    ConnectionClosedError,
    Frame,
    ProtocolError,
    connect,
    open_connection,
)
from tftraining.launch.success_record import FileRecord
from tftraining.launch.wait_for import wait_for

HEARTBEATS_PER_TIMEOUT = 6
# A heartbeat costs the chief's launcher 0.12 ms of CPU: a gang of thousands sends fewer, which still leaves three in a
# lease.
LARGE_GANG, HEARTBEATS_IN_LARGE_GANG = 1000, 4
RETRY_SECONDS = (0.0, 0.05, 0.1, 0.2, 0.5)  # before each connection attempt; the last value repeats


def heartbeat_interval(timeout: float, members: int) -> float:
    """Seconds between two heartbeats of a member; `timeout` is memberTimeoutSeconds."""
    return timeout / (HEARTBEATS_PER_TIMEOUT if members <= LARGE_GANG else HEARTBEATS_IN_LARGE_GANG)


class RendezvousClient:
    """One member's side of the rendezvous. `environment` is the program's, without the variables of a round;
    `key` gives the job's secret."""

    def __init__(
        self,
        settings: Settings,
        key: Callable[[], bytes],
        program: Program,
        environment: Mapping[str, str],
        record: FileRecord,
    ) -> None:
        host, self._port = settings.rendezvous
        self._host = (settings.host or "127.0.0.1") if settings.is_chief else host
        self.settings = settings
        self.chief = ChiefContact(settings, f"{self._host}:{self._port}", program.log, record)
        self.control = ProgramControl(settings, program, environment, self.chief)
        self._program = program
        self._key = key
        self._joined = False  # the chief accepted the last connection
        self._leaving = False

    async def run(self) -> Result:
        """Take part until the job has ended; return its result."""
        self.chief.record_loss()  # it is there no earlier
        try:
            return await self._take_part()
        finally:
            self.chief.close()

    async def _take_part(self) -> Result:
        tries = 0
        while self.control.result is None:
            await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            problem = await self._try_session()
            if problem and self.control.result is None:
                self.chief.log_problem(problem)
            if self._joined:
                tries, self._joined = 0, False
                self.chief.record_loss()
            else:
                tries += 1
            if self.control.result is None:
                self.control.result = await self.chief.result_without_chief()
        return self.control.result

    def announce_leaving(self) -> None:
        """On SIGTERM: tell the chief, so that no member is charged."""
        self._leaving = True
        self.control.send(type="leaving")

    async def terminate(self, grace: float) -> Result:
        """After SIGTERM: terminate the program; `grace` is what is left of its grace period, in seconds."""
        await self._program.terminate(grace)
        if self.control.result is None:
            self.control.result = Result("", TERMINATED, f"{self.settings.gang.me} received SIGTERM")
        return self.control.result

    # One connection.

    async def _try_session(self) -> str:
        """One connection; why it ended, "" if the job has its result."""
        try:
            await self._hold_session()
        except ConnectionRefusedError:
            return "no launcher listens there yet"
        except (OSError, asyncio.TimeoutError) as error:
            return str(error) or "the chief's launcher did not answer"
        return ""

    async def _hold_session(self) -> None:
        """One connection, from the handshake until it breaks (an OSError) or the result arrives."""
        reader, writer = await open_connection(self._host, self._port, limit=FRAME_BYTES)
        try:
            hello = self._hello(time.monotonic())
            channel = await connect(reader, writer, self._key(), hello)
            answer = await wait_for(channel.receive(), HANDSHAKE_SECONDS)
            if answer["type"] != "welcome":
                raise ProtocolError(f"the chief refused the connection: {answer.get('why')}")
            self._join(channel, answer, hello["t"])
            await self._converse(channel)
        finally:
            joined, self.control.channel = self.control.channel, None
            self._program.pause_warmup(False)
            try:
                if joined is not None:
                    await self.control.stop_without_chief()
                    self._say_bye(joined)
            finally:  # also if the stop is cancelled
                writer.close()

    def _hello(self, now: float) -> Frame:
        control, chief = self.control, self.chief
        return {
            "type": "hello",
            "t": now,
            "uid": self.settings.job["uid"],
            "attempt": self.settings.attempt,
            "member": self.settings.gang.me,
            "incarnation": control.incarnation,
            "round": control.round,
            "known": control.latest_round,
            "ledger": control.ledger.to_json(),
            "running": control.state in ("running", "done"),
            "leaving": self._leaving,
            "down": None if control.stopped_at is None else now - control.stopped_at,
            "step": self._program.snapshot().step,
            "witness": chief.closed_round,
            "farewell": chief.bye_round,
            "left": None if chief.disconnected_at is None else now - chief.disconnected_at,
            "keepsFits": control.finished_fit_digest,
            **({HELD: None} if control.backups is None else control.backups.for_hello()),
        }

    def _join(self, channel: Channel, welcome: Frame, sent_at: float) -> None:
        """Take the chief's answer to the hello that was sent at `sent_at`."""
        self.chief.record_echo(sent_at)
        self.control.latest_round, self.control.ledger = int(welcome["round"]), Ledger.from_json(welcome["ledger"])
        self.chief.start_deadline = float(welcome.get("startDeadline", self.chief.start_deadline))
        self.control.channel, self._joined = channel, True
        self._program.pause_warmup(bool(welcome.get("giveWay")))
        if self.control.state == "waiting":
            # "done": the program finished under an earlier launcher of this member.
            done = bool(welcome.get("done"))
            self.control.state, self.control.exit = ("done", Exit(0, None)) if done else ("ready", None)
        self.control.send_exit()  # again: a new launcher of the chief has not received it

    def _say_bye(self, channel: Channel) -> None:
        """Tell the chief if no program runs here. Without this `bye` the chief waits until the lease is over: anyone on
        the network can break a connection, so its end alone proves nothing."""
        if not self.settings.in_gang:
            return
        self.chief.disconnected_at = time.monotonic()
        if self._program.is_idle:
            channel.send({"type": "bye"})

    async def _converse(self, channel: Channel) -> None:
        """Receive frames, carry out orders and send heartbeats until one of these tasks ends; raise its error."""
        orders: asyncio.Queue[Frame] = asyncio.Queue()
        tasks = [
            asyncio.create_task(each)
            for each in (self.control.execute(orders), self._receive(channel, orders), self._send_heartbeats())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.control.accept_queued_result(orders)
        # Raise the launcher's own errors before network errors, which would hide them.
        failures = [error for task in tasks if not task.cancelled() and (error := task.exception())]
        for error in sorted(failures, key=lambda each: isinstance(each, OSError)):
            raise error

    async def _receive(self, channel: Channel, orders: asyncio.Queue[Frame]) -> None:
        while True:
            try:
                frame = await channel.receive()
            except ConnectionClosedError:
                if not channel.is_aborted:
                    self.chief.closed_round = self.control.round
                raise
            if frame["type"] == "beat":
                self.chief.record_echo(frame["echo"])
                self._program.lease.renew(self.chief.lease_deadline)
                self._program.pause_warmup(bool(frame.get("giveWay")))
            elif frame["type"] == "copy":  # at once: an order in the queue would interrupt a start
                self.control.order_copy(frame)
            elif frame["type"] == "compare":
                self.control.order_summary(frame)
            elif frame["type"] == "setAside":
                self.control.order_set_aside(frame)
            elif frame["type"] == "dump":
                self.control.dump_stacks(str(frame.get("why")))
            elif frame["type"] == "bye":
                self.chief.bye_round = self.control.round
            else:
                orders.put_nowait(frame)

    async def _send_heartbeats(self) -> None:
        interval = heartbeat_interval(self.settings.policy.member_timeout_seconds, len(self.settings.gang.members))
        while True:
            now = time.monotonic()
            left = self.chief.lease_deadline - now
            if left <= 0 or self._program.lease.is_over:
                raise ProtocolError(f"the chief sent no heartbeat for {self.chief.silent_seconds(now):.1f} s")
            self.control.send_heartbeat(now)
            await asyncio.sleep(min(interval, left))
