"""A TF_CONFIG too long for the environment of a new process: the program has it, its children do not."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from tests.support.launchers.harness import Lab, stderr
from tftraining.launch.in_user_process.shared.python_command import imports_sitecustomize
from tftraining.launch.in_user_process.shared.tf_config import LONGEST, NAME, size, text

CONFIG = text((("worker", 5000, "j-worker-%d.j.n.svc:2222"),), "worker", 4999)

# Every way in which Python starts a process, with the environment as it is or with one of the caller's.
SCRIPT = """
import json, multiprocessing, os, subprocess, sys

CHILD = "import os; print(len(os.environ.get('TF_CONFIG', '')), os.environ.get('MORE', ''), 'WANDB_X' in os.environ)"
COMMAND = [sys.executable, "-c", CHILD]

def spawned(start, *args):
    out, into = os.pipe()
    if not (pid := os.fork()):
        os.dup2(into, 1)
        pid = start(*args)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(into)
    os.waitpid(pid, 0)
    return os.fdopen(out).read()

def of_child(queue):
    queue.put(f"{len(os.environ.get('TF_CONFIG', ''))}  {'WANDB_X' in os.environ}\\n")

def by_multiprocessing():
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=of_child, args=(queue,))
    process.start()
    told = queue.get()
    process.join()
    return told

if __name__ == "__main__":
    mine = os.environ["TF_CONFIG"]
    os.environ["WANDB_X"] = "1"
    own = {**os.environ, "MORE": "m"}
    run = lambda **more: subprocess.run(COMMAND, stdout=subprocess.PIPE, text=True, check=True, **more).stdout
    children = {
        "run": run(),
        "run with a copy": run(env=own),
        "run with os.environ": run(env=os.environ),
        "run without closing": run(close_fds=False, env=own),
        "popen": os.popen(" ".join([sys.executable, "-c", f'"{CHILD}"'])).read(),
        "spawn": spawned(os.spawnv, os.P_NOWAIT, sys.executable, COMMAND),
        "spawn with a copy": spawned(os.spawnve, os.P_NOWAIT, sys.executable, COMMAND, own),
        "posix_spawn": spawned(os.posix_spawn, sys.executable, COMMAND, os.environ),
        "exec": spawned(os.execv, sys.executable, COMMAND),
        "exec with a copy": spawned(os.execvpe, sys.executable, COMMAND, own),
        "multiprocessing": by_multiprocessing(),
    }
    found = {"mine": mine, "gone": False, "children": children}
    found["seen"] = [os.getenv("TF_CONFIG") == mine, os.environb[b"TF_CONFIG"] == mine.encode(), "TF_CONFIG" in own]
    found["left"] = "TFTRAINING_TF_CONFIG" in os.environ
    del os.environ["TF_CONFIG"]
    found["gone"] = "TF_CONFIG" not in os.environ
    json.dump(found, open("told", "w"))
"""


class Told(NamedTuple):
    """What a program says of its own TF_CONFIG, and each of its children of its."""

    mine: str
    gone: bool
    children: dict[str, str]
    seen: list[bool]
    left: bool


async def told(lab: Lab, warm: bool, config: str) -> Told:
    """Run the script."""
    lab.script(SCRIPT)
    lab.extra = {NAME: config}
    program = lab.make("python", "script.py", warm=warm)
    await program.prepare(lab.environment())
    with stderr(lab.directory / "stderr"):
        ended = await lab.go(program)
    assert (ended.code, program.mode.partition(":")[0]) == (0, "warm" if warm else "plain"), (
        lab.directory / "stderr"
    ).read_text()
    return Told(**json.loads((lab.work / "told").read_text()))


@pytest.mark.parametrize("warm", [False, True], ids=["plain", "warm"])
async def test_a_long_tf_config_reaches_the_program_but_not_its_children(lab: Lab, warm: bool) -> None:
    assert size(CONFIG) > LONGEST
    found = await told(lab, warm, CONFIG)
    assert (found.mine == CONFIG, found.seen, found.left, found.gone) == (True, [True] * 3, False, True)
    expected = {name: f"0 {'m' * ('copy' in name or 'without' in name)} True\n" for name in found.children}
    assert len(expected) == 11 and found.children == expected


@pytest.mark.parametrize("warm", [False, True], ids=["plain", "warm"])
async def test_a_tf_config_that_fits_is_an_ordinary_variable(lab: Lab, warm: bool) -> None:
    config = CONFIG[: LONGEST - len(f"{NAME}=") - 1]
    assert size(config) == LONGEST
    found = await told(lab, warm, config)
    assert (found.mine == config, found.seen, found.left, found.gone) == (True, [True] * 3, False, True)
    children = {name: said.split()[0] for name, said in found.children.items()}
    assert children == dict.fromkeys(children, str(len(config)))


@pytest.mark.parametrize("warm", [False, True], ids=["plain", "warm"])
async def test_the_next_round_may_have_a_tf_config_that_fits(lab: Lab, warm: bool) -> None:
    lab.script("import os; print(len(os.environ['TF_CONFIG']), 'TFTRAINING_TF_CONFIG' in os.environ)")
    program = lab.make("python", "script.py", warm=warm)
    for config in ("{}", CONFIG, "{}", CONFIG):
        lab.extra = {NAME: config}
        assert (await lab.go(program)).lines == (f"{len(config)} False",)


@pytest.mark.parametrize("command", [("bash", "-c", "true"), ("python", "-I", "-c", ""), ("env", "python", "-c", "")])
async def test_a_command_that_is_no_python_is_not_started(lab: Lab, command: tuple[str, ...]) -> None:
    lab.extra = {NAME: CONFIG}
    program = lab.make(*command, warm=True)
    ended = await lab.go(program)
    assert (ended.code, ended.kind) == (126, "NotFound")
    assert "TF_CONFIG is longer than the 131072 bytes" in ended.lines[0]
    lab.extra = {NAME: "{}"}
    assert (await lab.go(program)).code == 0


async def test_a_program_with_a_broken_tf_config_does_not_train(lab: Lab) -> None:
    lab.script("print('ran')")
    lab.extra = {"TFTRAINING_TF_CONFIG": "nonsense"}
    ended = await lab.go(lab.make("python", "script.py"))
    assert ended.code == 1 and "cannot set TF_CONFIG" in ended.lines[-1]


async def test_the_operator_and_the_launcher_agree_on_python_commands(lab: Lab) -> None:
    """Each form of a Python command that is said to import our sitecustomize does."""
    (lab.work / "script.py").write_text("import os; print(len(os.environ['TF_CONFIG']))")
    lab.extra = {NAME: CONFIG}
    for options in ([], ["-u"], ["-W", "ignore"], ["-Wignore", "-B"], ["-Xutf8"], ["-X", "utf8"], ["-bs"], ["-O"]):
        for rest in (["script.py"], ["-m", "script"], ["-c", "import script"]):
            command = ("python", *options, *rest)
            assert imports_sitecustomize(command), command
            assert (await lab.go(lab.make(*command))).lines[-1] == str(len(CONFIG)), command
