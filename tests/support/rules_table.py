"""Rules and failures with what has to become of them: one table, to which the launcher and the operator are held.

A failure is (role, exit code, signal, reason, whether the job ever got as far as a step).
"""

from __future__ import annotations

from typing import Any

Failed = tuple[str, "int | None", "int | None", str, bool]
Case = tuple[str, list[dict[str, Any]], Failed, str, str]

SAYS = "matched spec.restartPolicy.rules[{}]: {}".format


def only(action: str, **conditions: Any) -> list[dict[str, Any]]:
    """One rule."""
    return [{"action": action, **conditions}]


FIRST_OF_TWO: list[dict[str, Any]] = [{"action": "Ignore", "onExitCodes": [3]}, {"action": "FailJob", "role": "worker"}]
ALL_OF: list[dict[str, Any]] = only("FailJob", onExitCodes=[3], onReasons=["Error"], role="worker")

# What it is about, the rules, the failure, the action, the words for the rule.
CASES: list[Case] = [
    ("a default: an exit code", [], ("worker", 1, None, "Error", False), "Restart", ""),
    ("a default: a high exit code", [], ("worker", 143, None, "Error", True), "Restart", ""),
    ("a default: a signal", [], ("worker", None, 9, "Killed", True), "Restart", ""),
    ("a default: out of memory", [], ("worker", None, 9, "OOMKilled", True), "Restart", ""),
    ("a default: nothing is known", [], ("worker", None, None, "", True), "Restart", ""),
    ("a default: an import error before any step", [], ("worker", 1, None, "ImportError", False), "FailJob", ""),
    ("a default: a syntax error before any step", [], ("chief", 1, None, "SyntaxError", False), "FailJob", ""),
    ("a default: no such command", [], ("worker", 127, None, "NotFound", False), "FailJob", ""),
    ("a default: fit of Keras 3", [], ("worker", 1, None, "Keras3Fit", False), "FailJob", ""),
    ("a default: an import error after a step", [], ("worker", 1, None, "ImportError", True), "Restart", ""),
    (
        "a rule is asked before the defaults",
        only("Restart", onReasons=["ImportError"]),
        ("worker", 1, None, "ImportError", False),
        "Restart",
        SAYS(0, "Restart"),
    ),
    (
        "an exit code that is named",
        only("FailJob", onExitCodes=[2, 3]),
        ("worker", 3, None, "Error", True),
        "FailJob",
        SAYS(0, "FailJob"),
    ),
    ("another", only("FailJob", onExitCodes=[2, 3]), ("worker", 4, None, "Error", True), "Restart", ""),
    (
        "a signal as an exit code",
        only("Ignore", onExitCodes=[137]),
        ("worker", None, 9, "Killed", True),
        "Ignore",
        SAYS(0, "Ignore"),
    ),
    (
        "an exit code as a signal",
        only("Ignore", onSignals=[15]),
        ("worker", 143, None, "Error", True),
        "Ignore",
        SAYS(0, "Ignore"),
    ),
    (
        "129 is the first signal",
        only("Ignore", onSignals=[1]),
        ("worker", 129, None, "Error", True),
        "Ignore",
        SAYS(0, "Ignore"),
    ),
    ("128 is no signal", only("Ignore", onSignals=[1]), ("worker", 128, None, "Error", True), "Restart", ""),
    (
        "192 is the last signal",
        only("Ignore", onSignals=[64]),
        ("worker", 192, None, "Error", True),
        "Ignore",
        SAYS(0, "Ignore"),
    ),
    ("200 is no signal", only("Ignore", onSignals=[64]), ("worker", 200, None, "Error", True), "Restart", ""),
    (
        "no exit is no exit code",
        only("Ignore", onExitCodes=[1]),
        ("worker", None, None, "Stalled", True),
        "Restart",
        "",
    ),
    (
        "a reason",
        only("FailJob", onReasons=["Evil", "OOMKilled"]),
        ("worker", None, 9, "OOMKilled", True),
        "FailJob",
        SAYS(0, "FailJob"),
    ),
    (
        "out of memory is no error",
        only("FailJob", onReasons=["Error", "Killed"]),
        ("worker", None, 9, "OOMKilled", True),
        "Restart",
        "",
    ),
    (
        "a kill is an error",
        only("FailJob", onReasons=["Error"]),
        ("worker", None, 9, "Killed", True),
        "FailJob",
        SAYS(0, "FailJob"),
    ),
    (
        "a kill that the container calls an error",
        only("FailJob", onReasons=["Killed"]),
        ("worker", 137, None, "Error", True),
        "FailJob",
        SAYS(0, "FailJob"),
    ),
    (
        "an import error is an error",
        only("Ignore", onReasons=["Error"]),
        ("worker", 1, None, "ImportError", False),
        "Ignore",
        SAYS(0, "Ignore"),
    ),
    (
        "standing still is no error",
        only("Ignore", onReasons=["Error"]),
        ("ps", None, None, "Stalled", True),
        "Restart",
        "",
    ),
    (
        "standing still",
        only("FailJob", onReasons=["Stalled"]),
        ("ps", None, None, "Stalled", True),
        "FailJob",
        SAYS(0, "FailJob"),
    ),
    ("a role", only("FailJob", role="ps"), ("ps", 1, None, "Error", True), "FailJob", SAYS(0, "FailJob")),
    ("another role", only("FailJob", role="ps"), ("chief", 1, None, "Error", True), "Restart", ""),
    ("the first that matches decides", FIRST_OF_TWO, ("worker", 3, None, "Error", True), "Ignore", SAYS(0, "Ignore")),
    (
        "the second, if the first does not",
        FIRST_OF_TWO,
        ("worker", 4, None, "Error", True),
        "FailJob",
        SAYS(1, "FailJob"),
    ),
    ("all conditions hold", ALL_OF, ("worker", 3, None, "Error", True), "FailJob", SAYS(0, "FailJob")),
    ("the role does not", ALL_OF, ("chief", 3, None, "Error", True), "Restart", ""),
    ("the code does not", ALL_OF, ("worker", 4, None, "Error", True), "Restart", ""),
    ("the reason does not", ALL_OF, ("worker", 3, None, "OOMKilled", True), "Restart", ""),
]
IDS = [case[0] for case in CASES]
