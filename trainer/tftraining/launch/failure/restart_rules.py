"""spec.restartPolicy.rules: the action after a failure. The first rule whose conditions all hold decides, or a default.

Pure. The operator calls the same function (in its plan/restart_policy.py) for pods that fail as a whole. Never call it
for a disruption, which is no failure.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tftraining.launch.failure.exit import FATAL, OOM_KILLED, Exit
from tftraining.launch.failure.first_step import fails_for_good

REASON = "FailedByRule"  # the reason of a job that a rule has failed
# The failure reasons of launchers. All other reasons are those of pods, which only the operator sees.
REASONS = frozenset({"Error", "Killed", "Stalled", OOM_KILLED, *FATAL})


@dataclass(frozen=True)
class Effect:
    """What an action does after a failure."""

    charged: bool = True  # the failure counts against spec.restartPolicy.maxRestarts
    ends_job: bool = False  # nothing restarts: the job fails


FAIL_JOB, RESTART = "FailJob", "Restart"
# The actions of spec.restartPolicy.rules[].action. Launchers, operator and client ask for effects, never for names.
ACTIONS = {
    FAIL_JOB: Effect(ends_job=True),
    RESTART: Effect(),
    "Ignore": Effect(charged=False),
}


@dataclass(frozen=True)
class Rule:
    """One rule; an empty condition always holds."""

    action: str
    exit_codes: frozenset[int] = frozenset()
    signals: frozenset[int] = frozenset()
    reasons: frozenset[str] = frozenset()
    role: str = ""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Rule:
        """The rule from its JSON in the custom resource; KeyError, TypeError or ValueError if that is invalid."""
        if raw["action"] not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}")
        return cls(
            action=raw["action"],
            exit_codes=frozenset(map(int, raw.get("onExitCodes") or ())),
            signals=frozenset(map(int, raw.get("onSignals") or ())),
            reasons=frozenset(map(str, raw.get("onReasons") or ())),
            role=str(raw.get("role") or ""),
        )


@dataclass(frozen=True)
class Failure:
    """How a member failed. `code` and `signal` are None if its program did not end (a stall)."""

    role: str
    code: int | None
    signal: int | None
    reason: str

    @classmethod
    def of(cls, role: str, reason: str, ended: Exit | None) -> Failure:
        """The failure of a member whose program may have ended."""
        return cls(role, ended.code if ended else None, ended.signal if ended else None, reason)


@dataclass(frozen=True)
class Decision:
    """The action, and the deciding rule in words; "" for a default."""

    action: str
    rule: str = ""

    @property
    def effect(self) -> Effect:
        """What the action does."""
        return ACTIONS[self.action]

    def explain(self, message: str) -> str:
        """The message of the failure, with the rule that decides about the failure."""
        return f"{message}; {self.rule}" if self.rule else message

    def reason(self, default: str) -> str:
        """The reason of a job that the action ends; `default` without a rule."""
        return REASON if self.rule else default


def decide(rules: Sequence[Rule], failure: Failure, proven: bool) -> Decision:
    """The action after a failure; `proven` is whether the job ever made a step."""
    for number, rule in enumerate(rules):
        if _matches(rule, failure):
            return Decision(rule.action, f"matched spec.restartPolicy.rules[{number}]: {rule.action}")
    return Decision(FAIL_JOB if fails_for_good(failure.reason, proven) else RESTART)


def _matches(rule: Rule, failure: Failure) -> bool:
    return (
        (not rule.exit_codes or _code(failure) in rule.exit_codes)
        and (not rule.signals or _signal(failure) in rule.signals)
        and (not rule.reasons or bool(rule.reasons & _reasons(failure)))
        and rule.role in ("", failure.role)
    )


def _code(failure: Failure) -> int | None:
    """The exit code of a shell and a container's status: 128 + n for signal n."""
    return failure.code if failure.signal is None else 128 + failure.signal


def _signal(failure: Failure) -> int | None:
    """The signal; a shell that runs the program passes its signal on as an exit code."""
    code = failure.code
    if failure.signal is not None or code is None:
        return failure.signal
    return code - 128 if 128 < code <= 128 + 64 else None


def _reasons(failure: Failure) -> set[str]:
    """The reason and the coarser ones. In Kubernetes a failed container is either OOMKilled or Error."""
    found = {failure.reason}
    if _code(failure) is None or failure.reason == OOM_KILLED:
        return found
    return found | {"Error"} | ({"Killed"} if _signal(failure) == signals.SIGKILL else set())
