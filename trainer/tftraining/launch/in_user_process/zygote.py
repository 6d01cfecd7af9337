"""The warm interpreter: imports TensorFlow and nothing else, then forks a process for each start of the program.

    <python> [-u] zygote.py <descriptor of a socket to the launcher> <title of this process, for readers of ps>

It runs in the user's own interpreter and must leave no trace that a program could see: a forked process is as after a
plain start, except that the first import of TensorFlow takes no time (withheld_modules.py). It must never start a
thread or touch a device, because neither survives a fork. This module's last lines run the program, with only one frame
of ours below it, and let the interpreter end as in a plain start: threads joined, atexit, buffers flushed, exit code.
"""

from __future__ import annotations

import sys

_BEFORE = frozenset(sys.modules)  # the program's directory cannot replace these in a plain start either
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # our own directory

import builtins  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import importlib.machinery  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402

# Our modules under a name that no program uses: its path may have another package `tftraining`.
_package = types.ModuleType("_tftraining")
_package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
sys.modules["_tftraining"] = _package

# The modules that the hooks import with TensorFlow too, or each fork would import them again.
from _tftraining import (  # type: ignore[import-not-found]  # noqa: E402, F401
    gpu_hook,
    hooks,
    keras_hook,
    leader_hook,
    legacy_keras,
    long_tf_config,
    module_sources,
    proctitle,
    progress_page,
)
from _tftraining.eligibility import NotPlainPython, reason_for_plain  # type: ignore[import-not-found]  # noqa: E402
from _tftraining.withheld_modules import Withheld  # type: ignore[import-not-found]  # noqa: E402

PR_SET_PDEATHSIG = 1
OURS = 3  # our arguments in the command line: this file, the descriptor, the title
NAME = b"tftraining-warm"
_libc = ctypes.CDLL(None)


class Refusal(Exception):
    """The program needs a plain start; the message says why."""


class Launcher:
    """The connection to the launcher: one JSON object a line."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lines = self._socket.makefile("rb")

    def tell(self, **message: object) -> None:
        """Send a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, object]:
        """The next request. SystemExit when the launcher is gone."""
        line = self._lines.readline()
        if not line:
            raise SystemExit(0)
        return dict(json.loads(line))

    def close(self) -> None:
        """Close the connection; for the forked process, which never talks to the launcher."""
        self._lines.close()
        self._socket.close()


class Program:
    """The program to run, and whether a fork can run it."""

    def __init__(self, module: bool, target: str, arguments: list[str]) -> None:
        self.module = module
        self.target = target
        self.arguments = arguments
        self._looked_at: dict[str, tuple[int, int]] = {}
        self._directory_time = -1

    @property
    def command(self) -> list[str]:
        """The program's command line after the interpreter and its options."""
        return [*(["-m"] if self.module else []), self.target, *self.arguments]

    @property
    def directory(self) -> str:
        """The first entry of sys.path in a plain start."""
        return os.getcwd() if self.module else os.path.dirname(os.path.realpath(self.target))

    def check(self) -> None:
        """Raise Refusal unless a fork does the same as a plain start. Cheap if no source file has changed."""
        if not self._looked_at or any(_stamp(path) != stamp for path, stamp in self._looked_at.items()):
            self._read()

    def _read(self) -> None:
        finder = module_sources.Finder(self.directory)
        try:
            found = finder.of_module(self.target) if self.module else finder.of_script(self._script())
            if not found:
                raise Refusal(f"there is no module {self.target}")
            reason = reason_for_plain(found)
        except (OSError, NotPlainPython) as error:
            raise Refusal(f"cannot read {self.target}: {error}") from error
        if reason:
            raise Refusal(reason)
        self._looked_at = {path: _stamp(path) for path in finder.seen}

    def _script(self) -> str:
        if not os.path.isfile(self.target) or self.target.endswith((".pyc", ".pyz", ".zip")):
            raise Refusal(f"{self.target} is not a Python file")
        return self.target

    def check_names(self, withheld: Withheld) -> None:
        """Raise Refusal if the program's directory has a module that a plain start would import in place of ours."""
        if self._directory_time == (now := os.stat(self.directory).st_mtime_ns):
            return
        there = {**sys.modules, **withheld.roots()}
        for name in {name.partition(".")[0] for name in there} - _BEFORE - {"__main__", "_tftraining"}:
            spec = importlib.machinery.PathFinder.find_spec(name, [self.directory])
            taken = getattr(there.get(name), "__file__", None)
            if spec is not None and spec.origin and taken and not _same(spec.origin, taken):
                raise Refusal(f"its directory has a module {name}, which would shadow the one that TensorFlow imports")
        self._directory_time = now

    def prepare(self) -> None:
        """Set up, in the forked process, what an interpreter sets up before the program's first line."""
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[-OURS:] = self.command
        sys.argv[:] = ["-m" if self.module else self.target, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, self.directory)
        main = types.ModuleType("__main__")
        vars(main)["__builtins__"] = builtins
        if sys.version_info < (3, 14):
            vars(main)["__annotations__"] = {}
        sys.modules["__main__"] = main

    def code(self) -> types.CodeType:
        """The compiled script; sets the names in __main__ that a script has."""
        path = os.path.join(os.getcwd(), self.target)
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        sys.modules["__main__"].__dict__.update(__file__=path, __cached__=None, __loader__=loader)
        return code


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_mtime_ns, found.st_size)


