"""What /proc shows of a process that has asked for something else, on kernels that can do it and on those that cannot.

Each test asks in a Python of its own, because there is no way back.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

REFUSES = """
class Refuses:
    def __getattr__(self, name):
        return (lambda *_: -1) if name == "prctl" else getattr(real, name)
real, proctitle._libc = proctitle._libc, Refuses()
"""
ASKS = """
import json, os, sys
from tftraining.launch.in_user_process import proctitle
{before}
proctitle.show(json.loads(sys.argv[1]), {{"NAME": "value", "EMPTY": ""}})
shown = [open("/proc/self/" + name, "rb").read().decode() for name in ("cmdline", "environ")]
print(json.dumps(shown))
print(os.environ["HOME"], len(sys.argv), file=sys.stderr)
"""


def shown(arguments: list[str], before: str = "") -> tuple[str, str]:
    """The command line and the environment of a process that asks to be shown with `arguments`."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS.format(before=before), json.dumps(arguments)],
        capture_output=True,
        text=True,
        env={"HOME": "/at/home"},
        check=True,
    )
    assert done.stderr == "/at/home 2\n"
    line, environ = json.loads(done.stdout)
    return line, environ


@pytest.mark.parametrize(
    "arguments", [["a"], ["a", "", "b c", ""], ["ä" * 10_000, "x"]], ids=["short", "empty", "long"]
)
def test_ps_shows_the_whole_command_line(arguments: list[str]) -> None:
    assert shown(arguments) == ("".join(f"{each}\0" for each in arguments), "NAME=value\0EMPTY=\0")


def test_ps_shows_as_much_as_fits_where_the_kernel_refuses() -> None:
    """A kernel without CONFIG_CHECKPOINT_RESTORE; the refusal is injected."""
    line, environ = shown(["python", "train.py"], REFUSES)
    assert line.rstrip("\0") == "python\0train.py"
    assert environ == "HOME=/at/home\0"
    line, environ = shown(["python", *map(str, range(10_000))], REFUSES)
    assert line.startswith("python\x000\x001\x002\0")
    assert line.endswith("\0")
    assert environ == "HOME=/at/home\0"


def test_the_command_line_before_a_change() -> None:
    code = (
        "from tftraining.launch.in_user_process import proctitle; print(proctitle.command_line()[1:], proctitle.name())"
    )
    done = subprocess.run([sys.executable, "-c", code, "", "ä"], capture_output=True, check=True)
    assert done.stdout.decode() == f"{['-c', code, '', 'ä']} b'python'\n"
