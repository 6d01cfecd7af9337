"""A gang in simulated time around the real coordinator: no sockets, no processes.

Each member acts as a launcher: it kills its program when told to stop or when its lease is over, reports that it is
ready, sends heartbeats and reconnects. Frames arrive in order after a delay, or are lost with their connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.failure.exception import exception_of
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.restart_scope import restarts_alone
from tftraining.launch.failure.result import Result
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import JobContext
from tftraining.launch.gang.outbox import CLOSE
from tftraining.launch.roles import traits_of

TICK = 0.5


def make_coordinator(
    *members: str,
    ledger: Ledger | None = None,
    proven: bool = False,
    host: str = "",
    backups_off: str = "",
    **policy: Any,
) -> Coordinator:
    """A coordinator created at monotonic second 0, with a wall clock fixed at 1000."""
    members = members or ("worker-0", "worker-1")
    job = JobContext(
        "uid", 1, Gang(members, members[0]), Policy(**{"same_failure_limit": 0, **policy}), proven, host, backups_off
    )
    return Coordinator(job, ledger or Ledger(), lambda: 1000.0, 0.0)


def hello(member: str, now: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A member's hello."""
    frame = {"type": "hello", "t": now, "uid": "uid", "attempt": 1, "member": member, "incarnation": f"{member}/1"}
    return {
        **frame,
        "round": 0,
        "known": 0,
        "ledger": {},
        "running": False,
        "down": None,
        "step": None,
        "witness": 0,
        "farewell": 0,
        "left": None,
        **fields,
    }


def exited(number: int, code: int | None = None, number_of_signal: int | None = None, **fields: Any) -> dict[str, Any]:
    """A program's exit; `kind` and `lines` are optional."""
    lines = fields.pop("lines", [])
    ended = {"code": code, "signal": number_of_signal, "lines": lines, "kind": fields.pop("kind", "")}
    ended["exception"] = exception_of(lines) if code == 1 else ""
    return {"type": "exited", "round": number, "exit": ended, "progress": fields}


def heartbeat(number: int, now: float, stuck: float = 0.0, **progress: Any) -> dict[str, Any]:
    """A member's heartbeat; `progress` has the fields of a snapshot, times as ages."""
    return {"type": "beat", "t": now, "round": number, "mode": "warm", "pid": 7, "stuck": stuck, "progress": progress}


@dataclass
class Connection:
    """Frames in flight, each with the time of its arrival, and which ends are still open."""

    to_chief: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    to_member: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    member_open: bool = True
    chief_open: bool = True


@dataclass
class SimulatedLauncher:
    """One simulated launcher and its program. While `partitioned`, no frame reaches or leaves it."""

    name: str
    incarnation: str
    connection: Connection | None = None
    partitioned: bool = False
    program: int | None = None  # the round it runs in
    round: int = 0
    ledger: dict[str, int] = field(default_factory=dict)
    known_round: int = 0
    lease: float = 0.0
    chief_closed_round: int = 0  # the last round in which the chief closed the connection
    chief_bye_round: int = 0  # the last round in which the chief sent `bye`
    left_at: float | None = None  # when the last connection ended
    result: Result | None = None


