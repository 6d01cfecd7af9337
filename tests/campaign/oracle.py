"""What must hold for a job whatever was done to it, judged from what was collected. Pure; no rule bounds a duration.

Each rule returns complaints: one sentence for each violation, none if the job is as it should be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.campaign.kinds import JOBS, KINDS
from tests.support.cluster.statuses import contradictions, count

LEAST_ACCURACY = 0.85
# A program may finish a step, stand still before it notes the step, and note it when it goes on. A second step needs
# all members of its round.
LATE_NOTES = 1
AFTER_SECONDS = 60.0
# What a fault surely counts as, if it stops a program that trains, and no other fault takes part in that.
SURELY = {"counted": ("program-killed",), "disruptions": ("pod-deleted", "pod-deleted-by-force", "pod-evicted")}
# status.goodput adds up to the job's time within one in a hundred; both ends of the time are told in whole seconds.
GOODPUT_SHARE, WHOLE_SECONDS = 0.01, 2.0
# A fault may have its effect when it is over: a pod ends after its grace period, a silent member is given up.
EFFECT_SECONDS = 30.0


@dataclass(frozen=True)
class Process:
    """One start of a training program, and the steps that it has noted, with the machine's CLOCK_MONOTONIC."""

    pod: str
    attempt: int
    round: int
    started: float
    steps: Sequence[tuple[float, int]] = ()
    error: str = ""  # the traceback that ended it

    @property
    def key(self) -> tuple[int, int]:
        """The round: its number begins again with each attempt."""
        return self.attempt, self.round


@dataclass(frozen=True)
class Hit:
    """A fault on a job, or on all that ran; without a target it failed, and may have done a part of what it does."""

    number: str
    kind: str
    job: str
    target: str
    began: float
    ended: float

    @property
    def struck(self) -> bool:
        """Whether the fault was done as a whole."""
        return bool(self.target)


