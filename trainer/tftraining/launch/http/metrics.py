"""The content of /metrics: the launcher's numbers in the text format of Prometheus, each with its meaning. Pure.

docs/reference-metrics.md is made from `HELP`.
"""

from __future__ import annotations

from typing import Any

from tftraining.launch.config.settings import Settings
from tftraining.launch.failure_and_restart_messages import NO_STEP

LABELS = ("job_name", "job_namespace", "member")  # Prometheus adds `job` and `namespace`, and would rename ours
HELP = {
    "tftraining_round": "The number of the round.",
    "tftraining_training": "1 if the gang trains; in launchers of other members: if their program has made a step.",
    "tftraining_no_step": (
        "1 if a member has made no step for ten minutes, and ten times its longest gap so far (chief's launcher only)."
    ),
    "tftraining_members_missing": "Missing members; always 0 in launchers of other members than the chief.",
    "tftraining_restarts_in_place": "Restarts in the running pods (chief's launcher only).",
    "tftraining_restarts_process_failures": "Failures of programs, charged to maxRestarts (chief's launcher only).",
    "tftraining_restarts_pod_failures": "Failures of whole pods, charged by the operator (chief's launcher only).",
    "tftraining_restarts_refilled_at": (
        "The sum of both kinds of failures when progress last refilled the budget (chief's launcher only)."
    ),
    "tftraining_restarts_without_progress": (
        "Restarts in a row without progress between them (chief's launcher only)."
    ),
    "tftraining_restarts_incidents": ("All incidents that stopped a program, charged or not (chief's launcher only)."),
    "tftraining_progress_epoch": "Epochs done.",
    "tftraining_progress_step": "Steps done.",
    "tftraining_progress_steps_per_second": "Steps per second.",
    "tftraining_backup_step": (
        "The step of the newest backup in memory that all members hold (chief's launcher only)."
    ),
    "tftraining_backup_bytes": "The size of that backup in each member (chief's launcher only).",
    "tftraining_backup_seconds": "How long that backup blocked the training (chief's launcher only).",
    "tftraining_backup_violations": (
        "Rounds whose resumed training was found to differ from the undisturbed one (chief's launcher only)."
    ),
    "tftraining_replicas_compared": (
        "Copies that were found equal in all replicas, but for rounding (chief's launcher only)."
    ),
    "tftraining_replicas_unequal": "1 if replicas hold different variables (chief's launcher only).",
    "tftraining_slow_member": (
        "1 if the others wait for a member that computes slowly, or waits for its input (chief's launcher only)."
    ),
    "tftraining_lost_steps": "Steps that the last restart lost (chief's launcher only).",
}


def metrics(settings: Settings, status: dict[str, Any]) -> str:
    """The numbers of a launcher's /status."""
    values = (settings.job["name"], settings.job["namespace"], settings.gang.me)
    labels = ",".join(f'{label}="{value}"' for label, value in zip(LABELS, values))
    return "".join(
        f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n{name}{{{labels}}} {number}\n"
        for name, number in _numbers(status).items()
        if number is not None
    )


def _numbers(status: dict[str, Any]) -> dict[str, int | float | None]:
    """The number of each metric; None for what the launcher does not know."""
    counts = {name: n for name, n in status.get("ledger", {}).items() if isinstance(n, int)}
    progress, backup = status.get("progress") or {}, status.get("backup") or {}
    slow = status.get("slowMember")
    return {
        "tftraining_round": status.get("round"),
        "tftraining_training": int(status.get("phase") == "Training"),
        "tftraining_no_step": int(status.get("reason") == NO_STEP) if "reason" in status else None,
        "tftraining_members_missing": len(status.get("missing", ())),
        **{f"tftraining_restarts_{_snake_case(name)}": n for name, n in counts.items() if name != "violations"},
        **{f"tftraining_progress_{_snake_case(n)}": progress.get(n) for n in ("epoch", "step", "stepsPerSecond")},
        **{f"tftraining_backup_{name}": backup.get(name) for name in ("step", "bytes", "seconds", "violations")},
        "tftraining_replicas_compared": backup.get("replicasCompared"),
        "tftraining_replicas_unequal": int(backup["replicasDiffer"]) if "replicasDiffer" in backup else None,
        "tftraining_slow_member": None if slow is None else int(bool(slow["member"])),
        "tftraining_lost_steps": (status.get("lastRestart") or {}).get("lostSteps"),
    }


def _snake_case(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
