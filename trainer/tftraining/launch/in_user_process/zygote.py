"""The warm interpreter: imports TensorFlow and nothing else, then forks a process for each start of the program.

    <python> [-u] zygote.py <descriptor of a socket to the launcher> <title of this process, for readers of ps>

It runs in the user's own interpreter and must leave no trace that a program could see: a forked process is as after a
plain start, except that the first import of TensorFlow takes no time (withheld_modules.py). It must never start a
thread or touch a device, because neither survives a fork. This module's last lines run the program, with only one frame
of ours below it, and let the interpreter end as in a plain start: threads joined, atexit, buffers flushed, exit code.
"""

from __future__ import annotations

import sys

_MODULES_AT_START = frozenset(sys.modules)  # the program's directory cannot replace these in a plain start either
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
    cache_hook,
    checkpoint_hook,
    gpu_hook,
    hooks,
    iterator_release,
    keras_hook,
    leader_hook,
    leftovers,
    legacy_keras,
    long_tf_config,
    main_thread,
    module_sources,
    peers,
    private_files,
    proctitle,
    progress_page,
)
from _tftraining.fork_eligibility import UnparsableSource, reason_for_plain_start  # type: ignore[import-not-found]  # noqa: E402
from _tftraining.keras3 import patches  # type: ignore[import-not-found]  # noqa: E402, F401
from _tftraining.module_search import ModuleSearch  # type: ignore[import-not-found]  # noqa: E402
from _tftraining.started_state import reason_for_plain_start as reason_of_start  # type: ignore[import-not-found]  # noqa: E402
from _tftraining.started_state import reason_of_threads  # noqa: E402
from _tftraining.withheld_modules import WithheldModules  # type: ignore[import-not-found]  # noqa: E402

PR_SET_PDEATHSIG = 1
OWN_ARGUMENTS = 3  # our arguments in the command line: this file, the descriptor, the title
NAME = b"tftraining-warm"
_libc = ctypes.CDLL(None)


class NeedsPlainStart(Exception):
    """The program needs a plain start; the message says why."""


class LauncherConnection:
    """The connection to the launcher: one JSON object a line."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lines = self._socket.makefile("rb")

    def send(self, **message: object) -> None:
        """Send a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, object]:
        """The next request. SystemExit when the launcher is gone."""
        line = self._lines.readline()
        if not line:
            raise SystemExit(0)
        return dict(json.loads(line))

    def fileno(self) -> int:
        """The descriptor of the connection."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; for the forked process, which never talks to the launcher."""
        self._lines.close()
        self._socket.close()


