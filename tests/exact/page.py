"""The page docs/exact.md, made from the tables that tests.exact draws its programs from. Pure.

python -m tests.exact page        (or: make reference)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.exact.cells import ANEW, CALLBACKS, EPOCH, INPUTS, MODELS, STEP, STORAGE, Input, Part

PAGE = Path(__file__).parents[2] / "docs" / "exact.md"
MADE = "<!-- Made by `make reference`. -->"

HEAD = f"""# What is exact
{MADE}

A training that is killed and resumed ends as the undisturbed one, byte for byte, where its input allows it. Where it
does not, the program's log, the condition `MemoryBackup` and `tftj explain` say so at the begin of `fit`
([backups in memory](memory-backups.md)). This page lists what is what. `python -m tests.exact` tests it: it draws
programs of tf_keras and of Keras 3 from these tables, kills them at drawn points, and compares weights, optimizer,
metrics, History, files and the examples of each epoch with those of the undisturbed run.

## Where a restart resumes

| kind | a restart resumes | the end of the training | a drain, a scaling or a suspension loses |
|---|---|---|---|
"""
KINDS = {
    STEP: ("at the step of the newest copy", "the same bytes", "nothing: a copy is made first"),
    ANEW: (
        "at the step of the newest copy; the rest of this epoch is drawn anew",
        "the same number of steps and epochs; other values",
        "no step; the rest of the epoch has some examples twice, and some not at all",
    ),
    EPOCH: (
        "at the begin of the epoch, with the state of its begin",
        "the same bytes where the input starts the same at each epoch; otherwise other values",
        "the steps since the begin of the epoch",
    ),
    STORAGE: (
        "at the last backup in the storage",
        "as with BackupAndRestore alone: callbacks begin anew",
        "the steps since that backup",
    ),
}
BEHIND_KINDS = """
With `launcher.memoryBackup.exactness: Required`, a training of the second kind resumes at the epoch. With `Preferred`,
the default, a training of the third kind gets copies inside an epoch that is older than ten minutes: a restart then
loses some steps, and the order of the examples in that epoch may be another one. The condition `InputNotReproducible`
tells it. No cell of this table lasts that long.

With another number of workers the sums over the workers have other roundings, so the values differ; steps and examples
do not. Where files are shared out among the workers, or the program shares out its input itself, they read other
examples up to a step: the rest of that epoch is a new sample, which the log and `resumesAt` say at the restart.

## Inputs

| input | kind | if resumed at an epoch's begin |
|---|---|---|
"""
MODELS_HEAD = """
## Models

| model | after a restart |
|---|---|
"""
CALLBACKS_HEAD = """
## Callbacks

Also without BackupAndRestore.

| callback | after a restart |
|---|---|
"""


def page() -> str:
    """The whole page."""
    kinds = "".join(f"| `{name}` | {' | '.join(told)} |\n" for name, told in KINDS.items())
    inputs = "".join(_input(each) for each in INPUTS.values())
    return (HEAD + kinds + BEHIND_KINDS + inputs + MODELS_HEAD + _parts(MODELS.values()) + CALLBACKS_HEAD) + _parts(
        CALLBACKS.values()
    )


def _input(each: Input) -> str:
    begin = "the same bytes" if each.same else "each example once an epoch" if each.once else "the same number of steps"
    kind = f"`{each.kind}`" + f"; `{each.unseeded}` in a program without a seed" * bool(each.unseeded)
    kind += f"; `{each.in_keras_3}` in Keras 3" * bool(each.in_keras_3)
    return f"| {each.what} | {kind} | {begin} |\n"


def _parts(parts: Iterable[Part]) -> str:
    return "".join(f"| {each.what} | {_after(each)} |\n" for each in parts)


def _after(each: Part) -> str:
    if each.storage:
        return "resumed from the storage: it has state that copies do not have"
    return "begins anew, which is told" if each.anew else "goes on with the same bytes"
