"""The members of the gang and of the round, and who may join. Pure; it must never decide when a round starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.failure.restart_scope import restarts_alone
from tftraining.launch.gang import quorum
from tftraining.launch.gang.peer import Peer
from tftraining.launch.roles import is_outside_gang, traits_of


@dataclass(frozen=True)
class JobContext:
    """The job of the rendezvous: members must send its UID and attempt. `has_stepped`: the job made a step before;
    `host`: where members reach the chief's launcher; `backups_off`: why there are no backups in memory, if known;
    `local`: all members run on one machine, for a user who waits (`tftj run`)."""

    uid: str
    attempt: int
    gang: Gang
    policy: Policy
    has_stepped: bool = False
    host: str = ""
    backups_off: str = ""
    local: bool = False


class Membership:
    """All members that the chief's launcher knows. `members` are those of the round, in the order of ranks.

    A gang of thousands sends thousands of frames a second, so a method that runs at each must not loop over all peers.
    """

    def __init__(self, job: JobContext) -> None:
        self.job = job
        self.gang = {name: Peer(name) for name in job.gang.members}
        self.evaluators: dict[str, Peer] = {}
        self.scaled_down: dict[str, Peer] = {}  # members that a smaller gang no longer has, until they are gone
        self.set_round_members(list(self.gang.values()))

    @property
    def policy(self) -> Policy:
        """The policy of the job's present spec."""
        return self.job.policy

    @property
    def chief(self) -> str:
        """The member whose launcher serves the rendezvous."""
        return self.job.gang.chief

    @property
    def peers(self) -> dict[str, Peer]:
        """All members that may join, the evaluators that have joined included."""
        return {**self.scaled_down, **self.gang, **self.evaluators}

    def find_peer(self, name: str) -> Peer | None:
        """The peer of that name, None if unknown; no loop over the others."""
        return self.evaluators.get(name) or self.gang.get(name) or self.scaled_down.get(name)

    def get_peer(self, name: str) -> Peer:
        """The peer of that name; KeyError if unknown."""
        if (peer := self.find_peer(name)) is None:
            raise KeyError(name)
        return peer

    def set_round_members(self, members: list[Peer]) -> None:
        """Set the members of the round. Its trainers are the members that make steps; its copiers are those that copy
        the state into memory: all trainers, or beside parameter servers the chief, which coordinates."""
        self.members = members
        self.trainers = [peer for peer in members if traits_of(peer.name).makes_steps]
        only_trainers = len(self.trainers) == len(members)
        self.copiers = [peer for peer in self.trainers if only_trainers or peer.name == self.chief]

    @property
    def full_size(self) -> int:
        """The number of trainers in the full gang."""
        return len(self.job.gang.trainers)

    def describe_round(self) -> dict[str, Any]:
        """The composition of the round, as sent to its members."""
        commands = {peer.hello.finished_fit_digest for peer in self.trainers}
        keeps_fits = len(commands) == 1 and "" not in commands
        return {
            "workers": quorum.index_ranges(peer.name for peer in self.members),
            "size": self.full_size,
            "keepsFits": keeps_fits,
        }

    def restarts_alone(self, peer: Peer) -> bool:
        """Whether the other members keep training while this member restarts."""
        return restarts_alone(traits_of(peer.name), self.policy.scope, peer.name == self.chief)

    def admit(self, name: str) -> Peer:
        """The member of that name, which may join; an evaluator is added when it first joins."""
        if name not in self.gang:
            self.evaluators.setdefault(name, Peer(name))
        return self.get_peer(name)

    def find_refusal(self, name: str, incarnation: str, frame: Mapping[str, Any]) -> str:
        """Why a launcher with this hello frame may not join; "" if it may."""
        if frame["uid"] != self.job.uid:
            return "this rendezvous belongs to another job"
        if frame["attempt"] != self.job.attempt:
            return f"the attempt is {self.job.attempt}, not {frame['attempt']}"
        if name not in self.gang and not is_outside_gang(name):
            return f"{name} is not a member of this job"
        known = self.find_peer(name)
        if known is not None and known.is_connected and known.hello.incarnation != incarnation:
            # The connected launcher keeps its place until it falls silent: its program may still run.
            return f"another launcher of {name} is connected"
        return ""

    def apply_spec_update(self, gang: Gang, policy: Policy) -> bool:
        """Take a changed spec: other limits, or other members; whether the members have changed."""
        self.job = replace(self.job, gang=gang, policy=policy)
        if list(gang.members) == list(self.gang):
            return False
        self.scaled_down |= {name: peer for name, peer in self.gang.items() if name not in gang.members}
        known = self.peers
        self.gang = {name: known.get(name) or Peer(name) for name in gang.members}
        self.scaled_down = {name: peer for name, peer in self.scaled_down.items() if name not in self.gang}
        return True
