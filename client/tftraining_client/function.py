"""A training function as a job: `from_function` and the decorator `distributed`.

    @distributed(workers=2, storage="training")
    def train(epochs): ...

    train(10).wait().history()

cloudpickle packs the function, and the package travels on the road of `tftj submit --code`. Every worker calls the
function. Its result is dropped: a training saves its results in TFTRAINING_DIR.
"""

import functools
import inspect
import json
import logging
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from tftraining.launch.roles import ROLES
from tftraining_client.code import Package, left_out, pack, pack_files
from tftraining_client.code.function_package import function_files
from tftraining_client.code.package import write_files
from tftraining_client.errors import JobFailed, UserError, WaitTimeout
from tftraining_client.function_job import Manifest, Options, job_manifest

if TYPE_CHECKING:
    from tftraining_client.cluster.client import Client
    from tftraining_client.history import History

HISTORY_FILE = ".tftraining-history.json"  # in the job's directory; tftraining/launch/history.py
FAILED = re.compile(r"^\S+: Failed after [\d.]+ s: (\w*): (.*)$", re.MULTILINE)
LOG_TAIL = 40  # lines
MEMBERS = tuple(f"{role}-" for role in ROLES)  # with which a line of a program begins in the log of `tftj run`
POLL_SECONDS = 0.1
BOUND = "tftraining_client.local.die_with_parent"


class Handle(ABC):
    """A job that runs a function. `submit` starts it; `wait` and `logs` follow it to its end."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def submit(self) -> Self:
        """Start the job; returns the handle."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the job has succeeded. Raises JobFailed with reason and log tail, WaitTimeout after `timeout`
        seconds; returns the handle."""

    @abstractmethod
    def logs(self) -> Iterator[str]:
        """The lines of all workers, `worker-0 | …`, until the job has ended."""

    @abstractmethod
    def history(self) -> "History":
        """The curves of the metrics and the restarts (tftraining_client.history.History)."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the job; on this machine, stop it."""


class ClusterHandle(Handle):
    """A job of a cluster."""

    def __init__(self, manifest: Manifest, package: Package, options: Options) -> None:
        super().__init__(manifest["metadata"]["name"])
        # Not for `where="local"`.
        from tftraining_client.cluster.submission import Submission, with_program  # noqa: PLC0415

        self._submission = with_program(Submission(manifest), package)
        self._options = options

    def submit(self) -> Self:
        """Create the job with the function in a ConfigMap, or a large one in the job's storage."""
        with self._client() as client:
            client.submit(self._submission)
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Watch the job until it has succeeded."""
        with self._client() as client:
            client.wait(self.name, timeout=timeout)
        return self

    def logs(self) -> Iterator[str]:
        """Follow the logs over restarts and new pods."""
        with self._client() as client:
            for line in client.logs(self.name, follow=True):
                yield f"{line.replica} | {line.text}"

    def history(self) -> "History":
        """The history in the job's status."""
        with self._client() as client:
            return client.history(self.name)

    def delete(self) -> None:
        """Delete the job, its pods and the ConfigMap of the function."""
        with self._client() as client:
            client.delete(self.name)

    def _client(self) -> "Client":
        from tftraining_client.cluster.client import Client  # noqa: PLC0415  not for `where="local"`

        options = self._options
        return Client(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)


