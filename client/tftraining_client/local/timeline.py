"""Turns the chief's /status into messages for the user, and into the numbers of the summary.

Pure: takes one status after another, each with its time, and returns lines.
"""

from dataclasses import dataclass, field
from typing import Any

from tftraining.launch.failure_and_restart_messages import (
    NO_STEP_REPORTED,
    NO_STEP_YET,
    differs,
    earlier_run,
    waits_for_slow,
)
from tftraining_api.model import resumes_at
from tftraining_api.model.goodput import COPIES, IN_PLACE, REPEATED, START, TRAINED
from tftraining_client.local.status import Status

PROGRESS_SECONDS = 10.0
WAIT_SECONDS, LONGEST_WAIT_SECONDS = 10.0, 60.0  # of silence until a line says what the run waits for
SHOWN_NAMES = 8
HIDDEN_METRICS = ("epoch", "step")


@dataclass
class Timeline:
    """The job so far. Times are seconds since the run began; `ledger` is the launchers' count of restarts, `backup`
    their last report of the backups in memory, `exactness` what they have told of where a restart resumes, `alone` the
    members that have trained without the others, `slow` the one for which the others wait now, `copying` the seconds
    for which copies stopped the training."""

    status: Status = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, dict[str, Any]] = field(default_factory=dict)
    backup: dict[str, Any] = field(default_factory=dict)
    exactness: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    slow: str = ""
    started_at: float | None = None
    trained_at: float | None = None
    lost_before: float = 0.0  # of `seconds_lost`, before the gang trained for the first time
    copying: float = 0.0
    _blocked: float = 0.0
    _told_at: float = 0.0
    _wait_seconds: float = WAIT_SECONDS
    _shown_progress: tuple[float, int | None, str] = (0.0, None, "")

    def record_status(self, status: Status, at: float) -> list[str]:
        """Take the chief's status; its news as lines."""
        before, self.status = self.status, status
        if (blocked := (status.get("backup") or {}).get("blockedSeconds")) is not None:
            # The sum of a round, or of a `fit`, begins at 0.
            self.copying += blocked - self._blocked if blocked >= self._blocked else blocked
            self._blocked = blocked
        self.progress = known_progress(self.progress, status.get("progress"))
        self.ledger = status.get("ledger") or self.ledger
        self._note_restart(status, ended=status.get("phase") == "Failed")
        if self.started_at is None and status.get("phase") in ("Starting", "Training"):
            self.started_at = at
        turned = _state(before) != _state(status) or _untrained(before, status)
        turns = self._turn(status, at) if turned else []
        alone, slow = self._alone_lines(status.get("trainsAlone")), self._slow_lines(status.get("slowMember"))
        news = [*turns, *alone, *slow, *self._backup_lines(status.get("backup"))]
        if news:
            self._told_at, self._wait_seconds = at, WAIT_SECONDS
        return news

    def record_result(self, result: Status) -> None:
        """Take a launcher's termination message: it has the last steps, which polls may have missed."""
        if result.get("lastBackup") is not None:
            self.backup = {**self.backup, "lastStep": result["lastBackup"]}
        self.progress = known_progress(self.progress, result.get("progress"))
        self.ledger = result.get("ledger") or self.ledger
        self._note_restart(result, ended=result.get("verdict") == "Failed")

    def progress_lines(self, at: float) -> list[str]:
        """A line about new progress, at each new epoch and otherwise at most every PROGRESS_SECONDS; or one that says
        what a gang that does not train waits for."""
        if self.status.get("phase") != "Training":
            return self._waiting_lines(at)
        last, epoch, before = self._shown_progress
        now, text = self.progress.get("epoch"), progress_text(self.progress)
        too_soon = now == epoch and at < last + PROGRESS_SECONDS
        if too_soon or text in ("", before):
            return []
        self._shown_progress = (at, now, text)
        return [text]

    def _waiting_lines(self, at: float) -> list[str]:
        """A line after some silence, and after twice as much each time."""
        if at < self._told_at + self._wait_seconds:
            return []
        self._told_at, self._wait_seconds = at, min(2 * self._wait_seconds, LONGEST_WAIT_SECONDS)
        return [f"{at:.0f} s after the start: {waits_for(self.status)}"]

    @property
    def seconds_lost(self) -> float:
        """The total time in which restarts stopped the gang. While a member restarts alone, the gang trains on."""
        return sum(each.get("downSeconds") or 0.0 for each in self.restarts.values() if not each.get("alone"))

    def goodput(self, seconds: float) -> dict[str, float]:
        """What the seconds of the run went to, as status.goodput has them; empty if it has not trained."""
        if self.trained_at is None:
            return {}
        repeated = sum(each.get("lostSeconds") or 0.0 for each in self.restarts.values() if not each.get("alone"))
        start = max(0.0, self.trained_at - self.lost_before)
        lost = {START: start, IN_PLACE: self.seconds_lost, REPEATED: repeated, COPIES: self.copying}
        return {TRAINED: max(0.0, seconds - sum(lost.values())), **lost}

    def _turn(self, status: Status, at: float) -> list[str]:
        if status.get("phase") == "Training" and self.trained_at is None:
            self.trained_at, self.lost_before = at, self.seconds_lost
            silent = status.get("reason") == NO_STEP_YET
            what = NO_STEP_REPORTED if silent else "training"
            earlier = earlier_run(self.progress.get("firstEpoch"), self.progress.get("firstStep"))
            lines = [f"{what}, {at:.1f} s after the start ({_modes(status)})"]
            return [*lines, earlier] if earlier and not self.restarts else lines
        texts = {"Succeeded": "the chief has succeeded", "Failed": "the job has failed"}
        return [status.get("message") or texts.get(str(status.get("phase")), str(status.get("phase")))]

    def _alone_lines(self, members: list[str] | None) -> list[str]:
        """Note the members that train without the others; a line about new ones."""
        news = [name for name in members or () if name not in self.alone]
        self.alone += news
        return [f"{alone_text(news)}: build the strategy from TF_CONFIG (TrainsAlone)"] if news else []

    def _slow_lines(self, found: dict[str, Any] | None) -> list[str]:
        """A line when another member is slow, or none any more. A chief's new launcher knows nothing yet."""
        before, self.slow = self.slow, self.slow if found is None else found.get("member") or ""
        if found is None or self.slow == before:
            return []
        if not self.slow:
            return ["no member is slow any more"]
        return [f"{waits_for_slow(self.slow, None, found.get('factor') or 1.0, found.get('cause') or '')} (SlowMember)"]

    def _backup_lines(self, reported: dict[str, Any] | None) -> list[str]:
        """Take the report of the backups in memory; a line about the first one, and about a new reason for none. What
        is told of the next restart is told once."""
        before = self.backup
        # A pause, or the end of the training, does not undo the backups that were made.
        self.backup = {**(reported or before), **_copy_in(before), **_copy_in(reported)}
        news = [line for line in _exactness(self.backup) if line not in self.exactness]
        self.exactness += news
        return [*self._copy_lines(before), *news]

    def _copy_lines(self, before: dict[str, Any]) -> list[str]:
        reason = self.backup.get("reason") or ""
        is_told = any(reason in line for line in self.exactness)
        if reason and reason != before.get("reason") and not is_told:
            return [f"backups in memory: {reason}"]
        first = before.get("step") is None and self.backup.get("step") is not None
        return [f"backups in memory: the first at step {self.backup['step']}"] if first else []

    def _note_restart(self, reported: Status, ended: bool) -> None:
        """Note the last restart. The failure that `ended` the job is reported in the same field, but no restart
        followed it."""
        restart: dict[str, Any] = reported.get("lastRestart") or {}
        if not restart.get("time"):
            return
        if ended and restart.get("downSeconds") is None and _is_cause(restart, reported):
            self.restarts.pop(str(restart["time"]), None)
        else:
            self.restarts[str(restart["time"])] = restart


