"""The summary of a run: its result, the progress, where the time went, the restarts, the clean-up, the models. Pure."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining.launch.failure_and_restart_messages import KEPT_TRAINING, lost_work, reported_resumption
from tftraining_api.model.goodput import in_words
from tftraining_client.local.timeline import Timeline, alone_text, ended_early, metrics_text, which_fit

SHOWN_RESTARTS = 10
SHOWN_MODELS = 3
WIDTH = 10
LINE = f"\n{' ' * (WIDTH + 2)}"  # begins another line of a row
SILENT = "began again: the program reports no steps"


@dataclass(frozen=True)
class Result:
    """The result of a run. `reason` and `message` say why a run failed; `program` is how a shell calls `tftj`."""

    succeeded: bool
    seconds: float
    reason: str = ""
    message: str = ""
    cleanup: str = ""
    models: tuple[Path, ...] = ()
    directory: Path | None = None
    has_history: bool = False
    program: str = "tftj"


def summary(name: str, result: Result, timeline: Timeline) -> list[str]:
    """The lines of the summary."""
    rows = {
        "trained": progress_end(timeline.progress) if result.succeeded else _trained(timeline.progress),
        "warning": alone_text(timeline.alone),
        "metrics": metrics_text(timeline.progress),
        "time": in_words(timeline.goodput(result.seconds)),
        "restarts": _restarts(timeline),
        "backups": LINE.join(filter(None, (_backups(timeline.backup), *timeline.exactness))),
        "cleanup": result.cleanup,
        "model": ", ".join(str(path) for path in result.models[:SHOWN_MODELS]),
        "directory": str(result.directory or ""),
        "curves": f"{result.program} plot {shlex.quote(str(result.directory))}" if result.has_history else "",
    }
    return [f"{name}: {_how(result)}", *(f"  {what:<{WIDTH}}{text}" for what, text in rows.items() if text)]


def _how(result: Result) -> str:
    if result.succeeded:
        return f"Succeeded in {result.seconds:.1f} s"
    return f"Failed after {result.seconds:.1f} s: {result.reason}: {result.message}"


def _trained(progress: dict[str, Any]) -> str:
    if progress.get("epoch") is None:
        return f"step {progress['step']}" if progress.get("step") is not None else ""
    epochs = f" of {progress['epochs']}" if progress.get("epochs") else ""
    step = [f"step {progress['step']}"] if progress.get("step") is not None else []
    return ", ".join([*which_fit(progress), f"epoch {progress['epoch']}{epochs}", *step])


def progress_end(progress: dict[str, Any]) -> str:
    """The progress of a job that has succeeded: a program that stops early is not one that lost its last epochs."""
    early = ended_early(progress)
    return _trained(progress) + (": the program ended the training early" if early else "")


def _restarts(timeline: Timeline) -> str:
    """The number of restarts, and the last ones seen. The ledger also counts restarts that no poll of /status saw."""
    number = max(len(timeline.restarts), timeline.ledger.get("inPlace", 0))
    if not number:
        return "none"
    shown = list(timeline.restarts.values())[-SHOWN_RESTARTS:]
    known = timeline.seconds_lost or any(each.get("alone") for each in shown)
    seconds = f", {timeline.seconds_lost:.1f} s without training" if known else ""
    return LINE.join([f"{number}{seconds}", *map(_restart, shown)])


def _restart(restart: dict[str, Any]) -> str:
    alone, down = restart.get("alone"), restart.get("downSeconds")
    where = KEPT_TRAINING if alone else reported_resumption(restart)
    parts = [str(restart.get("message") or f"{restart.get('member')}: {restart.get('reason')}")]
    if down is not None:  # when programs that report no steps train again is not known
        parts += [where, f"{down:.1f} s {'away' if alone else 'without training'}"] if where else [SILENT]
    elif where:
        parts.append(where)
    if lost := restart.get("lostSteps"):
        parts.append(lost_work(lost, restart.get("lostSeconds")))
    if skipped := restart.get("backupSkipped"):
        parts.append(f"no backup before it: {skipped}")
    return ", ".join(parts)


def _backups(backup: dict[str, Any]) -> str:
    """The last backup in memory, or the newest that was seen, or why there was none; empty for a job without them."""
    last, seen = backup.get("lastStep"), backup.get("step")
    if last is None and seen is None:
        return f"none in memory: {backup['reason']}" if backup.get("reason") else ""
    size = f", {backup['bytes'] / 1e6:.1f} MB in each member" if backup.get("bytes") else ""
    return f"in memory, {f'last seen at step {seen}' if last is None else f'the last at step {last}'}{size}"
