"""A stand-in for a training program: steps and epochs on a progress page, a save each epoch, and no TensorFlow.

    python standin.py DIRECTORY [--epochs N] [--steps N] [--step-seconds S] [--quiet] [--busy] [--chatter N] [--serve]
                                [--restores S] [--raise-at N [--in-turn]] [--stamps] [--metrics]

It executes the order in the file `order-<member>` of the directory once: `exit N`; `error TEXT` (print TEXT as the last
line of a traceback and exit with 1); `lose MEMBER` (print the traceback of a lost peer, let MEMBER fail after that, and
hang); `eat` (allocate all memory); `hang`. Each process holds a shared lock on the file of its round. A process that
finds the lock of another round held has found two rounds at once, and writes that into the file `violations`.

With --serve workers behave as beside parameter servers: they wait, and look for a second process of the same member.
With --restores the program reports its step at once, and its epoch S seconds later, as Keras' `fit` does after a
restart. With --raise-at worker 1 raises a ValueError in place of step N; --in-turn, worker 0 does in even rounds. With
--stamps the program, and a helper in a session of its own, write the time to `stamp-<round>-<member>-<which>`
continuously: the last time at which they ran. With --metrics each step reports a loss, and the number of its round as a
metric.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tftraining

LOST = """\
Traceback (most recent call last):
  File "/app/train.py", line 15, in <module>
    model.fit(data)
tensorflow.python.errors_impl.UnavailableError: {{function_node __X}} Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1:
:{"created":"@1","description":"Socket closed"}
The error could be from a previous operation. Restart your program to reset. [Op:CollectiveReduceV2] name:\
"""
FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid (0 for locks of an open file)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--step-seconds", type=float, default=0.02)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--chatter", type=int, default=0)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--restores", type=float, default=0.0)
    parser.add_argument("--raise-at", type=int, default=0)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--stamps", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    arguments = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    me = f"{task['type']}-{task['index']}"
    number = os.environ["TFTRAINING_ROUND"]
    me = os.environ.get("STANDIN", me)
    say(arguments.directory / "starts", f"{me} {number} {time.monotonic()}")
    say(arguments.directory / "gangs", f"{number} {me} {json.dumps(told())}")
    hold_alone(arguments.directory, me) if arguments.serve else hold(arguments.directory, number, me)
    if arguments.stamps:
        leave_stamps(arguments.directory / f"stamp-{number}-{me}")
    print(f"{me} round {number}", flush=True)
    if task["type"] in ("ps", "evaluator") or (arguments.serve and task["type"] == "worker"):
        while True:
            obey(arguments.directory / f"order-{me}")
            time.sleep(0.05)
    train(arguments, me)
    print(f"{me} done", flush=True)
    return 0


def leave_stamps(path: Path) -> None:
    """Note the time in two processes until each is killed."""
    launcher, program = os.getppid(), os.getpid()
    threading.Thread(target=stamp, args=[f"{path}-program", (launcher,)], daemon=True).start()
    if not os.fork():
        os.setsid()
        stamp(f"{path}-helper", (program, launcher))
        os._exit(0)


def stamp(path: str, parents: tuple[int, ...]) -> None:
    """Write the time to `path` while the parent lives: outside a container a helper outlives its launcher."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    while os.getppid() in parents:
        os.pwrite(fd, f"{time.monotonic():20.6f}".encode(), 0)
        time.sleep(0.001)


def told() -> dict[str, Any]:
    """The gang in the program's environment."""
    config = json.loads(os.environ["TF_CONFIG"])
    numbers = [int(os.environ.get(name, "0")) for name in ("TFTRAINING_WORKERS", "TFTRAINING_MAX_WORKERS")]
    return {
        "index": config["task"]["index"],
        "workers": config["cluster"].get("worker", ()),
        "numbers": numbers,
        "rate": round(tftraining.scaled(0.3), 6),
    }


def say(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def hold(directory: Path, number: str, me: str) -> None:
    """Hold the lock of this round until the process ends, and report held locks of other rounds."""
    if me.startswith("evaluator"):
        return
    mine = directory / f"round-{number}"
    lock(os.open(mine, os.O_RDWR | os.O_CREAT), fcntl.F_OFD_SETLK, fcntl.F_RDLCK)
    for other in set(directory.glob("round-*")) - {mine}:
        with other.open("r+") as file:
            # A question takes no lock: two who look at the same time would find each other.
            if lock(file.fileno(), fcntl.F_OFD_GETLK, fcntl.F_WRLCK) != fcntl.F_UNLCK:
                say(directory / "violations", f"{me} in round {number} found {other.name} at work")


def lock(fd: int, command: int, kind: int) -> int:
    """Lock the whole file, or test the lock (fcntl(2)); return the kind of lock in the kernel's answer."""
    answer = FLOCK.unpack(fcntl.fcntl(fd, command, FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)))
    return int(answer[0])


def hold_alone(directory: Path, me: str) -> None:
    """Hold the lock of this member until the process ends."""
    try:
        fcntl.flock(os.open(directory / f"lock-{me}", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(directory / "violations", f"two programs of {me}")


def obey(path: Path) -> None:
    """Execute the order in the file, if it exists."""
    try:
        order, _, argument = path.read_text().partition(" ")
        path.unlink()
    except FileNotFoundError:
        return
    if order == "exit":
        os._exit(int(argument))
    if order == "error":
        print(f"Traceback (most recent call last):\n{argument}", file=sys.stderr, flush=True)
        os._exit(1)
    if order == "lose":
        print(LOST, "closing", sep="\n", file=sys.stderr, flush=True)
        other = path.with_name(f"order-{argument}")
        other.with_suffix(".new").write_text("error ValueError: boom")
        other.with_suffix(".new").rename(other)
    if order == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * (1 << 20)))
    time.sleep(1000)


def spin() -> None:
    while True:
        pass


def train(arguments: argparse.Namespace, me: str) -> None:
    save = arguments.directory / f"epoch-{me}"
    done = int(save.read_text()) if save.exists() else 0
    if arguments.busy:
        threading.Thread(target=spin, daemon=True).start()
    tell: Callable[..., None] = (lambda **_: None) if arguments.quiet else tftraining.report
    if arguments.restores:
        tell(step=done * arguments.steps, epochs=arguments.epochs)
        time.sleep(arguments.restores)
    tell(epoch=done + 1, epochs=arguments.epochs)
    raiser = "worker-0" if arguments.in_turn and int(os.environ["TFTRAINING_ROUND"]) % 2 == 0 else "worker-1"
    for epoch in range(done, arguments.epochs):
        for step in range(arguments.steps):
            obey(arguments.directory / f"order-{me}")
            time.sleep(arguments.step_seconds)
            if arguments.chatter:
                print("x" * arguments.chatter, flush=True)
            if me == raiser and epoch * arguments.steps + step + 1 == arguments.raise_at:
                raise ValueError(f"boom\nin {object()}")
            number = epoch * arguments.steps + step + 1
            metrics = {"loss": 1 / number, "round": int(os.environ["TFTRAINING_ROUND"])} if arguments.metrics else None
            tell(step=number, epoch=epoch + 1, epochs=arguments.epochs, metrics=metrics)
        save.with_suffix(".new").write_text(str(epoch + 1))
        save.with_suffix(".new").rename(save)


if __name__ == "__main__":
    sys.exit(main())
