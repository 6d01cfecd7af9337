"""A simulated gang whose programs train in lockstep and make copies of their state, which launchers keep and serve.

The state of a program is its history: its rounds, each with the copy from which the round has resumed. So two copies of
the same name with different states, or members of a round with different states, are found at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.support.simulated_gang.simulation import SimulatedGang, SimulatedLauncher, exited

Copy = tuple[int, int]
State = tuple[tuple[int, int], ...]  # of each round its number, and the step at which it has begun
KEPT = 2  # copies of one member
INTERVAL = 4  # steps from one copy to the next
STEPS_PER_SECOND = 10.0  # at most, in a calm gang
LEAVING_SECONDS = 5.0  # for which a member that leaves waits for the end of the round


@dataclass
class Memory:
    """The copies of one launcher, and the state of its program; None until the members have agreed on it."""

    serves: bool
    copies: dict[Copy, State] = field(default_factory=dict)
    order: dict[str, Any] | None = None
    state: State | None = None
    resumed: Copy | None = None
    newest: Copy | None = None  # made in this round
    step: int = 0
    request: int = 0  # the step at which it makes a copy and waits


class CopyingGang(SimulatedGang):
    """Its programs make copies; some launchers serve none."""

    def __init__(self, size: int, seed: int, **policy: Any) -> None:
        self.memories: dict[str, Memory] = {}  # by incarnation
        self.restorations: list[str] = []  # the sources of the states that rounds have begun with
        self.left_after: list[float] = []  # how long each leaving member has waited
        super().__init__(size, seed, **policy)

    def fail_program(self, name: str) -> None:
        """End the program by an exception of its own."""
        launcher = self.launchers[name]
        if launcher.program is not None:
            number, launcher.program = launcher.program, None
            frame = exited(number, 1)
            frame["exit"]["exception"] = "ValueError: the loss is not finite"
            self._send(launcher, frame)

    def leave(self, name: str) -> None:
        """Terminate a launcher, which waits until the round ends, at most LEAVING_SECONDS; create its successor."""
        launcher, begin = self.launchers[name], self.now
        self._send(launcher, {"type": "leaving"})
        while launcher.program is not None and self.now < begin + LEAVING_SECONDS:
            self.advance(self.random.uniform(1 / STEPS_PER_SECOND, 0.2))
            self.check_invariants()
        self.left_after.append(self.now - begin)
        self.end_launcher(name)

    def at_work(self) -> list[Memory]:
        """The memories of the launchers that run or have run the present round."""
        return [self._memory(each) for each in self.launchers.values() if each.round == self.coordinator.rounds.number]

    def advance(self, seconds: float) -> None:
        """Advance the clock, every launcher and the training."""
        super().advance(seconds)
        members = [each for each in self.launchers.values() if each.program is not None]
        rounds = {each.program for each in members}
        if len(members) < len(self.names) or len(rounds) != 1:
            return  # their collectives wait
        memories = [self._memory(each) for each in members]
        if any(memory.state is None for memory in memories):
            self._agree(next(iter(rounds)) or 0, memories)
        else:
            self._train(next(iter(rounds)) or 0, memories)

    def _agree(self, number: int, memories: list[Memory]) -> None:
        """All members restore the copy, or none does."""
        found = [self._find(memory) for memory in memories]
        states = set(found)
        taken = None not in states
        assert not taken or len(states) == 1, "the members of a round differ"
        assert not taken or not self._is_born_of_suspect(found[0] or ()), "born of a suspect copy"
        for memory, state in zip(memories, found, strict=True):
            memory.resumed = _ordered(memory) if taken else None
            memory.step = memory.resumed[1] if memory.resumed is not None else 0
            memory.state = (*(state or ()), (number, memory.step))
            kept = {} if memory.resumed is None or state is None else {memory.resumed: state}
            earlier = memory.resumed is not None and self.random.random() < 0.5  # it may keep the one before, too
            older = {copy: each for copy, each in memory.copies.items() if earlier and copy < (memory.resumed or copy)}
            memory.copies = {**older, **kept}
        sources = {str((memory.order or {}).get("source")) for memory in memories}
        self.restorations.append("Peer" if "Peer" in sources and taken else "Memory" if taken else "Start")

    def _is_born_of_suspect(self, state: State) -> bool:
        """Whether one of the copies from which this state comes is suspect."""
        restored = [(number, step) for (number, _), (_, step) in pairwise(state)]
        return any(copy in self.coordinator.backups.suspects for copy in restored)

    def _find(self, memory: Memory) -> State | None:
        """The state that this member was told to restore; None if it does not get it."""
        copy, order = _ordered(memory), memory.order
        if copy is None or order is None:
            return None
        if order["fetchFrom"] is None:
            assert copy in memory.copies, "it was told to restore a copy that it does not hold"
            return memory.copies[copy]
        assert copy not in memory.copies
        sender = self.launchers.get(order["fetchFrom"]["member"])
        if sender is None or not self._memory(sender).serves:
            return None  # it was lost after the order
        return self._memory(sender).copies.get(copy)

    def _train(self, number: int, memories: list[Memory]) -> None:
        """Members that lag make the newest step; when none does, some make the next one."""
        newest = max(memory.step for memory in memories)
        behind = [memory for memory in memories if memory.step < newest]
        for memory in behind or self.random.sample(memories, self.random.randint(0, len(memories))):
            if memory.request and memory.step >= memory.request:
                continue  # it waits for the end of the round
            memory.step += 1
            if memory.step % INTERVAL == 0 or memory.step == memory.request:
                self._copy((number, memory.step), memory)

    def _copy(self, copy: Copy, memory: Memory) -> None:
        assert memory.state is not None
        others = [self._memory(each).copies for each in self.launchers.values()]
        assert {copies[copy] for copies in others if copy in copies} <= {memory.state}, "one name, two states"
        memory.copies[copy] = memory.state
        memory.newest = copy
        for oldest in sorted(memory.copies)[:-KEPT]:
            del memory.copies[oldest]

    def _memory(self, launcher: SimulatedLauncher) -> Memory:
        if launcher.incarnation not in self.memories:
            self.memories[launcher.incarnation] = Memory(self.random.random() < 0.8)
        return self.memories[launcher.incarnation]

    # Frames.

    def _hello_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        serves = {"copyPort": 7, "copyHost": launcher.name} if self._memory(launcher).serves else {}
        return {**self._ready_fields(launcher), **serves}

    def _ready_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        return {"copiesHeld": [list(copy) for copy in self._memory(launcher).copies]}

    def _heartbeat_fields(self, launcher: SimulatedLauncher) -> dict[str, Any]:
        memory = self._memory(launcher)
        made = {} if memory.newest is None else {"step": memory.newest[1], "time": self.now}
        source = (memory.order or {}).get("source", "Memory")
        resumed = None if memory.resumed is None else {"from": source, "step": memory.resumed[1]}
        report = {"on": memory.state is not None, **made, "resumed": resumed}
        progress = (
            {"step": memory.step, "first_step": 0, "updated": self.now, "steps_per_second": STEPS_PER_SECOND}
            if memory.state is not None
            else {}
        )
        return {"backup": report, "progress": progress}

    def _begin_program(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        memory = self._memory(launcher)
        memory.order, memory.state, memory.resumed, memory.newest = frame["memoryBackup"], None, None, None
        memory.step = memory.request = 0

    def _end_program(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        memory, first = self._memory(launcher), dict(frame.get("suspects", ()))
        memory.copies = {copy: state for copy, state in memory.copies.items() if copy[1] < first.get(copy[0], math.inf)}

    def _order_copy(self, launcher: SimulatedLauncher, frame: dict[str, Any]) -> None:
        if launcher.program == frame["round"]:
            self._memory(launcher).request = frame["step"]

    def _send_outbox(self) -> None:
        backups = self.coordinator.backups
        if self.coordinator.rounds.running and backups.restored is not None:
            assert backups.restored not in backups.suspects, "a suspect copy"
        super()._send_outbox()


def _ordered(memory: Memory) -> Copy | None:
    restore = (memory.order or {}).get("restore")
    return (restore[0], restore[1]) if restore else None