class SimulatedGang:
    """All launchers of a job, the coordinator at the chief, and a clock that jumps from step to step."""

    def __init__(self, size: int, seed: int, names: tuple[str, ...] = (), **policy: Any) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.policy = Policy(
            **{"max_restarts": 1_000_000, "same_failure_limit": 0, "start_deadline_seconds": 1e9, **policy}
        )
        self.names = names or tuple(f"worker-{index}" for index in range(size))
        self.created = 0
        self.launchers: dict[str, SimulatedLauncher] = {}
        self.replaced: list[SimulatedLauncher] = []  # partitioned, with programs that may still run
        self.channels: dict[str, Connection] = {}
        self._old_chief: SimulatedLauncher | None = None
        self._chief_dies = 0.0
        self.coordinator = self._new_coordinator()
        for name in self.names:
            self._create_launcher(name)

    # Faults.

    def kill_program(self, name: str) -> None:
        """SIGKILL the program; its launcher reports the exit at once."""
        launcher = self.launchers[name]
        if launcher.program is not None:
            number, launcher.program = launcher.program, None
            self._send(launcher, exited(number, number_of_signal=9))

    def finish_program(self, name: str) -> None:
        """Let the program exit with 0."""
        launcher = self.launchers[name]
        if launcher.program is not None:
            number, launcher.program = launcher.program, None
            self._send(launcher, exited(number, 0))

    def kill_launcher(self, name: str, say_bye: bool = False) -> None:
        """Kill a launcher with its program, and create its successor; a new chief's launcher knows nothing."""
        self._wait_for_replaced()
        connection = self.launchers[name].connection
        if connection is not None:
            self._close(self.launchers[name], say_bye)
        if name == self.names[0]:
            for each in self.channels.values():
                if say_bye:
                    self._enqueue(each.to_member, {"type": "bye"})
                each.chief_open = False
            self._restart_coordinator()
        self._create_launcher(name)

    def end_launcher(self, name: str) -> None:
        """Terminate a launcher: it ends its program and sends `bye` before it closes its connections."""
        self.kill_launcher(name, say_bye=True)

    def close_connection(self, name: str) -> None:
        """Close a member's connection on the chief's side only, as a proxy between them may do."""
        connection = self.launchers[name].connection
        if connection is not None and self.channels.get(name) is connection:
            self._disconnect(name)

    def lose_launcher(self, name: str) -> None:
        """Kill a launcher without a successor before `heal_network`; the chief's gets one at once."""
        self.kill_launcher(name)
        if name != self.names[0]:
            del self.launchers[name]

    def partition(self, name: str) -> None:
        """Drop all frames to and from a member until `heal_network`."""
        self.launchers[name].partitioned = True

    def replace(self, name: str) -> None:
        """Partition a member's launcher for good, and create its successor on another node."""
        self._wait_for_replaced()
        others = [each.known_round for each in self.launchers.values() if each.name != name]
        if max(others) < self.launchers[name].known_round:
            return  # with it the last who remembers would go, and nobody could wait for its program to die
        old = self.launchers[name]
        old.partitioned = True
        self.replaced.append(old)
        if name == self.names[0]:
            self._old_chief = old
            self._chief_dies = self.now + self.policy.member_timeout_seconds + TICK
            self._restart_coordinator()
        self._create_launcher(name)

    def heal_network(self) -> None:
        """Repair the network, and create missing launchers; replaced launchers stay partitioned."""
        for name in self.names:
            if name not in self.launchers:
                self._create_launcher(name)
        for launcher in self.launchers.values():
            launcher.partitioned = False

    # Time.

    def advance(self, seconds: float) -> None:
        """Advance the clock and every launcher."""
        self.now += seconds
        for launcher in [*self.launchers.values(), *self.replaced]:
            self._advance_launcher(launcher)
        for name, connection in list(self.channels.items()):
            self._deliver_to_chief(name, connection)
        self.coordinator.tick(self.now)
        self._send_outbox()

    def check_invariants(self) -> None:
        """Assert that no two rounds run at once, and that a member restarted alone runs once, in no older round."""
        at_work = [each for each in [*self.launchers.values(), *self.replaced] if each.program is not None]
        alone = [each for each in at_work if self._restarts_alone(each)]
        rounds = {each.program for each in at_work if each not in alone}
        assert len(rounds) <= 1, rounds
        assert len({each.name for each in alone}) == len(alone), alone
        assert all((each.program or 0) >= number for each in alone for number in rounds if number is not None)

    def resize(self, size: int) -> None:
        """Change the number of workers: create launchers, or remove those with the highest indices."""
        names = tuple(f"worker-{index}" for index in range(size))
        for name in [each for each in self.names if each not in names]:
            if name in self.launchers:
                self.kill_launcher(name)
                del self.launchers[name]
        for name in [each for each in names if each not in self.names]:
            self._create_launcher(name)
        self.names = names
        self.coordinator.apply_spec_update(Gang(names, names[0]), self.policy, self.now)

    def is_settled(self) -> bool:
        """Whether all members run, and those that train together run in the same round."""
        together = [each for each in self.launchers.values() if not self._restarts_alone(each)]
        running = all(each.program is not None for each in self.launchers.values())
        return len(self.launchers) == len(self.names) and running and len({each.program for each in together}) == 1

    def _restarts_alone(self, launcher: SimulatedLauncher) -> bool:
        name, chief = launcher.name, self.coordinator.membership.chief
        return restarts_alone(traits_of(name), self.policy.scope, name == chief)

    def run_until(self, condition: Callable[[], bool], steps: int = 1000) -> None:
        """Advance until the condition holds; check the invariants after each step."""
        for _ in range(steps):
            if condition():
                return
            self.advance(self.random.uniform(0.02, TICK))
            self.check_invariants()
        raise AssertionError("it never settles")

    # A launcher.

    def _restart_coordinator(self) -> None:
        """Replace the coordinator by one without any knowledge."""
        self.channels = {}
        self.coordinator = self._new_coordinator()

    def _wait_for_replaced(self) -> None:
        """Wait until the programs of replaced launchers have ended: nodes are lost one at a time."""
        while any(launcher.program is not None for launcher in self.replaced):
            self.advance(TICK)
            self.check_invariants()
        self.replaced = []

    def _create_launcher(self, name: str) -> None:
        self.created += 1
        self.launchers[name] = SimulatedLauncher(name, f"{name}/{self.created}")

    def _new_coordinator(self) -> Coordinator:
        job = JobContext("uid", 1, Gang(self.names, self.names[0]), self.policy)
        return Coordinator(job, Ledger(), lambda: self.now, self.now)

    def _advance_launcher(self, launcher: SimulatedLauncher) -> None:
        connection = launcher.connection
        if connection is None:
            self._connect(launcher)
            return
        while not launcher.partitioned and connection.to_member and connection.to_member[0][0] <= self.now:
            self._handle_frame(launcher, connection.to_member.pop(0)[1])
        cut = not launcher.partitioned and not connection.chief_open and not connection.to_member
        if cut:
            launcher.chief_closed_round = launcher.round
        if cut or self._is_lease_over(launcher):
            launcher.program = None
            self._close(launcher, say_bye=True)
        else:
            self._send(launcher, {**heartbeat(launcher.round, self.now), **self._heartbeat_fields(launcher)})

    def _close(self, launcher: SimulatedLauncher, say_bye: bool) -> None:
        """Close a launcher's connection, with or without `bye`."""
        assert launcher.connection is not None
        if say_bye:
            self._send(launcher, {"type": "bye"})
        launcher.connection.member_open = False
        launcher.connection, launcher.left_at = None, self.now

    def _is_lease_over(self, launcher: SimulatedLauncher) -> bool:
        """Whether the lease is over. A partitioned chief keeps its program until it gives up the others."""
        if launcher is self._old_chief:
            return self.now > self._chief_dies
        return self.now - launcher.lease > self.policy.member_timeout_seconds * 5 / 6

    def _connect(self, launcher: SimulatedLauncher) -> None:
        if launcher.partitioned:
            return
        fields: dict[str, Any] = {
            "incarnation": launcher.incarnation,
            "round": launcher.round,
            "known": launcher.known_round,
        }
        left = None if launcher.left_at is None else self.now - launcher.left_at
        fields |= {"ledger": launcher.ledger, "witness": launcher.chief_closed_round}
        fields |= {"farewell": launcher.chief_bye_round, "left": left, **self._hello_fields(launcher)}
        if self.coordinator.handle_hello(hello(launcher.name, self.now, **fields), self.now) == "":
            launcher.connection, launcher.lease = Connection(), self.now
            self.channels[launcher.name] = launcher.connection
        self._send_outbox()

    def _handle_frame(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        if frame["type"] in ("beat", "welcome"):
            launcher.lease = max(launcher.lease, frame["echo"])
            launcher.known_round = max(launcher.known_round, frame.get("round", 0))
        elif frame["type"] == "start":
            assert frame["round"] > launcher.round, "rounds only rise"
            assert launcher.program is None, "a program is there already"
            launcher.program = launcher.round = launcher.known_round = frame["round"]
            launcher.ledger = frame["ledger"]
            self._begin_program(launcher, frame)
        elif frame["type"] == "stop":
            launcher.program = None
            self._end_program(launcher, frame)
            self._send(launcher, {"type": "ready", "round": frame["round"], **self._ready_fields(launcher)})
        elif frame["type"] == "copy":
            self._order_copy(launcher, frame)
        elif frame["type"] == "bye":
            launcher.chief_bye_round = launcher.round
        elif frame["type"] == "end":
            launcher.program = None
            launcher.result = Result.from_frame(frame)

    # For subclasses: what the launcher and its program do beside.

    def _hello_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        return {}

    def _heartbeat_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        return {}

    def _ready_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        return {}

    def _begin_program(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        return

    def _end_program(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        return

    def _order_copy(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        return

    def _send(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        if launcher.connection is not None:
            self._enqueue(launcher.connection.to_chief, frame)

    # The chief's end of the network.

    def _enqueue(self, queue: list[tuple[float, dict[str, Any]]], frame: dict[str, Any]) -> None:
        """Queue a frame; frames of one direction of a connection arrive in order."""
        earliest = queue[-1][0] if queue else self.now
        queue.append((max(earliest, self.now + self.random.uniform(0, 0.2)), frame))

    def _deliver_to_chief(self, name: str, connection: Connection) -> None:
        everybody = [*self.launchers.values(), *self.replaced]
        dark = [each for each in everybody if each.connection is connection and each.partitioned]
        while not dark and connection.to_chief and connection.to_chief[0][0] <= self.now:
            self.coordinator.handle_frame(name, connection.to_chief.pop(0)[1], self.now)
        if not connection.member_open and not connection.to_chief and self.channels.get(name) is connection:
            self._disconnect(name)
        self._send_outbox()

    def _disconnect(self, name: str) -> None:
        del self.channels[name]
        self.coordinator.handle_disconnect(name, self.now)

    def _send_outbox(self) -> None:
        for name, frame in self.coordinator.outbox.take_all():
            connection = self.channels.get(name)
            if connection is None:
                continue
            if frame["type"] == CLOSE:
                connection.chief_open = False
                del self.channels[name]
            else:
                self._enqueue(connection.to_member, frame)
