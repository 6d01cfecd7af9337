"""The operator as a process of the test, with exactly the permissions that the chart gives it.

It must never see the administrator's credentials.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.control_plane.server_process import ServerProcess
from tests.support.http_pages import read_page
from tests.support.ports import free_port

START_SECONDS = 120.0
# As the chart tells the operator of itself.
OPERATOR_PODS = {"app.kubernetes.io/name": "tftraining-operator", "app.kubernetes.io/instance": "operator"}
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}

# The type of node conditions for which pods leave a node.
SICK = "GpuEccError"


class OperatorProcess:
    """`with OperatorProcess(kubeconfig, directory) as operator:`; `kill` and `start` let it crash and come back."""

    def __init__(
        self, kubeconfig: Path, directory: Path, module: str = "tftraining_operator", **environment: str
    ) -> None:
        self._module = module
        self.log = directory / "operator.log"
        self.port = free_port()
        # Nothing of the caller's environment but what Python itself needs.
        needed = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "PYTHONPATH")
        kept = {name: os.environ[name] for name in needed if name in os.environ}
        self._environment = {
            **kept,
            "KUBECONFIG": str(kubeconfig),
            "TFTRAINING_PORT": str(self.port),
            "TFTRAINING_IMAGE": "operator-image",
            "TFTRAINING_NETWORK_POLICY": f"tftraining-system/{','.join(map('='.join, OPERATOR_PODS.items()))}",
            "TFTRAINING_METRICS_FROM": json.dumps([PROMETHEUS]),
            # The tests' launchers listen on this machine, where no API server's proxy goes.
            "TFTRAINING_LAUNCHERS": "direct",
            "TFTRAINING_NODE_CONDITIONS": SICK,
            "TFTRAINING_NODE_CONDITION_INTERVAL": "2",
            **environment,
        }
        self._server: ServerProcess | None = None

    def __enter__(self) -> Self:
        """Start, and wait until its caches are filled."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.kill()

    def start(self, wait: bool = True) -> None:
        """Start the process; with `wait`, return when it works."""
        self._server = ServerProcess(Path(sys.executable), ["-m", self._module], self.log, self._environment)
        if wait:
            self._server.wait_until(lambda: self.get("readyz")[0] == 200, START_SECONDS)

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is said."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def terminate(self, seconds: float = 30.0) -> int:
        """SIGTERM, as the kubelet sends it; the exit code. LabError if it takes longer than that. The chart gives it
        10 s, of which it needs one; a busy machine is slow."""
        assert self._server is not None
        code = self._server.terminate(seconds)
        self._server = None
        return code

    @property
    def running(self) -> bool:
        """Whether it has been started and not killed."""
        return self._server is not None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it miss whatever happens in the `with` block (SIGSTOP, then SIGCONT)."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._server is not None
        return self._server.pid

    def get(self, page: str) -> tuple[int, str]:
        """GET a page of its HTTP server: the status (0 if nobody answers) and the text."""
        return read_page(f"http://127.0.0.1:{self.port}/{page}")

    def metric(self, line: str) -> float:
        """The value of one line of /metrics, named as it stands there, labels included; 0 if it is not there."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.get("metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    def log_text(self) -> str:
        """All that it has logged."""
        return self.log.read_text(errors="replace")
