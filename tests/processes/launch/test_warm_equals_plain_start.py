"""A fork out of the warm interpreter does what a plain start does: the same script both ways, the same observed.

TensorFlow is a stand-in here, an empty module that is imported at once: what a fork is like does not depend on what
was imported before. The real one is in test_tensorflow.py. What is known to differ: the text after an excepthook that
fails itself (one frame more), and that what an import of TensorFlow changes in the interpreter, such as the filters of
warnings, is so from the first line on. From both differs a start without a launcher in what brings the launcher's hooks
to every Python that the program starts: the first entry of PYTHONPATH, and TFTRAINING_PROGRESS.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.launchers.harness import PYTHONS, Harness, environment, stdin


@dataclass(frozen=True)
class Case:
    script: str
    command: tuple[str, ...] = ("python", "script.py")
    #: What must be on stdout, so that a script that fails both ways is seen.
    shows: str = ""
    stdin: str = ""


STARTS_ANOTHER = """
import multiprocessing, sys
def work(x):
    print(x * x, __name__, sys.argv, flush=True)
if __name__ == '__main__':
    process = multiprocessing.get_context('{}').Process(target=work, args=(3,))
    process.start()
    process.join()
    print(process.exitcode, process.name)
"""
HOOKS = ("PYTHONPATH", "TFTRAINING_PROGRESS")
SHOWS_ITSELF = (
    "import os\nwith open('/proc/self/cmdline', 'rb') as a, open('/proc/self/comm') as b: print(a.read(), b.read())\n"
    "with open('/proc/self/environ', 'rb') as file: told = file.read().decode().split('\\0')\n"
    "print(sorted(each for each in told if not each.startswith(('PYTHONPATH=', 'TFTRAINING_PROGRESS='))))\n"
)
LONG = "-".join(map(str, range(2000)))
CASES = {
    "command line": Case(
        SHOWS_ITSELF, ("python", "script.py", "--epochs", "3"), "script.py\\x00--epochs\\x003\\x00' python"
    ),
    "command line, shortest": Case(SHOWS_ITSELF, shows="b'python\\x00script.py\\x00' python"),
    "command line, long": Case(SHOWS_ITSELF, ("python", "-u", "script.py", LONG, "x" * 100_000), "-1999\\x00xxx"),
    "command line, empty arguments": Case(
        SHOWS_ITSELF, ("python", "script.py", "", "a", "", ""), "y\\x00\\x00a\\x00\\x00\\x00'"
    ),
    "command line, not ASCII": Case(SHOWS_ITSELF, ("python", "script.py", "ä b", "\udcff"), "\\xc3\\xa4 b\\x00\\xff"),
    "command line, options in one": Case(
        "", ("python", "-um", "package.itself", "a b"), "-um\\x00package.itself\\x00a b"
    ),
    "command line of a module": Case("", ("python", "-u", "-m", "package.itself"), "-u\\x00-m\\x00package."),
    "command line of an option": Case(SHOWS_ITSELF, ("python", "-O", "script.py"), "python\\x00-O\\x00script.py"),
    "command line of a fork": Case(
        SHOWS_ITSELF + "import sys; sys.stdout.flush()\n"
        "if not os.fork():\n    with open('/proc/self/cmdline', 'rb') as a: print('fork', a.read(), flush=True)\n"
        "    os._exit(0)\nos.wait()",
        shows="fork b'python\\x00script.py\\x00'",
    ),
    "command line at exit": Case(
        "class Last:\n    def __del__(self, open=open):\n        print(open('/proc/self/cmdline', 'rb').read())\n"
        "last = Last()",
        shows="b'python\\x00script.py\\x00'",
    ),
    "name of a thread": Case(
        "import threading\ndef work():\n    with open('/proc/thread-self/comm') as a: print(a.read())\n"
        "threading.Thread(target=work).start()",
        shows="python",
    ),
    "argv": Case(
        "import sys; print(sys.argv, getattr(sys, 'orig_argv', 0))",
        ("python", "script.py", "-x", "ä b"),
        "['script.py'",
    ),
    "main": Case(
        "'''text'''\nprint(sorted(globals()), __name__, __doc__, __spec__, __package__, type(__loader__))", shows="t"
    ),
    "file": Case("print(__file__)", shows="script.py"),
    "file with a dot": Case("print(__file__)", ("python", "./script.py"), "script.py"),
    "file by link": Case("import sys; print(__file__, sys.path[0])", ("python", "links/link.py"), "link.py"),
    "file below": Case("import sys, neighbour; print(neighbour, sys.path)", ("python", "sub/inner.py"), "neighbour"),
    "module is main": Case("import sys; print(sys.modules['__main__'].__dict__ is globals())", shows="True"),
    "cwd": Case("import os; print(os.getcwd())", shows="/"),
    "environment": Case(
        "import os, ctypes; c = ctypes.CDLL(None); c.getenv.restype = ctypes.c_char_p\n"
        f"names = sorted(set(os.environ) - {{'_', *{HOOKS}}})\nprint([(name, os.environ[name]) for name in names])\n"
        "print(all(c.getenv(name.encode()) == os.environb[name.encode()] for name in names), c.getenv(b'NOT_THERE'))",
        shows="TF_CONFIG",
    ),
    "environment of a child": Case(
        f"import os, sys; sys.stdout.flush(); os.system('env | grep -Ev \"^(_|{'|'.join(HOOKS)})=\" | sort')", shows="P"
    ),
    "signals": Case("import signal; print([signal.getsignal(n) for n in range(1, 32)])", shows="SIG_DFL"),
    "signals of a child": Case(
        # Not SigQ, which counts the queued signals of all processes of the user.
        "import os; os.system('grep ^Sig[PBIC] /proc/self/status')",
        shows="SigBlk",
    ),
    "masks": Case("import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))", shows="set()"),
    "exit code": Case("import sys; print('x'); sys.exit(3)", shows="x"),
    "exit text": Case("import sys; print('x'); sys.exit('a text')", shows="x"),
    "exit none": Case("import sys; print('x'); sys.exit()", shows="x"),
    "exception": Case("def f():\n    raise ValueError('bad')\nprint('x', flush=True)\nf()", shows="x"),
    "chained exception": Case("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e"),
    "exception group": Case("raise ExceptionGroup('g', [ValueError('a'), KeyError('b')])"),
    "excepthook": Case(
        "import sys, traceback\ndef hook(kind, error, trace):\n"
        "    print('hook', kind, error, traceback.extract_tb(trace))\n"
        "sys.excepthook = hook\n1/0",
        shows="hook",
    ),
    "system exit in a function": Case("import atexit; atexit.register(print, 'bye')\nraise SystemExit(4)", shows="bye"),
    "_exit": Case("import os; print('lost'); os._exit(5)"),
    "interrupt": Case("raise KeyboardInterrupt"),
    "interrupt by signal": Case("import os, signal; os.kill(os.getpid(), signal.SIGINT); print('not here')"),
    "killed": Case("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
    "abort": Case("import os; os.abort()"),
    "atexit": Case("import atexit; atexit.register(print, 'two'); atexit.register(print, 'one')", shows="one\ntwo"),
    "atexit after an error": Case("import atexit; atexit.register(print, 'bye'); 1/0", shows="bye"),
    "file at exit": Case("import atexit; atexit.register(lambda: print('__file__' in globals()))", shows="False"),
    "threads": Case(
        "import threading, time\ndef work():\n    time.sleep(0.2); print('worked', threading.main_thread().name)\n"
        "threading.Thread(target=work).start(); print('end')",
        shows="end\nworked",
    ),
    "daemon threads": Case(
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    ),
    "main thread": Case(
        "import os, threading\nt = threading.main_thread()\n"
        "print(t.native_id == os.getpid(), t is threading.current_thread())",
        shows="True True",
    ),
    "globals are destroyed": Case("class C:\n    def __del__(self): print('gone')\nc = C()", shows="gone"),
    "stdin": Case("import sys; print(sys.stdin.read(), sys.stdin.isatty())", shows="some text", stdin="some text"),
    "input": Case("print(input())", shows="a line", stdin="a line\nrest"),
    "flush": Case("import sys; sys.stdout.write('no newline'); sys.stderr.write('nor here')", shows="no newline"),
    "buffering": Case(
        "import sys; print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding)", shows="F"
    ),
    "unbuffered": Case("import os, sys; sys.stdout.write('now'); os._exit(0)", ("python", "-u", "script.py"), "now"),
    "closed stdout": Case("import os; os.close(1); print('lost')"),
    "spawn": Case(STARTS_ANOTHER.format("spawn"), shows="9 __mp_main__"),
    "fork": Case(STARTS_ANOTHER.format("fork"), shows="9 __main__"),
    "forkserver": Case(STARTS_ANOTHER.format("forkserver"), shows="9 __mp_main__"),
    "spawn of a module": Case("", ("python", "-m", "package.spawner"), "9 __mp_main__"),
    "subprocess": Case(
        "import subprocess, sys\ncode = 'import sys; print(sys.path[1:], sys.argv)'\n"
        "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True))",
        shows="returncode=0",
    ),
    "subprocess by name": Case(
        "import subprocess\nprint(subprocess.run(['sh', '-c', 'echo $0; exit 3']).returncode)", shows="3"
    ),
    "pickle": Case(
        "import pickle\nclass C:\n    x = 1\nc = pickle.loads(pickle.dumps(C()))\nprint(type(c) is C, C.__module__)",
        shows="True",
    ),
    "name guard": Case("if __name__ == '__main__':\n    print('main')", shows="main"),
    "module": Case("", ("python", "-m", "package.module", "-x"), "module ran"),
    "package": Case("", ("python", "-m", "package"), "package ran"),
    "module fails": Case("", ("python", "-m", "package.fails")),
    "module is interrupted": Case("", ("python", "-m", "package.interrupts")),
    "module exits": Case("", ("python", "-m", "package.exits")),
    "module is not there": Case("", ("python", "-m", "package.nothing")),
    "no module at all": Case("", ("python", "-m", "nothing_of_this_name")),
    "syntax error": Case("print('never')\nthis is no Python\n"),
    "indentation error": Case("if True:\nprint('never')\n"),
    "null bytes": Case("print('a')\0\n"),
    "missing file": Case("", ("python", "no_such_file.py")),
    "directory": Case("", ("python", "application"), "an application"),
    "encoding": Case("# -*- coding: latin-1 -*-\nprint(len('\u00e4'))", shows="2"),
    "future": Case("def f(x: 1 + 1): pass\nprint(f.__annotations__)", shows="{'x': 2}"),
    "no future of ours": Case("import __future__, sys\nprint(sys.flags)", shows="sys.flags"),
    "warnings": Case("import warnings; print(warnings.filters); warnings.warn('beware')", shows="default"),
    "deprecations in main": Case("import warnings; warnings.warn('old', DeprecationWarning)"),
    "syntax warnings": Case("print('\\d' is 'x')", shows="False"),
    "hooks": Case(
        "import sys; print(sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile())", shows="T"
    ),
    "recursion": Case("def f(): f()\ntry:\n    f()\nexcept RecursionError as e:\n    print(e)", shows="maximum"),
    "asyncio": Case(
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01); print('ran')\nasyncio.run(f())", shows="ran"
    ),
    "inspect": Case(
        "import inspect\ndef f(): return 1\nprint(inspect.getsource(f), inspect.getfile(f))", shows="return 1"
    ),
    "descriptors": Case("import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3])", shows="[0, 1, 2]"),
    "session": Case("import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())", shows="True"),
    "dies with its launcher": Case(
        "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)", shows="9"
    ),
    "option X": Case("import sys; print(sys._xoptions)", ("python", "-X", "dev", "script.py"), "dev"),
    "option W": Case("import warnings; warnings.warn('x')", ("python", "-W", "error", "script.py")),
    "option O": Case("assert False\nprint('optimised')", ("python", "-O", "script.py"), "optimised"),
    "option c": Case("", ("python", "-c", "import sys; print(sys.argv)", "a"), "-c"),
    "option I": Case("import sys; print(sys.flags.isolated)", ("python", "-I", "script.py"), "1"),
    "sitecustomize": Case(
        "import sys, os; print(sys.modules['sitecustomize'].MINE, os.environ['PYTHONPATH'].split(':')[-1])", shows="yes"
    ),
}
# Deliberately not as without a launcher.
OF_THE_LAUNCHER = {"dies with its launcher"}
# Started plainly where a fork was wanted: the program's text or command asks for it.
PLAIN = {
    *("module is not there", "no module at all", "syntax error", "indentation error", "null bytes", "missing file"),
    *("directory", "option X", "option W", "option O", "option c", "option I"),
    *("command line, options in one", "command line of an option"),  # -um and -O
}
FILES = {
    "package/__init__.py": "print('init')",
    "package/__main__.py": "print('package ran', __name__, __package__, __spec__.name)",
    "package/module.py": "import sys\nprint('module ran', sys.argv, sys.path[0], __name__, __package__)\n"
    "print(__spec__.name, __file__, getattr(sys, 'orig_argv', 0))",
    "package/itself.py": SHOWS_ITSELF,
    "package/fails.py": "from . import module\ndef f():\n    raise ValueError('bad')\nf()",
    "package/interrupts.py": "raise KeyboardInterrupt",
    "package/exits.py": "import sys\nsys.exit('module is over')",
    "package/spawner.py": STARTS_ANOTHER.format("spawn"),
    "application/__main__.py": "print('an application')",
    "sub/inner.py": "import sys, neighbour; print(neighbour, sys.path)",
    "sub/neighbour.py": "",
    "modules/tensorflow.py": "",
    "modules/tf_keras.py": "",
    "modules/sitecustomize.py": "MINE = 'yes'",
}


class Lab(Harness):
    """The working directory of a program, and the two ways to run it there."""

    def write(self, case: Case) -> None:
        for name, text in {**FILES, "script.py": case.script}.items():
            path = self.directory / "work" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        (self.directory / "work/links").mkdir()
        (self.directory / "work/links/link.py").symlink_to("../script.py")

    def environment(self) -> dict[str, str]:
        return environment(self.directory / "work/modules")

    async def observe(self, case: Case, warm: bool) -> tuple[str, tuple[int | None, int | None]]:
        """How it was started; its exit code, or the signal that ended it."""
        program = self.make(*case.command, warm=warm)
        self.ended.clear()
        with stdin(case.stdin):
            await program.prepare(self.environment())
            await program.start(self.environment(), self.on_exit)
            ended = await self.end(program)
        mode = program.mode
        await program.close()
        return mode, (ended.code, ended.signal)

    def bare(self, case: Case) -> tuple[tuple[int | None, int | None], str, str]:
        """The same without a launcher: how it ended, stdout, stderr."""
        python = PYTHONS / case.command[0]
        done = subprocess.run(
            case.command,
            executable=python,
            env=self.environment(),
            input=case.stdin,
            start_new_session=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        code = done.returncode
        return ((code, None) if code >= 0 else (None, -code)), done.stdout, done.stderr


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    lab = Lab(tmp_path)
    yield lab
    await lab.close()


@pytest.mark.parametrize("name", CASES)
async def test_a_fork_does_what_a_plain_start_does(lab: Lab, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    lab.write(case)
    bare = lab.bare(case)
    _, plain = await lab.observe(case, warm=False)
    plain_out, plain_err = capfd.readouterr()
    assert case.shows in plain_out
    assert name in OF_THE_LAUNCHER or (plain, plain_out, plain_err) == bare
    mode, warm = await lab.observe(case, warm=True)
    warm_out, warm_err = capfd.readouterr()
    warm_err = "".join(line for line in warm_err.splitlines(True) if not line.startswith("tftraining: cold start"))
    assert (warm, warm_out, warm_err) == (plain, plain_out, plain_err)
    assert (mode == "warm") == (name not in PLAIN), mode
