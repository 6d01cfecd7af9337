"""Who belongs to the gang, who of them is in the round, who may join. Pure; it must never decide when one starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch import elastic
from tftraining.launch.alone import restarts_alone
from tftraining.launch.peer import Peer
from tftraining.launch.settings import Gang, Policy, role_of


@dataclass(frozen=True)
class Job:
    """Whose rendezvous it is: members must name the UID and the attempt. `proven`: it made a step before."""

    uid: str
    attempt: int
    gang: Gang
    policy: Policy
    proven: bool = False


class Roster:
    """All members that the chief's launcher knows. `members` are those of the round, in the order of ranks.

    A frame comes thousands of times a second from a gang of thousands, so what is asked at each must not look at all.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.gang = {name: Peer(name) for name in job.gang.members}
        self.evaluators: dict[str, Peer] = {}
        self.surplus: dict[str, Peer] = {}  # members of a larger gang, until they are gone
        self.form(list(self.gang.values()))

    @property
    def policy(self) -> Policy:
        """What the job decides by, as it is now."""
        return self.job.policy

    @property
    def chief(self) -> str:
        """The member whose launcher holds the rendezvous."""
        return self.job.gang.chief

    @property
    def peers(self) -> dict[str, Peer]:
        """All members that may join, the evaluators that have joined included."""
        return {**self.surplus, **self.gang, **self.evaluators}

    def peer(self, name: str) -> Peer | None:
        """One of them, None if nobody of that name is known: without a look at the thousands of others."""
        return self.evaluators.get(name) or self.gang.get(name) or self.surplus.get(name)

    def known(self, name: str) -> Peer:
        """One of them; KeyError if nobody of that name is known."""
        if (peer := self.peer(name)) is None:
            raise KeyError(name)
        return peer

    def form(self, members: list[Peer]) -> None:
        """A round has these members; its trainers are those of them that make steps."""
        self.members = members
        self.trainers = [peer for peer in members if role_of(peer.name) != "ps"]

    @property
    def size(self) -> int:
        """How many members make steps when all are there."""
        return len(self.job.gang.trainers)

    def told(self) -> dict[str, Any]:
        """With whom the members of the round train, as they are told."""
        commands = {peer.keeps_fits for peer in self.trainers}
        keeps_fits = len(commands) == 1 and "" not in commands
        return {
            "workers": elastic.runs(peer.name for peer in self.members),
            "size": self.size,
            "keepsFits": keeps_fits,
        }

    def alone(self, peer: Peer) -> bool:
        """Whether the others go on while this member is restarted."""
        return restarts_alone(peer.name, self.job.gang, self.policy)

    def welcome(self, name: str) -> Peer:
        """The member of that name, which may join; an evaluator is unknown until it does."""
        if name not in self.gang:
            self.evaluators.setdefault(name, Peer(name))
        return self.known(name)

    def refusal(self, name: str, incarnation: str, frame: Mapping[str, Any]) -> str:
        """Why who says this may not join; "" if it may."""
        if frame["uid"] != self.job.uid:
            return "this is the rendezvous of another job"
        if frame["attempt"] != self.job.attempt:
            return f"this is attempt {self.job.attempt}, not {frame['attempt']}"
        if name not in self.gang and role_of(name) != "evaluator":
            return f"{name} is not a member of this job"
        known = self.peer(name)
        if known is not None and known.connected and known.incarnation != incarnation:
            # Whoever is there keeps its place until it is silent: its program may still run.
            return f"another {name} is connected"
        return ""

    def change(self, gang: Gang, policy: Policy) -> bool:
        """The job's spec has changed: other limits, or other members; whether it was the members."""
        self.job = replace(self.job, gang=gang, policy=policy)
        if list(gang.members) == list(self.gang):
            return False
        self.surplus |= {name: peer for name, peer in self.gang.items() if name not in gang.members}
        known = self.peers
        self.gang = {name: known.get(name) or Peer(name) for name in gang.members}
        self.surplus = {name: peer for name, peer in self.surplus.items() if name not in self.gang}
        return True


def some(names: list[str]) -> str:
    """The first three by name, the others as a number."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