def _same(one: str, other: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def import_tensorflow() -> tuple[Withheld, dict[str, str]]:
    """Import TensorFlow, and legacy Keras if installed; return the modules withheld from the program, and the
    environment variables that the import has set."""
    modules, before = frozenset(sys.modules), dict(os.environ)
    try:
        import tensorflow  # noqa: F401, PLC0415
    except (Exception, SystemExit) as error:
        raise Refusal(f"cannot import TensorFlow: {type(error).__name__}: {error}".splitlines()[0]) from error
    with contextlib.suppress(Exception):
        import tf_keras  # noqa: F401, PLC0415
    own = {name: value for name, value in os.environ.items() if before.get(name) != value}
    return Withheld(modules), own


def flush() -> None:
    """Flush the import's output, or every fork would print it again."""
    sys.stdout.flush()
    sys.stderr.flush()
    _libc.fflush(None)


def fork(launcher: Launcher) -> bool:
    """Fork a process that becomes a child of the launcher; True in it. Send the launcher its pid or a refusal."""
    told, tell = os.pipe()
    wait, go = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about native threads: they are those of BLAS, which handles forks
            middle = os.fork()
    except OSError as error:
        launcher.tell(refused=f"cannot fork: {error.strerror}")
        return False
    if not middle:
        _fork_again(tell)
        os.setsid()
        for fd in (told, tell, go):
            os.close(fd)
        deadline = os.read(wait, 64)  # empty if the warm interpreter was killed before it wrote
        os.close(wait)
        if not deadline or time.monotonic() >= float(deadline):
            os._exit(1)
        return True
    os.close(tell)
    os.waitpid(middle, 0)
    pid = int(os.read(told, 32) or b"0")
    if pid:
        launcher.tell(pid=pid)  # by now the launcher's child; it waits until the launcher has its pid
        os.write(go, json.dumps(launcher.hear()["go"]).encode())
    else:
        launcher.tell(refused="the second fork failed")
    for fd in (told, wait, go):
        os.close(fd)
    return False


def _fork_again(tell: int) -> None:
    """Return in the second child; the process in between exits, so the launcher adopts the child."""
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(tell, str(pid).encode())
        os._exit(0)


def settle(environment: dict[str, str], own: dict[str, str], withheld: Withheld) -> None:
    """Give the forked process the state that a plain start has. `own` are the variables that the import has set."""
    with contextlib.suppress(AttributeError, OSError):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.environ.clear()
    os.environ.update(environment)
    long_tf_config.unpack(os.environ)
    os.environ["PYTHONPATH"] = hooks.python_path(environment.get("PYTHONPATH", ""))  # for the program's child processes
    if (numpy := withheld.get("numpy")) is not None:
        numpy.random.seed()  # Python reseeds its own generator after a fork
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    hooks.install()
    withheld.watch(functools.partial(changed, os.getpid(), environment.get(hooks.PROGRESS)), lambda: given(own))


def given(own: dict[str, str]) -> None:
    """Finish the program's import of TensorFlow: set the variables that the import sets, and arm the hooks."""
    for name, value in own.items():
        os.environ.setdefault(name, value)
    hooks.arm()


def changed(program: int, path: str | None, variable: str) -> None:
    """The program has changed a variable that the import may have read: end it for a plain start, which repeats the
    work up to here as a restart does."""
    if path and os.getpid() == program:
        progress_page.Writer(path).has_changed(variable)
        os._exit(1)
    sys.stderr.write(
        f"tftraining: {variable} was set after TensorFlow read it: set it in env, or set warmStart: false\n"
    )


def serve() -> Program:
    """Answer the launcher until it ends; return only in a forked process, with the program to run there."""
    launcher = Launcher(int(sys.argv[1]))
    name, started = proctitle.name(), proctitle.command_line()
    proctitle.set_name(NAME)
    launcher.tell(hello=True)
    request = launcher.hear()
    program = Program(bool(request["module"]), str(request["target"]), list(request["arguments"]))  # type: ignore[call-overload]
    try:
        program.check()
        if legacy_keras.apply(os.environ):
            launcher.tell(log=legacy_keras.APPLIED)
        withheld, own = import_tensorflow()
        program.check_names(withheld)
    except Refusal as refusal:
        launcher.tell(refused=str(refusal))
        raise SystemExit(0) from None
    flush()
    gc.collect()
    gc.freeze()  # collections in forked processes must not touch, and so copy, these objects' pages
    launcher.tell(ready=True)
    while True:
        environment = dict(launcher.hear()["environment"])  # type: ignore[call-overload]
        try:
            program.check()
            program.check_names(withheld)
        except Refusal as refusal:
            launcher.tell(refused=str(refusal))
            continue
        told = dict(environment)
        legacy_keras.apply(environment)
        if fork(launcher):
            launcher.close()
            proctitle.set_name(name)
            proctitle.show([*started[:-OURS], *program.command], told)
            settle(environment, own, withheld)
            program.prepare()
            return program


def _without_our_frame(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Call the program's own excepthook, without this module's frame in the traceback."""
    sys.excepthook = hook
    trace = trace.tb_next if trace is not None else None
    hook(kind, error.with_traceback(trace), trace)


_program = serve()
try:
    if _program.module:
        import runpy

        runpy._run_module_as_main(_program.target)  # type: ignore[attr-defined]
    else:
        exec(_program.code(), sys.modules["__main__"].__dict__)
except SystemExit:
    raise
except BaseException:
    sys.excepthook = functools.partial(_without_our_frame, sys.excepthook)
    raise
finally:
    if not _program.module:  # as the interpreter does after a script
        for _name in ("__file__", "__cached__"):
            sys.modules["__main__"].__dict__.pop(_name, None)