def _copy_in(backup: dict[str, Any] | None) -> dict[str, Any]:
    """What a report knows of the newest copy."""
    return {name: value for name in ("step", "bytes") if (value := (backup or {}).get(name)) is not None}


def ended_early(progress: dict[str, Any]) -> bool:
    """Whether a training that has succeeded made fewer epochs than it was to make."""
    return 0 < (progress.get("epoch") or 0) < (progress.get("epochs") or 0)


def waits_for(status: Status) -> str:
    """What a run that does not train waits for."""
    running = [name for name, each in (status.get("members") or {}).items() if each.get("state") == "running"]
    if status.get("phase") in ("Succeeded", "Failed"):
        return f"waiting for the end of {', '.join(running) or 'the launchers'}"
    late = [name for name in running if status["members"][name].get("step") is None]
    where = f": {', '.join(late[:SHOWN_NAMES])}" if late and len(late) < len(running) else ""
    return f"{status.get('message') or 'waiting for the launchers to start'}{where}"


def alone_text(members: list[str]) -> str:
    """`worker-0, worker-1: trained without the other members, each a model of its own`; empty for none."""
    return f"{', '.join(members)}: trained without the other members, each a model of its own" if members else ""


def _exactness(backup: dict[str, Any]) -> list[str]:
    """Where a restart resumes, and what is not as in the undisturbed training then, line by line."""
    violation = backup.get("violation")
    lines = (
        resumes_at.where(backup.get("resumesAt") or "", backup.get("resumesAtReason") or ""),
        resumes_at.begins_anew(backup.get("beginsAnew") or ()),
        resumes_at.NOT_REPRODUCIBLE if backup.get("inputNotReproducible") else "",
        differs(violation) if violation else "",
        backup.get("replicas") or "",
    )
    return [line for line in lines if line]


