"""The warm interpreter on a real kernel: whose child a fork is, and what happens when something is not as it should be.

TensorFlow is a stand-in, a module that is imported at once, or as slowly or badly as a test wants.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.harness import Lab, alive, children_of, start_aside, stderr, succeeds, until, written
from tftraining.launch.process import warm_start
from tftraining.launch.process.program import Program

SLEEPS = "import os, time\nprint(os.getpid(), file=open(os.environ['OUT'] + '/pid', 'w'), flush=True)\ntime.sleep(600)"


async def state(pid: int, wanted: str) -> None:
    """Wait until the kernel says this of a process: T for stopped, S for asleep."""
    await until(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == wanted, f"{pid} is {wanted}"
    )


def shown(pid: int, what: str = "cmdline") -> list[str]:
    """The command line of a process, or another list of /proc."""
    return Path(f"/proc/{pid}/{what}").read_text().split("\0")


async def test_ps_tells_the_program_from_the_warm_interpreter(lab: Lab) -> None:
    lab.script(SLEEPS)
    program = await lab.prepared("python", "script.py", "--epochs", "3")
    await program.start(lab.environment(), lab.on_exit)
    pid = int(await written(lab.directory / "pid"))
    assert program.mode == "warm"
    assert shown(pid) == ["python", "script.py", "--epochs", "3", ""]
    (interpreter,) = [each for each in children_of(os.getpid()) if warm_start.TITLE in shown(each)]
    assert not [each for each in shown(interpreter) if "script" in each]
    assert shown(pid, "comm") == ["python\n"]
    assert shown(interpreter, "comm") == ["tftraining-warm\n"]
    lab.extra["TF_CONFIG"] = '{"round": 2}'
    os.kill(pid, signal.SIGKILL)
    await lab.end(program)
    (lab.directory / "pid").unlink()
    await program.start(lab.environment(), lab.on_exit)
    pid = int(await written(lab.directory / "pid"))
    assert 'TF_CONFIG={"round": 2}' in shown(pid, "environ")  # not that of the start


IMPORTS = """
import os, time
print(os.getpid(), file=open(os.environ['OUT'] + '/importing', 'w'), flush=True)
for _ in range(10):
    time.sleep(0.05)
"""


async def begun(lab: Lab) -> tuple[Program, int]:
    """A program whose import takes half a second, and the process that imports."""
    lab.tensorflow(IMPORTS)
    lab.script("print('ran')")
    program = await lab.prepared()
    return program, int(await written(lab.directory / "importing"))


async def test_a_warmup_pauses_and_continues(lab: Lab) -> None:
    program, importing = await begun(lab)
    for wanted, then in ((True, "T"), (False, "S"), (True, "T")):
        program.pause_warmup(wanted)
        await state(importing, then)
    await asyncio.sleep(0.6)
    assert not program.is_prepared
    program.pause_warmup(False)
    await until(lambda: program.is_prepared, "the import is over")
    program.pause_warmup(True)  # what is ready is in nobody's way
    await asyncio.sleep(0.1)
    await state(importing, "S")


async def test_a_start_continues_a_paused_warmup(lab: Lab) -> None:
    program, importing = await begun(lab)
    program.pause_warmup(True)
    await state(importing, "T")
    assert (await lab.go(program)).lines == ("ran",)
    assert program.mode == "warm"


async def test_a_paused_interpreter_ends_with_its_launcher(lab: Lab) -> None:
    program, importing = await begun(lab)
    program.pause_warmup(True)
    await state(importing, "T")
    await program.close()
    assert not alive(importing)


async def test_a_fork_is_a_child_of_the_launcher_in_a_session_of_its_own(lab: Lab) -> None:
    lab.script(SLEEPS)
    program = await lab.prepared()
    await program.start(lab.environment(), lab.on_exit)
    pid = int(await written(lab.directory / "pid"))
    assert program.mode == "warm"
    assert program.pid == pid
    assert pid in children_of(os.getpid())
    assert os.getsid(pid) == os.getpgid(pid) == pid
    os.kill(pid, signal.SIGSEGV)
    assert (await lab.end(program)).signal == signal.SIGSEGV
    assert pid not in children_of(os.getpid())  # reaped, and by nobody else


async def test_the_exit_of_a_fork_that_ends_at_once_is_reported(lab: Lab) -> None:
    lab.script("import os; os._exit(7)")
    program = await lab.prepared()
    for _ in range(30):
        assert (await lab.go(program)).code == 7
        assert program.mode == "warm"


async def test_a_fork_unknown_to_the_launcher_runs_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher has given up waiting for it, and starts the program plainly."""
    hear = warm_start.WarmInterpreter._handle_message

    def hear_badly(self: warm_start.WarmInterpreter, message: dict[str, Any]) -> None:
        if "pid" not in message:
            hear(self, message)

    monkeypatch.setattr(warm_start.WarmInterpreter, "_handle_message", hear_badly)
    monkeypatch.setattr(warm_start, "FORK_SECONDS", 1.0)
    lab.script("import os\nprint(os.getpid(), file=open(os.environ['OUT'] + '/ran', 'a'))")
    program = await lab.prepared()
    await lab.go(program)
    assert program.mode == "plain: the warm interpreter was killed: it did not answer"
    await program.close()
    assert len((lab.directory / "ran").read_text().split()) == 1