@dataclass
class Evidence:
    """All that is known of a job."""

    job: str
    kind: str
    began: float
    ended: float
    statuses: list[dict[str, Any]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    result: Mapping[str, Any] | None = None
    temporary: list[str] = field(default_factory=list)  # the directories workertemp_* after the cleanup
    left: list[str] = field(default_factory=list)  # objects of the job after its deletion
    created: str = ""  # metadata.creationTimestamp
    seen: float = 0.0  # when the end was seen, in seconds since 1970 by the clock of this machine

    @property
    def end(self) -> Mapping[str, Any]:
        """The last status."""
        return self.statuses[-1] if self.statuses else {}


@dataclass
class Verdict:
    """A job that has ended, and what was wrong with it."""

    evidence: Evidence
    complaints: list[str]


def of_job(hits: Sequence[Hit], job: str, began: float, ended: float) -> list[Hit]:
    """The faults that concern a job: those on it, and those on nodes and servers meanwhile or shortly before.

    The cluster may notice a node's silence when it is over.
    """
    return [
        hit
        for hit in hits
        if hit.job == job or (KINDS[hit.kind].all_jobs and hit.began <= ended and hit.ended + AFTER_SECONDS >= began)
    ]


def judge(evidence: Evidence) -> list[str]:
    """All complaints about a job."""
    rules = (_end, _rounds, _steps, _costs, _least_costs, _undisturbed, _goodput, _leftovers)
    return [*contradictions(evidence.statuses), *(complaint for rule in rules for complaint in rule(evidence))]


def _end(evidence: Evidence) -> Iterator[str]:
    if evidence.end.get("phase") != "Succeeded":
        yield f"the job is {evidence.end.get('phase')} at the end: {evidence.end.get('message')}"
        return
    if evidence.result is None:
        yield "the job has succeeded and wrote no result"
    elif evidence.result["epochs"] != JOBS[evidence.kind].epochs or evidence.result["accuracy"] < LEAST_ACCURACY:
        yield f"the result is wrong: {dict(evidence.result)}"
    for status in evidence.statuses:
        for each in status.get("conditions", []):
            if each["type"] == "ReconcileError" and each.get("reason") == "InternalError":
                yield f"the operator has a fault of its own: {each.get('message')}"
                return


def _rounds(evidence: Evidence) -> Iterator[str]:
    """No program makes steps beside one of another round, nor beside another one of its member.

    The time tells which round was first: where all launchers were replaced, the numbers begin again.
    """
    trained = sorted((each for each in evidence.processes if each.steps), key=lambda each: each.steps[0])
    for index, first in enumerate(trained):
        for second in trained[index + 1 :]:
            if first.key == second.key and first.pod != second.pod:
                continue
            late = [at for at, _ in first.steps if at > second.steps[0][0]]
            if len(late) > LATE_NOTES:
                yield (
                    f"two rounds at once: {first.pod} made {len(late)} steps of round {first.key} after {second.pod}"
                    f" had begun round {second.key}"
                )


def _steps(evidence: Evidence) -> Iterator[str]:
    """In each process the steps rise, none begins beyond what was made before, and the last one is made."""
    at_once = JOBS[evidence.kind].steps_at_once
    made = sorted(note for each in evidence.processes for note in each.steps)
    for each in evidence.processes:
        for (_, step), (_, following) in zip(each.steps, each.steps[1:], strict=False):
            if not step < following <= step + at_once:
                yield f"{each.pod} made step {following} after step {step} in round {each.key}"
        for at, begun in each.steps[:1]:
            before = max((step for earlier, step in made if earlier < at), default=0)
            # The last step before a kill may be saved and not noted.
            if begun > before + 2 * at_once:
                yield f"{each.pod} began round {each.key} with step {begun}, and step {before} was the last one before"
    reached = max((step for _, step in made), default=0)
    if evidence.end.get("phase") == "Succeeded" and reached != JOBS[evidence.kind].steps:
        yield f"the job ended after step {reached} of {JOBS[evidence.kind].steps}"


def _costs(evidence: Evidence) -> Iterator[str]:
    """No more is charged, and no more disruptions are counted, than was done."""
    kinds = [KINDS[hit.kind] for hit in evidence.hits]
    charged, allowed = count(evidence.end, "counted"), sum(kind.charges for kind in kinds)
    if charged > allowed:
        yield f"{charged} restarts are charged, and {allowed} were caused: {_names(evidence)}"
    disrupted, bounds = count(evidence.end, "disruptions"), [kind.disruptions for kind in kinds]
    known = sum(bound for bound in bounds if bound is not None)
    if None not in bounds and disrupted > known:
        yield f"{disrupted} disruptions are counted, and {known} were caused: {_names(evidence)}"
    restarts = charged + disrupted + count(evidence.end, "inPlace") + count(evidence.end, "recreated")
    again = [each for each in evidence.processes if each.key[1] > 1]
    if again and not restarts and not any(kind.name in ("scaled", "suspended") for kind in kinds):
        yield f"{again[0].pod} ran in round {again[0].key}, and the status counts no restart"


def sure(evidence: Evidence, name: str) -> list[Hit]:
    """The faults that surely count as one restart of this name."""
    return [hit for hit in evidence.hits if hit.kind in SURELY[name] and hit.struck and _alone(evidence, hit)]


def _alone(evidence: Evidence, hit: Hit) -> bool:
    """Whether this fault alone has ended a program that made steps, and that had a successor."""
    own = [each for each in evidence.processes if each.pod == hit.target]
    before = [each for each in own if each.started < hit.began]
    after = own[len(before) : len(before) + 1]
    if not before or not after or after[0].started < hit.ended or not before[-1].steps:
        return False
    (first, _), (last, _) = before[-1].steps[0], before[-1].steps[-1]
    if not first < hit.began < last + EFFECT_SECONDS:
        return False
    return not any(
        other is not hit and other.began <= after[0].started and other.ended + EFFECT_SECONDS >= hit.began
        for other in evidence.hits
        if KINDS[other.kind].restarts
    )


def _least_costs(evidence: Evidence) -> Iterator[str]:
    """What surely counts is counted."""
    for name in SURELY:
        least, counted = sure(evidence, name), count(evidence.end, name)
        if counted < len(least):
            caused = ", ".join(f"{hit.kind} ({hit.target})" for hit in least)
            yield f"restarts.{name} is {counted}, and surely {len(least)} were caused: {caused}"


def _undisturbed(evidence: Evidence) -> Iterator[str]:
    """What concerns the operator, the servers or the job's other objects leaves the programs alone."""
    if any(KINDS[hit.kind].restarts for hit in evidence.hits):
        return
    for name in ("counted", "disruptions", "inPlace", "recreated"):
        if count(evidence.end, name):
            yield f"restarts.{name} is {count(evidence.end, name)}, and nothing but this was done: {_names(evidence)}"


def goodput(evidence: Evidence) -> Mapping[str, float]:
    """The seconds of status.goodput at the end, by cause."""
    found: Mapping[str, float] = evidence.end.get("goodput", {}).get("seconds", {})
    return found


def _goodput(evidence: Evidence) -> Iterator[str]:
    """The seconds by cause add up to the time of the job, as the API server and this machine have it."""
    if "completionTime" not in evidence.end:
        return
    created, ended = (datetime.fromisoformat(each) for each in (evidence.created, evidence.end["completionTime"]))
    if not created.timestamp() <= ended.timestamp() <= evidence.seen + WHOLE_SECONDS:
        yield f"the job was created at {created}, its end is told for {ended}, and was seen at {evidence.seen:.0f}"
        return
    took, told = (ended - created).total_seconds(), sum(goodput(evidence).values())
    if abs(told - took) > max(GOODPUT_SHARE * took, WHOLE_SECONDS):
        yield f"status.goodput adds up to {told:.1f} s, and the job took {took:.0f} s: {dict(goodput(evidence))}"


def _leftovers(evidence: Evidence) -> Iterator[str]:
    if evidence.temporary:
        yield f"temporary directories are left: {', '.join(evidence.temporary)}"
    if evidence.left:
        yield f"objects are left after the deletion of the job: {', '.join(evidence.left)}"


def _names(evidence: Evidence) -> str:
    return ", ".join(f"{hit.kind} ({hit.target})" for hit in evidence.hits) or "nothing"