def _state(status: Status) -> tuple[Any, ...]:
    return (status.get("phase"), status.get("round"), tuple(status.get("missing") or ()))


def _is_cause(restart: dict[str, Any], reported: Status) -> bool:
    """Whether `lastRestart` is the failure of the job: the job's message begins with that failure's message."""
    return str(reported.get("message")).startswith(str(restart.get("message")))


def _untrained(before: Status, status: Status) -> bool:
    """Whether a restart is over whose phases no poll saw."""
    return (before.get("reason"), before.get("round")) != (status.get("reason"), status.get("round"))


def _modes(status: Status) -> str:
    modes = {name: str(member.get("mode") or "") for name, member in (status.get("members") or {}).items()}
    different = set(modes.values())
    if len(different) == 1:
        return different.pop() or "plain"
    return ", ".join(f"{name}: {mode}" for name, mode in modes.items())


def known_progress(before: dict[str, Any], reported: dict[str, Any] | None) -> dict[str, Any]:
    """The progress to show. A restarted program reports steps before its first epoch, and a chief's new launcher knows
    no epoch: until one is reported, the last known epoch stays."""
    if not reported or reported.get("epoch") is not None or before.get("epoch") is None:
        return reported or before
    kept = {name: reported.get(name) or before.get(name) for name in ("epochs", "metrics")}
    return {**reported, **kept, "epoch": before["epoch"]}


def progress_text(progress: dict[str, Any]) -> str:
    """`epoch 3/10, step 140/700, 56.1 steps/s, accuracy 0.9102, loss 0.3012`, as far as reported."""
    parts = which_fit(progress)
    epoch, epochs = progress.get("epoch"), progress.get("epochs")
    if epoch is not None:
        parts.append(f"epoch {epoch}/{epochs}" if epochs else f"epoch {epoch}")
    if progress.get("step") is not None:
        total = (progress.get("stepsPerEpoch") or 0) * (epochs or 0)  # a second `fit` of a model goes on counting
        parts.append(f"step {progress['step']}" + (f"/{total}" if progress["step"] <= total else ""))
    if progress.get("stepsPerSecond"):
        parts.append(f"{progress['stepsPerSecond']:.1f} steps/s")
    return ", ".join([*parts, *([text] if (text := metrics_text(progress)) else [])])


def which_fit(progress: dict[str, Any]) -> list[str]:
    """`fit 4` for a program that has called `fit` so often; empty for the first."""
    return [f"fit {progress['fit']}"] if (progress.get("fit") or 0) > 1 else []


def metrics_text(progress: dict[str, Any]) -> str:
    """`accuracy 0.9102, loss 0.3012`."""
    metrics = progress.get("metrics") or {}
    return ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()) if name not in HIDDEN_METRICS)
