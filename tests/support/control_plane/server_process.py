"""Server processes of the tests: started, waited for, stopped by their own process id.

A server dies with the thread that started it, so that a killed test run leaves none behind.
It must never end a process that it did not start.
"""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.shell import LabError


class NotServing(LabError):
    """A server that was there, and did not get ready: no reason to skip a test."""


class ServerProcess:
    """One program in the background with a log file, started at once."""

    def __init__(
        self, program: Path, flags: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = program.name
        self._log = log
        self._command = ["setpriv", "--pdeathsig", "KILL", str(program), *flags]
        self._environment = environment
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The process id: setpriv becomes the program."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return when `ready` is true; raise NotServing with the log's end if the server ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None:
                raise NotServing(f"{self.name} ended with exit code {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise NotServing(f"{self.name} was not ready within {seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def terminate(self, seconds: float) -> int:
        """Ask the server to end, and return its exit code; LabError if it does not end in time (it is killed then)."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise LabError(f"{self.name} did not end within {seconds:.0f} s of SIGTERM:\n{self.log_tail()}") from error

    def log_tail(self) -> str:
        """Return the last 2000 characters of the log."""
        return self._log.read_text(errors="replace")[-2000:]

    def restart(self) -> None:
        """Kill the server, and start it again with the same flags."""
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """End the server at once: what it holds is thrown away with it."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
