"""Starts and stops the member's program as the chief's launcher orders, and reports the program's state to the chief.

A start may take minutes, so a later order interrupts it. It must never report an exit that this launcher has caused,
nor start a program without a lease (chief_contact.py). Another process enforces the lease when this event loop hangs
(process/lease.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Mapping
from typing import Any

from tftraining.launch.config import proxies, round_environment
from tftraining.launch.config.settings import Settings
from tftraining.launch.failure.exit import Exit, exit_to_frame
from tftraining.launch.failure.first_step import UNCLEAN, Starts
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import FAILED, SUCCEEDED, Result
from tftraining.launch.failure.same_member import SUSPECTED
from tftraining.launch.gang.aftermath import only_serves
from tftraining.launch.gang.memory_backups import HELD
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.process.program import Program
from tftraining.launch.progress import has_reports, to_frame
from tftraining.launch.rendezvous.backup_control import BackupControl
from tftraining.launch.rendezvous.chief_contact import ChiefContact
from tftraining.launch.rendezvous.program_watch import ProgramWatch
from tftraining.launch.rendezvous.protocol import Channel, Frame, ProtocolError
from tftraining.launch.wait_for import wait_for

DUMP_SECONDS = 0.5  # to write the stacks


class ProgramControl:
    """The member's program over all rounds. `environment` is the program's, without the variables of a round."""

    def __init__(
        self, settings: Settings, program: Program, environment: Mapping[str, str], chief: ChiefContact
    ) -> None:
        self.settings = settings
        self.program = program
        self.incarnation = secrets.token_hex(8)  # tells this launcher from earlier ones of the same member
        self.state = "waiting"  # waiting (for the chief), ready, running, done
        self.round = 0
        self.latest_round = 0  # the highest round number that any chief's launcher has announced
        self.ledger: Ledger = settings.ledger
        self.started_at = 0.0
        self.stopped_at: float | None = None  # when this launcher stopped the program of the last round
        self.exit: Exit | None = None
        self.result: Result | None = None
        # The variables of rounds whose members all have the same digest: the programs agree on the end of `fit` by
        # collectives, which hang if one program takes no part.
        self.finished_fit_digest, self.finished_fit_variables = "", dict[str, str]()
        self.backups: BackupControl | None = None  # None: this member makes no backups in memory
        self._environment = dict(environment)
        self._chief = chief
        self.channel: Channel | None = None  # to the chief's launcher, while it is connected
        self._evaluator_grace = settings.policy.evaluator_grace_seconds
        self._has_ended = asyncio.Event()  # the program of this round
        self._watch = ProgramWatch(settings, program)
        self._starts, self._has_reported = Starts(), False  # of the program in this pod

    def order_copy(self, order: Frame) -> None:
        """Let the program of this round make a backup in memory at the end of the ordered step."""
        if self.backups is not None and self.state == "running" and order.get("round") == self.round:
            self.backups.request_copy(order.get("step"), lambda: self.send_heartbeat(time.monotonic()))

    def order_summary(self, order: Frame) -> None:
        """Let the program of this round tell the variables of a copy more closely."""
        if self.backups is not None and self.state == "running" and order.get("round") == self.round:
            self.backups.request_summary(order.get("step"), lambda: self.send_heartbeat(time.monotonic()))

    def order_set_aside(self, order: Frame) -> None:
        """Let the program of this round set a copy aside."""
        if self.backups is not None and self.state == "running" and order.get("round") == self.round:
            self.backups.request_set_aside(order.get("step"), order.get("agreed"))

    def dump_stacks(self, why: str) -> None:
        """Write the stacks of the program into the log, because of members that make no step."""
        if self.state == "running":
            self.program.log(f"tftraining: NoStep: {why}; the stacks of this program:")
            self.program.dump_stacks()

    # The chief's orders.

    async def execute(self, orders: asyncio.Queue[Frame]) -> None:
        """Carry out the orders until the job has a result."""
        order: Frame | None = None
        while self.result is None:
            order = order or await orders.get()
            order = await self._execute_one(order, orders)

    async def _execute_one(self, order: Frame, orders: asyncio.Queue[Frame]) -> Frame | None:
        """Carry out one order; return the next order if it interrupted this one."""
        if order["type"] == "start":
            return await self._start_unless_interrupted(order, orders)
        if order["type"] == "stop":
            self._note_failed_member(order.get("member"))
            if "ledger" in order:  # the chief's launcher may be of an older version that omits it
                self.ledger = Ledger.from_json(order["ledger"])
            self._record_start(None)
            if order.get("moves"):
                self._leave_for_new_pod(SUSPECTED, str(order["moves"]))
            elif order.get("newPods") and (self._starts.are_spoilt or not self._starts.stepped):
                self._leave_for_new_pod(UNCLEAN, self._starts.describe(self.settings.gang.me))
            await self._stop(int(order["round"]), order)
        elif order["type"] == "end":
            self._accept_result(order)
        return None

    def _record_start(self, ended: Exit | None) -> None:
        """Note how this round's program has started in this pod; `ended`: its own end."""
        snapshot, ran = self.program.snapshot(), time.monotonic() - self.started_at
        self._has_reported = self._has_reported or has_reports(snapshot)
        if ended is not None:
            restored = self.backups is not None and bool((self.backups.report() or {}).get("resumed"))
            self._starts.record_exit(ended, snapshot, self._has_reported, ran, restored)
        elif self.state == "running":
            self._starts.record_stop(snapshot, self._has_reported, ran)

    def _leave_for_new_pod(self, reason: str, why: str) -> None:
        """End this launcher without a verdict: whoever has created the pod creates another one. The chief knows before
        this member is ready, and does not start it again."""
        self.send(type="leaving")
        self.result = Result("", reason, why, self.settings.gang.me)
        self.program.log(f"tftraining: leaving this pod for a new one: {self.result.message}")

    async def _start_unless_interrupted(self, order: Frame, orders: asyncio.Queue[Frame]) -> Frame | None:
        """Start the program, which may take minutes; return the order that interrupted the start, if any."""
        starting = asyncio.ensure_future(self._start(int(order["round"]), order))
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
            await self.kill()
            self.state = "ready"
        return None if later.cancelled() else later.result()

    async def _start(self, number: int, order: Frame) -> None:
        self.program.log(f"tftraining: round {number} starts")
        self.round, self.latest_round = number, max(number, self.latest_round)
        self.ledger = Ledger.from_json(order["ledger"])
        self.state, self.started_at, self.exit, self.stopped_at = "running", time.monotonic(), None, None
        self._has_ended.clear()
        self._watch.begin_round()
        deadline = self._chief.lease_deadline if self.settings.in_gang else math.inf
        await self.program.start(self._round_environment(number, order), self._report_exit, deadline)
        self.send_heartbeat(time.monotonic())

    def _round_environment(self, number: int, order: Frame) -> dict[str, str]:
        finished = self.finished_fit_variables if order.get("keepsFits") else {}
        agreed = {**finished, **self._memory_variables(order)}
        gang = self._gang_variables(order)
        environment = {**self._environment, **agreed, **gang, "TFTRAINING_ROUND": str(number)}
        return environment | proxies.exempt(environment, self.settings.worker_address)

    def _memory_variables(self, order: Frame) -> dict[str, str]:
        """The variable that makes the program back up in memory, if all members of the round do."""
        if self.backups is None:
            return {}
        return self.backups.begin_round(order.get("memoryBackup") if order.get("keepsFits") else None)

    def _gang_variables(self, order: Frame) -> dict[str, str]:
        """The variables that describe the round's gang; none if the chief does not list the members."""
        if "workers" not in order:
            return {}
        self._environment |= legacy_keras.request(self._environment, int(order["size"]), self.settings.keras)
        own = self._environment["TF_CONFIG"]
        try:
            return round_environment.of_round(self.settings, order["workers"], int(order["size"]), own)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    async def _stop(self, number: int, order: Frame) -> None:
        self.program.log(f"tftraining: round {number} stops: {order['why']}")
        if order["dump"]:
            self.program.dump_stacks()
            await asyncio.sleep(DUMP_SECONDS)
        await self.kill()
        if self.backups is not None:
            await self.backups.remove_suspects(order.get("suspects"), order.get("backTo"))
        self.state = "ready"
        self.send(type="ready", round=number, **{HELD: None if self.backups is None else self.backups.copies()})

    def accept_queued_result(self, orders: asyncio.Queue[Frame]) -> None:
        """After the connection has ended, accept only a result among the orders still queued."""
        while not orders.empty():
            if (order := orders.get_nowait())["type"] == "end" and self.result is None:
                self._accept_result(order)

    def _accept_result(self, order: Frame) -> None:
        """Record the job's result. No other round can start, so the program may run on for its grace period."""
        self.program.lease.end()
        self._evaluator_grace = float(order.get("evaluatorGrace", self._evaluator_grace))
        self.result, self.ledger = Result.from_frame(order), Ledger.from_json(order["ledger"])
        self._note_failed_member(self.result.member if self.result.verdict == FAILED else None)

    def _note_failed_member(self, member: object) -> None:
        """Tell the program which member ended the round; None if unknown."""
        self.program.note_failed_member("" if member in (None, self.settings.gang.me) else str(member))

    # Reports to the chief.

    def send(self, **frame: Any) -> None:
        """Send a frame, if the chief is connected."""
        if self.channel is not None:
            self.channel.send(frame)

    def send_heartbeat(self, now: float) -> None:
        """Send the state of the program."""
        program, snapshot = self.program, self.program.snapshot()
        state: Frame = {"mode": program.mode, "pid": program.pid, "prepared": program.is_prepared}
        state |= self._watch.look(snapshot, now, is_running=self.state == "running") | self._backup_field()
        self.send(type="beat", t=now, round=self.round, progress=to_frame(snapshot, now), **state)

    def send_exit(self) -> None:
        """Report how this round's program ended, if it ended by itself."""
        if self.state == "done" and self.exit is not None:
            progress = to_frame(self.program.snapshot(), time.monotonic())
            told = {"exit": exit_to_frame(self.exit), "progress": progress, **self._backup_field()}
            told["spoilt"] = self._starts.are_spoilt
            self.send(type="exited", round=self.round, **told)

    def _backup_field(self) -> Frame:
        return {} if self.backups is None else {"backup": self.backups.report()}

    def _report_exit(self, program_exit: Exit) -> None:
        """Report that the program ended by itself. Not if the lease is over: then the lease watchdog may have killed
        it, and the connection is about to end."""
        self._has_ended.set()
        if not self.program.lease.is_over:
            self._record_start(program_exit)
            self.state, self.exit = "done", program_exit
            self.send_exit()

    # The end of the program.

    async def stop_without_chief(self) -> None:
        """Kill the program because the connection to the chief is lost; an evaluator runs on."""
        if self.result is None and self.settings.in_gang:
            self._note_failed_member(self.settings.gang.chief)
            self._record_start(None)
            await self.kill()
            self.state = "waiting"

    async def wait_for_announced_stop(self, seconds: float) -> None:
        """Wait, after `leaving`, until the program has ended: the chief lets all make a backup in memory first, and
        then stops the round. No wait without such backups; at most so many seconds."""
        if self.state == "running" and self.backups is not None and self.backups.makes_copies:
            with contextlib.suppress(asyncio.TimeoutError):
                await wait_for(self._has_ended.wait(), seconds)

    async def finish(self) -> None:
        """End the program. After a success, one that still trains or evaluates has its grace period to finish."""
        gang, succeeded = self.settings.gang, self.result is not None and self.result.verdict == SUCCEEDED
        if succeeded and self.state == "running" and not only_serves(gang.me, gang, self.program.snapshot()):
            grace = self.settings.policy.termination_grace_seconds if self.settings.in_gang else self._evaluator_grace
            with contextlib.suppress(asyncio.TimeoutError):
                await wait_for(self._has_ended.wait(), grace)
            if not self.settings.in_gang and not self._has_ended.is_set():
                await self.program.terminate()
        await self.kill()

    async def kill(self) -> None:
        """Kill the program; its end is not reported."""
        if self.stopped_at is None and self.round:
            self.stopped_at = time.monotonic()
        await self.program.kill()
        self._has_ended.set()
        if self.backups is not None:
            await self.backups.end_round()
