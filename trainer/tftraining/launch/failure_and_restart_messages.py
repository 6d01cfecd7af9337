"""What is said of failures and restarts: the words that launchers, the operator and `tftj` share. Pure.

What the operator alone says, of pods and of phases, is in tftraining_operator/plan/messages.py.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from typing import Any

from tftraining.launch.failure.cause import fatal_line, is_log
from tftraining.launch.failure.exception import LENGTH
from tftraining.launch.failure.exit import FATAL, OOM_KILLED, Exit

STARTED_OVER = "started over: no backup found"
RESTARTING_ALONE = "restarting it alone; other members keep training"
KEPT_TRAINING = "other members kept training"
NO_STEP_REPORTED = "running; no step reported yet"
# Reasons of a gang in /status: it does not train at the start deadline, and has asked for none; members have made no
# step for unusually long; programs have run for a while, and have reported no step.
SLOW_START, NO_STEP, NO_STEP_YET = "SlowStart", "NoStep", "NoStepYet"
SLOW_CAUSES = {"Computes": "it computes slowly", "WaitsForInput": "it waits for its input"}
MEMORIES = {"Memory": "memory", "Peer": "the memory of another member"}  # by lastRestart.resumedFrom
# By name: `tftj` imports this module on platforms without some of them, too.
_OWN_SIGNALS = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP")


def describe(member: str, ended: Exit) -> str:
    """`worker-1 was killed (SIGKILL)`, `worker-1: ValueError: boom`, `worker-1 failed with exit code 3: <last>`."""
    if ended.kind == OOM_KILLED:
        return f"{member} ran out of memory (OOMKilled)"
    if ended.signal is not None:
        name = signal_name(ended.signal)
        told = fatal_line(ended.lines) if name in _OWN_SIGNALS else ""
        return f"{member} was killed ({name})" + (f": {told[:LENGTH]}" if told else "")
    last = ended.exception or _last_words(ended.lines)
    explained = FATAL.get(ended.kind)
    if ended.exception and not explained:
        return f"{member}: {ended.exception}"
    told = f": {explained}" if explained else ""
    return f"{member} failed with exit code {ended.code}{told}" + (f": {last[:LENGTH]}" if last else "")


def _last_words(lines: Sequence[str]) -> str:
    """The last line that the program itself has printed, as far as one can tell."""
    return next((line.strip() for line in reversed(lines) if line.strip() and not is_log(line)), "")


def signal_name(number: int) -> str:
    """The name of a signal: SIGKILL for 9."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def resumption(source: str | None, epoch: int | None, step: int | None) -> str:
    """Where a training resumed, from the fields of lastRestart: `resumed from memory at step 1234`, `resumed from epoch
    2`, "started over"; "" if its programs report nothing."""
    memory = MEMORIES.get(source or "")
    if (epoch, step) == (None, None):
        return f"resumed from {memory}" if memory else ""
    if not epoch and not step:
        return STARTED_OVER
    if memory:
        return f"resumed from {memory}" + (f" at step {step}" if step else "")
    return f"resumed from epoch {epoch}" if epoch else f"resumed from step {step}"


def reported_resumption(restart: Mapping[str, Any]) -> str:
    """The `resumption` of a `lastRestart` of /status."""
    return resumption(restart.get("resumedFrom"), restart.get("resumedFromEpoch"), restart.get("resumedFromStep"))


def went_on(where: str, alone: bool, seconds: float | str | None) -> str:
    """What came of a restart: `resumed from epoch 2 after 1.1 s`, `started over: no backup found, after 1.1 s`, or
    `restarted alone after 0.5 s; other members kept training`. `where` is its `resumption`."""
    after = "" if seconds is None else f" after {seconds} s"
    if alone:
        return f"restarted alone{after}; {KEPT_TRAINING}"
    comma = "," if after and where == STARTED_OVER else ""
    return f"{where or 'resumed'}{comma}{after}"


def lost_work(steps: int, seconds: float | None = None) -> str:
    """`30 steps lost (2.1 s of training)`: what a restart has cost, and the training makes again."""
    taken = f" ({seconds:.1f} s of training)" if seconds else ""
    return f"{steps} step{'s' * (steps != 1)} lost{taken}"


def earlier_run(epoch: int | None, step: int | None) -> str:
    """`resumed from epoch 3 of an earlier run in the same directory`, by what was done before the programs began; "" if
    nothing was."""
    return f"{resumption(None, epoch, step)} of an earlier run in the same directory" if epoch or step else ""


def done_before(finished: Sequence[str], lingering: Sequence[str]) -> str:
    """Clauses that name the members whose programs have finished before the others, or but for a thread; "" for
    none."""
    text = f"; {summarize_names(finished)} {'has' if len(finished) == 1 else 'have'} finished" if finished else ""
    return text + (
        f"; a thread of the finished program still runs in {summarize_names(lingering)}" if lingering else ""
    )


def skipping_input(batches: int) -> str:
    """`skipping 1136 batches of input`: what a resumed program does before its first step."""
    return f"skipping {batches} {'batch' if batches == 1 else 'batches'} of input"


def exited_early(names: Sequence[str]) -> str:
    """`worker-1 exited with code 0 before the others had started`."""
    return f"{summarize_names(names)} exited with code 0 before the others had started"


def was_oom_killed(member: object) -> str:
    """`worker-1 was OOMKilled`: why a job makes no more backups in memory."""
    return f"{member} was OOMKilled"


def differs(violation: str) -> str:
    """`the resumed training differs from the undisturbed one: epoch 3 has 152 steps of 300`."""
    return f"the resumed training differs from the undisturbed one: {violation}"


def goes_back(difference: str, step: int) -> str:
    """Replicas differ, and the training goes back to the last step at which all have agreed."""
    return f"{difference}; all go back to step {step}, at which they have agreed"


def waits_for_slow(member: object, node: str | None, factor: float, cause: str) -> str:
    """`the others wait for worker-1 on the node n7, which needs 1.5 times the median of the members for a step: it
    waits for its input`. A later version may have other causes."""
    where = f" on the node {node}" if node else ""
    words = f"the others wait for {member}{where}, which needs {factor:g} times the median of the members for a step"
    return f"{words}: {SLOW_CAUSES[cause]}" if cause in SLOW_CAUSES else words


def summarize_names(names: Sequence[str]) -> str:
    """The first three names, and the number of the others: a message stays readable with a thousand workers."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