class LocalHandle(Handle):
    """A job of this machine: `tftj run` in a process of its own, so that it works beside a notebook's event loop."""

    def __init__(self, manifest: Manifest, package: Package, options: Options) -> None:
        super().__init__(manifest["metadata"]["name"])
        # With storage, so that TFTRAINING_DIR is set and the history is kept.
        storage = {"volume": {"hostPath": {"path": "/"}}}
        self._manifest = {**manifest, "spec": {"storage": storage, **manifest["spec"]}}
        self._package = package
        self._workdir = Path(options.workdir).resolve()
        self._scratch = Path()  # from `submit` on
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self) -> Self:
        """Start `tftj run`."""
        if self._process is not None:
            raise UserError(f"job {self.name} has been started already")
        if sys.platform != "linux":
            raise UserError('where="local" needs Linux, as tftj run does')
        self._scratch = Path(tempfile.mkdtemp(prefix="tftj-function-"))
        file, program = self._scratch / "job.yaml", self._scratch / "program"
        file.write_text(yaml.safe_dump(self._manifest), encoding="utf-8")
        write_files(self._package, program)
        # An interrupt of a prompt or a notebook's kernel is for the cell, not for the job, which ends with the kernel.
        alone = _is_interactive()
        command = [sys.executable, "-m", *((BOUND,) if alone else ()), "tftraining_client", "run", str(file)]
        command += ["--code", str(program), "--workdir", str(self._workdir)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                start_new_session=alone,
            )
        # With the handle, or at the end of Python.
        weakref.finalize(self, _remove_scratch, self._scratch, self._process)
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Wait for the end of `tftj run`."""
        try:
            code = self._running.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise WaitTimeout(f"job {self.name} was not succeeded after {timeout:g} s") from error
        if code:
            raise self._failure(code)
        return self

    def logs(self) -> Iterator[str]:
        """The output of `tftj run`, whose own lines begin with `tftj`."""
        running = self._running
        with self._log.open(encoding="utf-8", errors="replace") as log:
            rest = ""
            while True:
                ended = running.poll() is not None
                *lines, rest = (rest + log.read()).split("\n")
                yield from lines
                if ended:
                    break
                time.sleep(POLL_SECONDS)
            if rest:
                yield rest

    def history(self) -> "History":
        """The history in the job's directory."""
        from tftraining_client.history import History  # noqa: PLC0415  only for this method

        try:
            columns = json.loads((self._workdir / self.name / HISTORY_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            columns = None
        return History.of(columns)

    def delete(self) -> None:
        """Stop the job; its directory stays."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise UserError(f"job {self.name} has not been started: call submit() first")
        return self._process

    @property
    def _log(self) -> Path:
        return self._scratch / "log"

    def _failure(self, code: int) -> JobFailed:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        found = FAILED.search(text)
        lines = text.splitlines()
        reason, message = found.groups() if found else ("LauncherFailed", lines[-1] if lines else f"exit code {code}")
        own = [line for line in lines if line.startswith(MEMBERS)]
        return JobFailed(self.name, reason or "Error", message, "\n".join((own or lines)[-LOG_TAIL:]))


def _is_interactive() -> bool:
    """Whether a person types at this Python, or a notebook does. Linux tells of the end of the thread that has started
    a process: that of another thread than the main one is not the end of the kernel."""
    typed = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return typed and threading.current_thread() is threading.main_thread()


def _remove_scratch(scratch: Path, process: "subprocess.Popen[bytes]") -> None:
    """Remove the files of a run that has ended. A run whose handle nobody keeps goes on, and needs them."""
    if process.poll() is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def from_function(train: Callable[..., Any], *args: Any, **options: Any) -> Handle:
    """A job that calls `train(*args)` in every worker; nothing runs before `submit`.

    The options are the fields of `Options`: workers, storage, image, resources, env, packages and others. For named
    arguments of the function use functools.partial. UserError names what cannot be pickled.
    """
    return _handle(train, args, {}, _options(options))


def distributed(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Handle]]:
    """A decorator: a call of the function submits it as a job and returns the job's handle. The options are those of
    `from_function`; the function itself is the attribute `__wrapped__`."""
    checked = _options(options)

    def decorate(train: Callable[..., Any]) -> Callable[..., Handle]:
        @functools.wraps(train)
        def submit(*args: Any, **named: Any) -> Handle:
            return _handle(train, args, named, checked).submit()

        return submit

    return decorate


def _options(given: Mapping[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    if strange := sorted(set(given) - set(known)):
        raise UserError(f"unknown option {strange[0]}: the options are {', '.join(known)}")
    return Options(**given)


def _handle(train: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], options: Options) -> Handle:
    if options.where not in ("cluster", "local"):
        raise UserError(f'where={options.where!r}: must be "cluster" or "local"')
    beside = None if options.code is None else pack(options.code)
    for text in left_out(beside) if beside else ():
        logging.getLogger(__name__).warning(text)
    package = pack_files(function_files(train, args, named, options.packages), beside)
    _check_call(train, args, named)
    manifest = job_manifest(_job_name(train, options), options)
    return (ClusterHandle if options.where == "cluster" else LocalHandle)(manifest, package, options)


def _check_call(train: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """UserError for a function whose call runs nothing, and for arguments that it does not take."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    name = getattr(train, "__name__", "the function")
    # functools.partial is seen through by inspect.
    if any(kind(train) for kind in kinds):
        raise UserError(f"{name} is a coroutine or a generator: a call of it runs nothing; use a plain function")
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):  # of a function in C
        return
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        raise UserError(f"{name}{signature} cannot be called so: {error}") from error


def _job_name(train: Callable[..., Any], options: Options) -> str:
    """The given name, otherwise that of the function with a random end: a job is never resumed by accident."""
    if options.name is not None:
        return options.name
    words = re.sub(r"[^a-z0-9]+", "-", getattr(train, "__name__", "function").lower()).strip("-0123456789")
    return f"{words[:40].rstrip('-') or 'function'}-{secrets.token_hex(3)}"
