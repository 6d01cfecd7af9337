"""Real launchers on this machine, each with a stand-in program, to be killed, stopped and started again.

Must leave no process behind: a launcher's programs die with it, and `with` kills every launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.http_pages import read_page
from tests.support.ports import free_ports

PATIENCE = 90.0  # seconds; everything waited for takes one or two on an idle machine
STANDIN = Path(__file__).with_name("standin.py")
UID = "0d9c2f5e"


class LocalGang:
    """The launchers of a job. `options` go into TFTRAINING_LAUNCHER, `arguments` to the stand-in."""

    def __init__(self, place: Path, roles: dict[str, int], *arguments: str, **options: Any) -> None:
        self.place = place
        self.directory = place / "job"
        self.directory.mkdir()
        self.secret = place / "key"
        self.secret.write_bytes(b"a secret of the tests")
        self.names = [f"{role}-{index}" for role, count in roles.items() for index in range(count)]
        self.command = [sys.executable, str(STANDIN), str(self.directory), *arguments]
        self.options = options
        self.rendezvous, *ports = free_ports(1 + 2 * len(self.names))
        self.ports = dict(zip(self.names, ports, strict=False))
        peers = dict(zip(self.names, ports[len(self.names) :], strict=True))
        self.cluster = {
            role: [f"127.0.0.1:{peers[f'{role}-{index}']}" for index in range(count)]
            for role, count in roles.items()
            if role != "evaluator"
        }
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}
        self.retired: list[subprocess.Popen[bytes]] = []  # replaced, but not ended
        self.wrappers: dict[str, list[str]] = {}  # what is put before a launcher's command
        self.hosts = dict.fromkeys(self.names, "127.0.0.1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for launcher in [*self.launchers.values(), *self.retired]:
            launcher.send_signal(signal.SIGKILL)
            launcher.wait()

    def environment(self, name: str, **options: Any) -> dict[str, str]:
        """The environment that the operator sets for a member."""
        role, _, index = name.rpartition("-")
        launcher = {
            "job": {"namespace": "tests", "name": "job", "uid": UID},
            "attempt": 1,
            "rendezvous": f"{self.hosts[self.names[0]]}:{self.rendezvous}",
            "statusPort": self.ports[name],
            "host": self.hosts[name],
            "secretFile": str(self.secret),
            "directory": str(self.directory),
            "terminationMessage": str(self.place / f"message-{name}"),
            "warmStart": False,
            "terminationGraceSeconds": 1,
            "keras": "Own",
            **self.options,
            **options,
        }
        return {
            **os.environ,
            "TMPDIR": str(self.place),
            "STANDIN": name,  # in a smaller gang the task's index is another
            "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": role, "index": int(index)}}),
            "TFTRAINING_LAUNCHER": json.dumps(launcher),
        }

    def start(self, *names: str, out: int | None = None, **options: Any) -> None:
        """Start the launchers of these members, by default of all; their output goes to a log, or to `out`."""
        for name in names or self.names:
            with (self.place / f"log-{name}").open("ab") as log:
                self.launchers[name] = subprocess.Popen(
                    [*self.wrappers.get(name, []), sys.executable, "-m", "tftraining.launch", "--", *self.command],
                    env=self.environment(name, **options),
                    stdin=subprocess.DEVNULL,
                    stdout=log if out is None else out,
                    stderr=log,
                )

    # What one can see.

    def get(self, name: str, path: str = "/status") -> tuple[int, str]:
        """A page of a launcher; (0, "") if there is no answer."""
        return read_page(f"http://{self.hosts[name]}:{self.ports[name]}{path}")

    def status(self, name: str | None = None) -> dict[str, Any]:
        """The status of a launcher, by default the chief's; {} if there is no answer."""
        text = self.get(name or self.names[0])[1]
        return json.loads(text) if text else {}

    def log(self, name: str) -> str:
        """The output of a launcher and its programs."""
        return (self.place / f"log-{name}").read_text()

    def message(self, name: str) -> dict[str, Any]:
        """The first line of a termination message."""
        first = (self.place / f"message-{name}").read_text().splitlines()[0]
        version, _, text = first.partition(" ")
        assert version == "tftraining/1"
        found: dict[str, Any] = json.loads(text)
        return found

    def starts(self) -> list[tuple[str, int, float]]:
        """Every start of a stand-in: member, round, monotonic seconds."""
        path = self.directory / "starts"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(name, int(number), float(at)) for name, number, at in lines]

    def last_stamps(self, number: int) -> dict[str, float]:
        """The last time at which each process of a round ran, for stand-ins with --stamps."""
        found = self.directory.glob(f"stamp-{number}-*")
        return {path.name: float(path.read_text()) for path in found}

    def gang_environments(self, number: int) -> dict[str, dict[str, Any]]:
        """The gang in the environment of each stand-in of a round, by member."""
        path = self.directory / "gangs"
        lines = [line.split(" ", 2) for line in path.read_text().splitlines()] if path.exists() else []
        return {name: json.loads(text) for each, name, text in lines if int(each) == number}

    def violations(self) -> str:
        """The stand-ins' reports of two rounds at once."""
        path = self.directory / "violations"
        return path.read_text() if path.exists() else ""

    def wait_for(self, condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """The first true value of the condition. A launcher that does not answer has a status without any field."""
        deadline = time.monotonic() + patience
        while True:
            with contextlib.suppress(KeyError):
                if found := condition():
                    return found
            assert time.monotonic() < deadline, self.describe()
            time.sleep(0.01)

    def wait_for_phase(self, phase: str, number: int = 0, patience: float = PATIENCE) -> dict[str, Any]:
        """The chief's status once it has this phase in round `number` or a later one."""
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.clear()
            found.update(self.status())
            return found.get("phase") == phase and found["round"] >= number

        self.wait_for(reached, patience)
        return found

    def describe(self) -> str:
        """The status and the logs, for a failed test's message."""
        logs = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.launchers)
        return f"{json.dumps(self.status(), indent=1)}\n{logs}"

    # What one can do.

    def order(self, name: str, what: str) -> None:
        """Order a member's stand-in to do something at its next step (see standin.py)."""
        path = self.directory / f"order-{name}"
        path.with_suffix(".new").write_text(what)
        path.with_suffix(".new").rename(path)

    def pid(self, name: str) -> int:
        """The pid of a member's program, once it runs."""
        return int(self.wait_for(lambda: self.status(name).get("pid")))

    def kill_program(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the program of a member."""
        os.kill(self.pid(name), number)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a launcher."""
        self.launchers[name].send_signal(number)
        if number == signal.SIGKILL:
            self.launchers[name].wait()

    def wait(self, patience: float = PATIENCE) -> dict[str, int]:
        """The exit codes of all launchers."""
        deadline = time.monotonic() + patience
        codes = {}
        for name, launcher in self.launchers.items():
            try:
                codes[name] = launcher.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} does not end\n{self.describe()}") from None
        return codes