class UserProgram:
    """The program to run, and whether a fork can run it."""

    def __init__(self, module: bool, target: str, arguments: list[str]) -> None:
        self.module = module
        self.target = target
        self.arguments = arguments
        self._source_stamps: dict[str, tuple[int, int]] = {}
        self._directory_stamp = -1

    @property
    def command(self) -> list[str]:
        """The program's command line after the interpreter and its options."""
        return [*(["-m"] if self.module else []), self.target, *self.arguments]

    @property
    def directory(self) -> str:
        """The first entry of sys.path in a plain start."""
        return os.getcwd() if self.module else os.path.dirname(os.path.realpath(self.target))

    def check(self) -> None:
        """Raise NeedsPlainStart unless a fork does the same as a plain start. Cheap if no source file has changed."""
        if not self._source_stamps or any(_stamp(path) != stamp for path, stamp in self._source_stamps.items()):
            self._examine()

    def _examine(self) -> None:
        finder = module_sources.SourceFinder(self.directory)
        try:
            found = finder.module_sources(self.target) if self.module else finder.script_sources(self._checked_script())
            if not found:
                raise NeedsPlainStart(f"there is no module {self.target}")
            reason = reason_for_plain_start(found)
        except (OSError, UnparsableSource) as error:
            raise NeedsPlainStart(f"cannot read {self.target}: {error}") from error
        if reason:
            raise NeedsPlainStart(reason)
        self._source_stamps = {path: _stamp(path) for path in finder.read_paths}

    def _checked_script(self) -> str:
        if not os.path.isfile(self.target) or self.target.endswith((".pyc", ".pyz", ".zip")):
            raise NeedsPlainStart(f"{self.target} is not a Python file")
        return self.target

    def check_shadowing(self, withheld: WithheldModules) -> None:
        """Raise NeedsPlainStart if the program's directory has a module that a plain start would import instead."""
        if self._directory_stamp == (now := os.stat(self.directory).st_mtime_ns):
            return
        known_modules = {**sys.modules, **withheld.roots()}
        for name in (
            {name.partition(".")[0] for name in known_modules} - _MODULES_AT_START - {"__main__", "_tftraining"}
        ):
            spec = importlib.machinery.PathFinder.find_spec(name, [self.directory])
            own_file = getattr(known_modules.get(name), "__file__", None)
            if spec is not None and spec.origin and own_file and not _is_same_file(spec.origin, own_file):
                raise NeedsPlainStart(
                    f"its directory has a module {name}, which would shadow the one that TensorFlow imports"
                )
        for name in withheld.search.missed:
            spec = importlib.machinery.PathFinder.find_spec(name, [self.directory])
            if spec is not None and spec.origin:
                raise NeedsPlainStart(f"its directory has a module {name}, which TensorFlow would import if it could")
        self._directory_stamp = now

    def set_up_main(self) -> None:
        """Set up, in the forked process, what an interpreter sets up before the program's first line."""
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[-OWN_ARGUMENTS:] = self.command
        sys.argv[:] = ["-m" if self.module else self.target, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, self.directory)
        main = types.ModuleType("__main__")
        vars(main)["__builtins__"] = builtins
        if sys.version_info < (3, 14):
            vars(main)["__annotations__"] = {}
        sys.modules["__main__"] = main

    def compile_script(self) -> types.CodeType:
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