@pytest.mark.parametrize("start_warm", [True, False])
async def test_a_program_whose_lease_is_over_at_the_start_runs_nothing(lab: Lab, start_warm: bool) -> None:
    lab.script("import os; open(os.environ['OUT'] + '/ran', 'w')")
    program = lab.make("python", "script.py", warm=start_warm)
    await program.start(lab.environment(), lab.on_exit, time.monotonic() - 1)
    assert program.lease.is_over
    await lab.end(program)
    await program.kill()
    assert not (lab.directory / "ran").exists()
    assert not program.lease.is_over
    assert (await lab.go(program)).code == 0


async def test_the_watchdog_spares_the_warm_interpreter(lab: Lab) -> None:
    lab.script(SLEEPS)
    program = await lab.prepared()
    await program.start(lab.environment(), lab.on_exit, time.monotonic() + 1)
    pid = int(await written(lab.directory / "pid"))
    assert (await lab.end(program)).signal == signal.SIGKILL
    assert (program.lease.is_fenced, alive(pid)) == (True, False)
    await program.kill()
    lab.script("")
    assert (await lab.go(program)).code == 0
    assert program.mode == "warm"


async def test_a_renewed_lease_ends_nothing(lab: Lab) -> None:
    lab.script("import time; time.sleep(1.5)")
    program = lab.make("python", "script.py")
    begun = time.monotonic()
    await program.start(lab.environment(), lab.on_exit, begun + 1)
    program.lease.renew(begun + 60)
    assert (await lab.end(program)).code == 0


async def test_forks_are_independent(lab: Lab) -> None:
    lab.script("import tensorflow as tf\ntf.x = getattr(tf, 'x', 0) + 1\nimport os\nos.environ['N'] = '1'\nprint(tf.x)")
    program = await lab.prepared()
    for number in range(3):
        lab.extra["TFTRAINING_ROUND"] = str(number)
        assert (await lab.go(program)).lines == ("1",)
    assert program.mode == "warm"


