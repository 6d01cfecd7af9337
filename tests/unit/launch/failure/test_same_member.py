"""One member that fails again and again leaves its node; no failure does that another node would not cure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulated_gang.simulation import exited
from tests.unit.launch.failure.test_same_failure import MADE, Fit
from tftraining.launch.failure.exit import Exit, hardware_in
from tftraining.launch.failure.restart_budget import Ledger, merge
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.failure.same_member import SameMember

ECC = "F0000 00:00:00.1 7 cuda_driver.cc:1] CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
WHY = "worker-1 failed 3 times in a row, and no other member"
LATER = {**MADE, "epoch": 4}


class Gang(Fit):
    """The same gang, whose members are killed one at a time."""

    def __init__(self, limit: int = 3, **more: Any) -> None:
        super().__init__(limit=0, same_member_limit=limit, **more)

    def loses(
        self, member: str = "worker-1", told: dict[str, Any] | None = None, beside: bool = False, **ended: Any
    ) -> str:
        """The member's program is killed, or ends so; why the member leaves its node. `beside`: the other one is killed
        in the same moment."""
        progress = told or MADE
        self._pass(40.0, progress)
        self.chief.outbox.take_all()
        peer = self.chief.membership.gang[member]
        frame = exited(peer.round, None, 9, **progress)
        frame["exit"].update(ended)
        frame["spoilt"] = ended.get("spoilt", False)
        self.chief.handle_frame(member, frame, self.now)
        stops = {name: each for name, each in self.chief.outbox.take_all() if each["type"] == "stop"}
        other = next(name for name in self.chief.membership.gang if name != member)
        assert "moves" not in stops[other], "only the one that failed leaves"
        if beside:
            self.chief.handle_frame(other, exited(peer.round, None, 9, **progress), self.now)
        self._end_round()
        return str(stops[member].get("moves", ""))

    def _end_round(self) -> None:
        self._end("worker-0", {"type": "beat", "round": -1, "t": self.now, "mode": "", "pid": 1, "stuck": 0.0})

    @property
    def row(self) -> SameMember:
        return self.chief.verdict.ledger.same_member


def test_the_third_failure_in_a_row_of_one_member_moves_it_and_the_row_begins_anew() -> None:
    gang = Gang()
    assert [gang.loses() for _ in range(6)] == ["", "", WHY, "", "", WHY]
    assert Gang(limit=1).loses() == "worker-1 failed once, and no other member"


@pytest.mark.parametrize(
    "more",
    [{"limit": 0}, {"local": True}, {"rules": (Rule("Restart"),)}],
    ids=["off", "one machine has no other node", "a rule decides"],
)
def test_it_stays_where_that_is_asked_for(more: dict[str, Any]) -> None:
    gang = Gang(**more)
    assert {gang.loses() for _ in range(5)} == {""}
    assert {gang.loses(lines=[ECC]) for _ in range(2)} == {""}, "nor for words of the hardware"


def test_the_end_of_the_memory_and_a_lost_member_neither_extend_nor_end_the_row() -> None:
    gang = Gang()
    assert [gang.loses(), gang.loses(), gang.loses(kind="OOMKilled"), gang.loses()] == ["", "", "", WHY]


def test_another_members_failure_and_progress_begin_a_new_row() -> None:
    gang = Gang()
    members = ("worker-1", "worker-1", "worker-0", "worker-1", "worker-1", "worker-1")
    assert [gang.loses(each) for each in members] == ["", "", "", "", "", WHY]
    assert [gang.loses(), gang.loses(), gang.loses(told=LATER), gang.loses(told=LATER)] == [""] * 4
    assert gang.row == SameMember("worker-1", 2)


def test_members_that_fail_in_the_same_moment_blame_no_node() -> None:
    gang = Gang()
    assert {gang.loses(beside=True) for _ in range(6)} == {""}


def test_the_same_exception_at_the_same_step_is_the_programs() -> None:
    told: dict[str, Any] = {"code": 1, "signal": None, "exception": "ValueError: boom", "lines": ["ValueError: boom"]}
    gang = Gang()
    assert {gang.loses(**told) for _ in range(6)} == {""}


def test_a_container_that_is_spoilt_gets_a_new_pod_first() -> None:
    gang = Gang()
    assert [gang.loses(), gang.loses(), gang.loses(spoilt=True), gang.loses()] == [
        "", "", "", "worker-1 failed 4 times in a row, and no other member"
    ]  # fmt: skip


def test_words_of_the_hardware_need_no_row() -> None:
    gang = Gang()
    why = f"worker-1 failed by its hardware: {ECC}"
    assert gang.loses(code=134, signal=None, lines=["loss 0.5", ECC, "Aborted"]) == why
    assert gang.row.count == 0


@pytest.mark.parametrize(
    ("line", "blames"),
    [
        (ECC, True),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: uncorrectable NVLink error detected during the execution", True),
        ("InternalError: NCCL: unhandled cuda error. Set NCCL_DEBUG=WARN for detail", True),
        ("ncclUnhandledCudaError: Call to CUDA function failed.", True),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: GPU has fallen off the bus", True),
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely",
            False,
        ),
        ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed", False),
        ("Collective ops is aborted by: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", False),
        ("Another task died: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE", False),
        ("Fatal Python error: Bus error", False),
        ("ECC: uncorrectable errors: 0, corrected: 12", False),
        ("Uncorrectable error count: 0", False),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", False),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", False),
    ],
)
def test_which_words_blame_the_hardware(line: str, blames: bool) -> None:
    assert bool(hardware_in(Exit(1, None, ("loss 0.5", line)))) is blames
    assert bool(hardware_in(Exit(1, None, (), exception=line))) is blames


def test_the_row_is_that_of_the_ledger_that_knows_more_failures() -> None:
    launchers = Ledger(process_failures=2, incidents=5, same_member=SameMember("worker-1", 2))
    operator = Ledger(process_failures=2, pod_failures=1, same_member=SameMember("worker-1", 3))
    assert merge(launchers, operator).same_member == merge(operator, launchers).same_member == SameMember("worker-1", 3)
    moved = replace(launchers, process_failures=3, same_member=SameMember())
    assert merge(launchers, moved).same_member == SameMember(), "what was answered is not counted again"
