"""The last line of a campaign: what was done, what came of it, and how to do it again. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.campaign.oracle import SURELY, Hit, Verdict, goodput, sure


def report(
    seed: int, minutes: float, hits: Sequence[Hit], verdicts: Sequence[Verdict], folder: str
) -> Mapping[str, Any]:
    """The content of the line; `folder` is where evidence is, if there is any."""
    wrong = {verdict.evidence.job: list(verdict.complaints) for verdict in verdicts if verdict.complaints}
    told = {
        "seed": seed,
        "minutes": minutes,
        "faults": sum(hit.struck for hit in hits),
        "faults_by_kind": _counted(hit.kind for hit in hits if hit.struck),
        "missed_by_kind": _counted(hit.kind for hit in hits if not hit.struck),
        "jobs": len(verdicts),
        "jobs_by_kind": _counted(verdict.evidence.kind for verdict in verdicts),
        "surely_counted": {name: sum(len(sure(verdict.evidence, name)) for verdict in verdicts) for name in SURELY},
        "accuracy": _accuracies(verdicts),
        "restarts": sum(len({each.key for each in verdict.evidence.processes}) - 1 for verdict in verdicts),
        "goodput": _goodput(verdicts),
        # What the faults led to: a quota that nobody waits for has not been short.
        "reasons": _counted(reason for verdict in verdicts for reason in _reasons(verdict)),
        "verdict": "wrong" if wrong or not verdicts else "right",
    }
    if wrong:
        again = f"make campaign SEED={seed} MINUTES={minutes:g}"
        told |= {"complaints": wrong, "evidence": folder, "again": again}
    return told


def _reasons(verdict: Verdict) -> set[str]:
    return {status["reason"] for status in verdict.evidence.statuses if "reason" in status}


def _accuracies(verdicts: Sequence[Verdict]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for verdict in verdicts:
        if verdict.evidence.result is not None:
            found.setdefault(verdict.evidence.kind, []).append(round(verdict.evidence.result["accuracy"], 4))
    return dict(sorted(found.items()))


def _goodput(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The seconds of all jobs by cause."""
    found: Counter[str] = Counter()
    for verdict in verdicts:
        found.update(goodput(verdict.evidence))
    return {cause: round(seconds, 1) for cause, seconds in sorted(found.items())}


def _counted(names: Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