def _is_same_file(one: str, other: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def import_tensorflow() -> tuple[WithheldModules, dict[str, str]]:
    """Import TensorFlow, and legacy Keras if installed; return the modules withheld from the program, and the
    environment variables that the import has set."""
    modules, before, search = frozenset(sys.modules), dict(os.environ), ModuleSearch()
    try:
        import tensorflow  # noqa: F401, PLC0415
    except (Exception, SystemExit) as error:
        raise NeedsPlainStart(f"cannot import TensorFlow: {type(error).__name__}: {error}".splitlines()[0]) from error
    with contextlib.suppress(Exception):
        import tf_keras  # noqa: F401, PLC0415
    set_by_import = {name: value for name, value in os.environ.items() if before.get(name) != value}
    return WithheldModules(modules, search), set_by_import


def flush() -> None:
    """Flush the import's output, or every fork would print it again."""
    sys.stdout.flush()
    sys.stderr.flush()
    _libc.fflush(None)


def fork(launcher: LauncherConnection) -> bool:
    """Fork a process that becomes a child of the launcher; True in it. Send the launcher its pid or a refusal."""
    pid_reader, pid_writer = os.pipe()
    start_reader, start_writer = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about native threads: they are those of BLAS, which handles forks
            intermediate = os.fork()
    except OSError as error:
        launcher.send(refused=f"cannot fork: {error.strerror}")
        return False
    if not intermediate:
        _fork_again(pid_writer)
        os.setsid()
        for fd in (pid_reader, pid_writer, start_writer):
            os.close(fd)
        deadline = os.read(start_reader, 64)  # empty if the warm interpreter was killed before it wrote
        os.close(start_reader)
        if not deadline or time.monotonic() >= float(deadline):
            os._exit(1)
        return True
    os.close(pid_writer)
    os.waitpid(intermediate, 0)
    pid = int(os.read(pid_reader, 32) or b"0")
    if pid:
        launcher.send(pid=pid)  # by now the launcher's child; it waits until the launcher has its pid
        os.write(start_writer, json.dumps(launcher.receive()["go"]).encode())
    else:
        launcher.send(refused="the second fork failed")
    for fd in (pid_reader, start_reader, start_writer):
        os.close(fd)
    return False


def _fork_again(pid_writer: int) -> None:
    """Return in the second child; the process in between exits, so the launcher adopts the child."""
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(pid_writer, str(pid).encode())
        os._exit(0)


def restore_plain_state(environment: dict[str, str], withheld: WithheldModules) -> None:
    """Give the forked process the state that a plain start has."""
    with contextlib.suppress(AttributeError, OSError):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.environ.clear()
    os.environ.update(environment)
    long_tf_config.unpack(os.environ)
    os.environ["PYTHONPATH"] = hooks.python_path(environment.get("PYTHONPATH", ""))  # for the program's child processes
    if (numpy := withheld.get("numpy")) is not None:
        numpy.random.seed()  # Python reseeds its own generator after a fork
    if (threading := sys.modules.get("threading")) is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()  # before Python 3.13 a fork keeps the number of the parent's thread
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    hooks.install()


def watch(environment: dict[str, str], set_by_import: dict[str, str], withheld: WithheldModules) -> None:
    """Compare the program's import of TensorFlow with ours. `set_by_import`: the variables that ours has set."""
    withheld.watch(
        functools.partial(end_for_plain_start, os.getpid(), environment.get(hooks.PROGRESS)),
        lambda: finish_import(set_by_import),
    )


def finish_import(set_by_import: dict[str, str]) -> None:
    """Finish the program's import of TensorFlow: set the variables that the import sets, and arm the hooks."""
    for name, value in set_by_import.items():
        os.environ.setdefault(name, value)
    hooks.arm()


def end_for_plain_start(program: int, path: str | None, variable: str) -> None:
    """The program has changed a variable that the import may have read, or what the import finds: end it for a plain
    start, which repeats the work up to here as a restart does."""
    if path and os.getpid() == program:
        progress_page.PageWriter(path).record_changed_variable(variable)
        os._exit(1)
    sys.stderr.write(
        f"tftraining: {variable} was changed after TensorFlow read it: set it in env, or set warmStart: false\n"
    )


def serve() -> UserProgram:
    """Answer the launcher until it ends; return only in a forked process, with the program to run there."""
    launcher = LauncherConnection(int(sys.argv[1]))
    name, started = proctitle.name(), proctitle.command_line()
    proctitle.set_name(NAME)
    launcher.send(hello=True)
    request = launcher.receive()
    program = UserProgram(bool(request["module"]), str(request["target"]), list(request["arguments"]))  # type: ignore[call-overload]
    try:
        program.check()
        if reason := reason_of_start({launcher.fileno()}):
            raise NeedsPlainStart(reason)
        if legacy_keras.apply(os.environ):
            launcher.send(log=legacy_keras.APPLIED)
        withheld, set_by_import = import_tensorflow()
        program.check_shadowing(withheld)
    except NeedsPlainStart as refusal:
        launcher.send(refused=str(refusal))
        raise SystemExit(0) from None
    flush()
    gc.collect()
    gc.freeze()  # collections in forked processes must not touch, and so copy, these objects' pages
    launcher.send(ready=True)
    while True:
        environment = dict(launcher.receive()["environment"])  # type: ignore[call-overload]
        try:
            program.check()
            program.check_shadowing(withheld)
            if reason := reason_of_threads():
                raise NeedsPlainStart(reason)
        except NeedsPlainStart as refusal:
            launcher.send(refused=str(refusal))
            continue
        shown = dict(environment)
        legacy_keras.apply(environment)
        if fork(launcher):
            launcher.close()
            proctitle.set_name(name)
            proctitle.show([*started[:-OWN_ARGUMENTS], *program.command], shown)
            restore_plain_state(environment, withheld)
            program.set_up_main()
            watch(environment, set_by_import, withheld)
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
        exec(_program.compile_script(), sys.modules["__main__"].__dict__)
except SystemExit as _end:
    main_thread.note_exit(_end.code)
    raise
except BaseException:
    sys.excepthook = functools.partial(_without_our_frame, sys.excepthook)
    raise
finally:
    if not _program.module:  # as the interpreter does after a script
        for _name in ("__file__", "__cached__"):
            sys.modules["__main__"].__dict__.pop(_name, None)