async def test_a_start_waits_for_the_warmup_and_kill_does_not(lab: Lab) -> None:
    go = lab.directory / "go"
    lab.tensorflow(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    lab.script("print('ran')")
    program = await lab.prepared()
    starting = asyncio.create_task(program.start(lab.environment(), lab.on_exit))
    await asyncio.sleep(0.3)
    await program.kill()
    await starting
    assert (program.pid, lab.exits) == (None, [])
    started = asyncio.create_task(lab.go(program))
    await asyncio.sleep(0.3)
    assert not started.done()
    go.touch()
    assert (await started).lines == ("ran",)
    assert program.mode == "warm"


@pytest.mark.parametrize(
    ("tensorflow", "reason"),
    [
        ("raise ImportError('no such library')", "cannot import TensorFlow: ImportError: no such library"),
        ("1/0", "cannot import TensorFlow: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "cannot import TensorFlow: SystemExit: 3"),
        ("import os; os._exit(3)", "the warm interpreter died"),
        ("import os; os.abort()", "the warm interpreter died"),
    ],
)
async def test_a_failed_import_gives_a_plain_start(
    lab: Lab, tensorflow: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lab.tensorflow(tensorflow)
    lab.script("print('ran')")
    program = await lab.prepared()
    for _ in range(2):
        assert (await lab.go(program)).lines == ("ran",)
        assert program.mode == f"plain: {reason}"
    await lab.close()
    assert capfd.readouterr().err.count(f"tftraining: cold start: {reason}\n") == 1


async def test_output_of_the_import_is_printed_once(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    lab.tensorflow("import ctypes; print('imported', end=' '); ctypes.CDLL(None).printf(b'in C ')")
    lab.script("print('ran')")
    program = await lab.prepared()
    for _ in range(2):
        await lab.go(program)
    await lab.close()
    assert sorted(capfd.readouterr().out.split()) == ["C", "imported", "in", "ran", "ran"]


async def test_without_tensorflow_the_start_is_plain(lab: Lab) -> None:
    lab.tensorflow("raise ModuleNotFoundError(\"No module named 'tensorflow'\")")
    lab.script("print('ran')")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("ran",)
    assert "No module named" in program.mode


async def test_a_changed_environment_gets_a_new_warm_interpreter(lab: Lab) -> None:
    lab.tensorflow("import os; seen = os.environ.get('TF_X')")
    lab.script("import os, tensorflow; print(tensorflow.seen, os.environ.get('TF_X'), os.environ['TF_CONFIG'])")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("None None {}",)
    lab.extra = {"TF_X": "1", "TF_CONFIG": "[]"}
    assert (await lab.go(program)).lines == ("1 1 []",)
    assert program.mode == "plain: its environment changed since the last start"
    assert (await lab.go(program)).lines == ("1 1 []",)
    assert program.mode == "warm"


async def test_a_warm_interpreter_that_dies_is_replaced(lab: Lab) -> None:
    lab.script("print('ran')")
    program = await lab.prepared()
    await lab.go(program)
    for _ in range(2):
        assert program.mode == "warm"
        (interpreter,) = children_of(os.getpid())
        os.kill(interpreter, signal.SIGKILL)
        assert (await lab.go(program)).lines == ("ran",)
        assert program.mode == "plain: the warm interpreter died"
        assert (await lab.go(program)).lines == ("ran",)
    assert program.mode == "warm"


async def test_a_hanging_warm_interpreter_delays_no_start(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "FORK_SECONDS", 0.3)
    lab.script("print('ran')")
    program = await lab.prepared()
    await lab.go(program)
    (interpreter,) = children_of(os.getpid())
    os.kill(interpreter, signal.SIGSTOP)
    assert (await lab.go(program)).lines == ("ran",)
    assert program.mode == "plain: the warm interpreter was killed: it did not answer"


async def test_a_command_named_python_that_is_no_python(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "HELLO_SECONDS", 0.3)
    fake = lab.directory / "python3"
    fake.write_text('#!/bin/sh\ncase "$1" in script.py) echo ran;; *) sleep 600;; esac\n')
    fake.chmod(0o755)
    lab.script("")
    program = await lab.prepared(str(fake), "script.py")
    assert (await lab.go(program)).lines == ("ran",)
    assert "did not answer" in program.mode


async def test_a_script_changed_between_two_starts(lab: Lab) -> None:
    lab.script("print(1)")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("1",)
    lab.script("print(22)")
    assert (await lab.go(program)).lines == ("22",)
    assert program.mode == "warm"
    lab.script("import os\nos.environ['TF_X'] = '1'\nimport tensorflow\nprint(333)")
    assert (await lab.go(program)).lines == ("333",)
    assert program.mode == "plain: it sets TF_X before importing TensorFlow"


@pytest.mark.parametrize("command", [("python", "script.py"), ("python", "-m", "script")])
async def test_environment_settings_in_a_module_of_the_program(lab: Lab, command: tuple[str, ...]) -> None:
    lab.script("import settings, tensorflow; print(tensorflow.seen)")
    lab.script("import os; os.environ['TF_X'] = '1'", "settings.py")
    lab.tensorflow("import os; seen = os.environ.get('TF_X')")
    program = await lab.prepared(*command)
    assert (await lab.go(program)).lines == ("1",)
    assert program.mode == "plain: it sets TF_X before importing TensorFlow"


async def test_a_module_that_the_programs_directory_shadows(lab: Lab) -> None:
    lab.tensorflow("import colorsys; seen = colorsys.__file__")
    lab.script("import tensorflow; print(tensorflow.seen)")
    lab.script("", "colorsys.py")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == (str(lab.work / "colorsys.py"),)
    assert "its directory has a module colorsys" in program.mode


async def test_all_processes_die_with_the_launcher(lab: Lab) -> None:
    lab.script(SLEEPS)
    text = (
        "import asyncio, json, os, sys\nfrom pathlib import Path\n"
        "from tftraining.launch.process.program import Program\n"
        "async def main():\n"
        "    program = Program(['python', 'script.py'], warm=True, grace=1, directory=Path(os.environ['OUT']))\n"
        "    await program.prepare(os.environ)\n    await program.start(os.environ, print)\n"
        "    assert program.mode == 'warm'\n    await asyncio.sleep(600)\nasyncio.run(main())"
    )
    launcher = start_aside([sys.executable, "-c", text], lab.environment())
    pid = int(await written(lab.directory / "pid"))
    family = children_of(launcher.pid)
    assert pid in family
    assert len(family) == 2
    launcher.kill()
    launcher.wait()
    await until(lambda: not any(alive(each) for each in family), "all have died")
    for page in lab.directory.glob("progress-*"):
        page.unlink()


async def test_kill_ends_a_forks_children_but_not_the_warm_interpreter(lab: Lab) -> None:
    lab.script("import os\nos.system('setsid sleep 600 & echo $! > $OUT/child; sleep 600')")
    program = await lab.prepared()
    await program.start(lab.environment(), lab.on_exit)
    child = int(await written(lab.directory / "child"))
    await program.kill()
    assert not alive(child)
    assert len(children_of(os.getpid())) == 1
    await program.close()
    assert children_of(os.getpid()) == []


@pytest.mark.parametrize("start_warm", [False, True])
async def test_stack_dumps_show_every_thread(lab: Lab, start_warm: bool) -> None:
    lab.script(
        "import os, threading, time\ndef work():\n    time.sleep(600)\n"
        "def wait():\n    print(file=open(os.environ['OUT'] + '/on', 'w'))\n    time.sleep(600)\n"
        "threading.Thread(target=work, daemon=True).start()\nwait()"
    )
    shown = lab.directory / "stderr"
    with stderr(shown):
        program = lab.make("sh", "-c", "python script.py; exit $?") if not start_warm else await lab.prepared()
        program.dump_stacks()
        await program.start(lab.environment(), lab.on_exit)
        await until((lab.directory / "on").exists, "it runs")
        program.dump_stacks()
        await until(lambda: "in wait" in shown.read_text(), "stacks")
    seen = shown.read_text()
    assert "in work" in seen
    assert seen.count("cannot show stacks") == 1
    assert program.pid is not None


REPORTS = """
import os, subprocess, sys, tftraining
tftraining.report(step=5, metrics={"loss": 1})
code = "import tftraining; tftraining.report(step=99)"
subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL)
if not os.fork():
    tftraining.report(step=98)
    os._exit(0)
os.wait()
import multiprocessing
process = multiprocessing.get_context("spawn").Process(target=tftraining.report, kwargs={"step": 97})
if __name__ == "__main__":
    process.start()
    process.join()
"""


@pytest.mark.parametrize("start_warm", [False, True])
async def test_only_the_main_process_reports(lab: Lab, start_warm: bool) -> None:
    lab.script(REPORTS)
    program = lab.make("python", "script.py", warm=start_warm)
    assert (await lab.go(program)).code == 0
    assert (program.snapshot().step, program.snapshot().metrics) == (5, {"loss": 1})


async def test_reports_of_a_custom_loop_behind_a_shell(lab: Lab) -> None:
    lab.script(
        "import numpy, tftraining\nfor step in range(1001, 1011):\n"
        "    tftraining.report(step=step, epoch=3, epochs=10, metrics={'loss': numpy.ones(1) / step})"
    )
    program = lab.make("sh", "-c", "python script.py; exit $?")
    assert (await lab.go(program)).code == 0
    end = program.snapshot()
    assert (end.step, end.epoch, end.epochs, end.first_step, end.first_epoch) == (1010, 3, 10, 1000, 2)
    assert end.metrics == {"loss": pytest.approx(1 / 1010)}


async def test_a_custom_loop_that_reports_its_first_step(lab: Lab) -> None:
    lab.script(
        "import tftraining\ntftraining.begin(step=140, epochs=10, steps_per_epoch=70)\ntftraining.report(epoch=3)\n"
        "tftraining.report(step=210, epoch=3, metrics={'loss': 1})"
    )
    program = lab.make("python", "script.py")
    assert (await lab.go(program)).code == 0
    end = program.snapshot()
    assert (end.step, end.epoch, end.epochs, end.first_step, end.first_epoch) == (210, 3, 10, 140, 2)
    assert end.steps_per_epoch == 70


async def test_reports_from_an_image_without_the_tftraining_package(lab: Lab) -> None:
    python = Path(sys.base_prefix) / "bin/python3"
    assert not succeeds(python, "-c", "import tftraining")
    lab.script("import tftraining; tftraining.report(step=5, epoch=1, epochs=2)")
    for start_warm in (False, True):
        program = lab.make(str(python), "script.py", warm=start_warm)
        assert (await lab.go(program)).code == 0
        assert program.snapshot().step == 5
        assert program.mode.startswith("warm" if start_warm else "plain")
        await program.close()


async def test_without_a_progress_page_the_program_still_runs(lab: Lab) -> None:
    lab.script("import tftraining; tftraining.report(step=5); print('ran')")
    program = Program(["python", "script.py"], warm=False, grace=1, directory=lab.directory / "not there")
    lab.programs.append(program)
    assert (await lab.go(program)).lines[-1] == "ran"
    assert program.snapshot().step is None
