"""A stand-in for a training program that backs up in memory, in lockstep with the other members and without TensorFlow.

    python copying_standin.py DIRECTORY [--steps N] [--step-seconds S] [--every K] [--size BYTES]

It makes a copy every K steps whose state depends on the step alone, and answers the launcher's requests. It restores
the copy that the launcher names, and says so in its output: `resumed at STEP from SOURCE`, or `begins at 0: WHY`. A
restored state that is not of the step of its copy is written into the file `violations`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tftraining
from tests.support.launchers.copies import state_of
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_report, copy_request

PATIENCE = 60.0


class Program:
    """One start of the program."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.place: Path = arguments.directory
        self.round = int(os.environ["TFTRAINING_ROUND"])
        config = json.loads(os.environ["TF_CONFIG"])
        self.me, self.size = int(config["task"]["index"]), len(config["cluster"]["worker"])
        told = os.environ.get(copy_file.VARIABLE)
        self.told: dict[str, Any] | None = json.loads(told) if told else None
        self.report: dict[str, Any] = {"on": True, "reason": "", "interval": arguments.every, "resumed": None}

    def train(self) -> None:
        """Train from the copy, or from the beginning, to the last step."""
        first, why = self.restore()
        print(f"begins at 0: {why}" if why else f"resumed at {first} from {self.source()}", flush=True)
        kept = self.told["restore"] if self.told and not why else None
        slots = self.told and copy_file.Slots(self.directory(), self.arguments.size, tuple(kept) if kept else None)
        if slots:
            slots.reserve()
            self.write_report(resumed=None if why else {"from": self.source(), "step": first})
        tftraining.report(step=first, epoch=1, epochs=1)
        for step in range(first + 1, self.arguments.steps + 1):
            self.keep_in_step(step)
            with (self.place / f"steps-{self.me}").open("a") as file:
                file.write(f"{step}\n")
            tftraining.report(step=step, epoch=1, epochs=1)
            if slots:
                self.copy_if_due(slots, step)
        if slots:
            slots.discard()

    def directory(self) -> str:
        assert self.told is not None
        return str(self.told["directory"])

    def source(self) -> str:
        return str(self.told["source"]) if self.told else ""

    def restore(self) -> tuple[int, str]:
        """The step of the restored copy, or 0 and why there is none."""
        if self.told is None or self.told["restore"] is None:
            return 0, "no copy"
        number, step = self.told["restore"]
        deadline = time.monotonic() + PATIENCE
        while self.told["fetching"] and (number, step) not in copy_file.held(self.directory()):
            if (Path(self.directory()) / f"failed-{number}-{step}").exists() or time.monotonic() > deadline:
                return 0, "the copy was not fetched"
            time.sleep(0.005)
        copy = copy_file.Copy(self.directory(), number, step)
        if bytes(copy.state) != state_of(step, len(copy.state)):
            with (self.place / "violations").open("a") as file:
                file.write(f"worker-{self.me} has restored a state that is not of step {step}\n")
        copy.close()
        return int(step), ""

    def keep_in_step(self, step: int) -> None:
        """Make a step together with the others, as a collective does."""
        (self.place / f"at-{self.round}-{self.me}").write_text(str(step))
        others = [self.place / f"at-{self.round}-{other}" for other in range(self.size) if other != self.me]
        while any(_number(path) < step for path in others):
            time.sleep(0.001)
        time.sleep(self.arguments.step_seconds)

    def copy_if_due(self, slots: copy_file.Slots, step: int) -> None:
        """Make a copy at a multiple of the interval, or at the requested step, and hold then."""
        asked = self.asked()
        if step % self.arguments.every and step != asked:
            return
        buffer = slots.begin()
        buffer[copy_file.HEAD :] = state_of(step, self.arguments.size)
        slots.commit(self.round, step, {"step": step, "exponent": 4})
        self.write_report(step=step, time=time.time(), bytes=self.arguments.size, seconds=0.0, blockedSeconds=0.0)
        deadline = time.monotonic() + 10
        while step == asked == self.asked() and time.monotonic() < deadline:
            time.sleep(0.01)

    def asked(self) -> int:
        text = (Path(self.directory()) / copy_request.NAME).read_bytes()
        return int(copy_request.STEP.unpack_from(text)[0])

    def write_report(self, **fields: object) -> None:
        self.report.update(fields)
        path = Path(self.directory()) / copy_report.NAME
        path.with_suffix(".new").write_text(json.dumps(self.report))
        path.with_suffix(".new").rename(path)


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.01)
    parser.add_argument("--every", type=int, default=16)
    parser.add_argument("--size", type=int, default=100_000)
    Program(parser.parse_args()).train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
