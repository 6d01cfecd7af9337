"""The command may be a wrapper: the launcher follows the process that trains, whichever of the program's it is.

Without TensorFlow here; with it in test_tensorflow.py.
"""

from __future__ import annotations

import pytest

from tests.support.launchers.harness import Lab, stderr, until
from tests.support.launchers.wrappers import WRAPPERS

TRAIN = """
import sys, tftraining
tftraining.report(step=7, epoch=2, epochs=3, metrics={"loss": 0.5})
print("trained", sys.argv[1:], __name__)
"""


@pytest.mark.parametrize("start_warm", [False, True])
@pytest.mark.parametrize("name", WRAPPERS)
async def test_the_program_behind_a_wrapper_reports(lab: Lab, name: str, start_warm: bool) -> None:
    lab.script(TRAIN, "train.py")
    lab.script(WRAPPERS[name], "wrapper.py")
    program = lab.make("python", "wrapper.py", "train.py", "-x", warm=start_warm)
    ended = await lab.go(program)
    assert ended.lines[-1].startswith("trained ['-x'] __m")
    assert program.mode.startswith("warm" if start_warm else "plain")
    now = program.snapshot()
    assert (now.step, now.epoch, now.metrics) == (7, 2, {"loss": 0.5})


async def test_two_programs_of_a_wrapper_report_one_after_the_other(lab: Lab) -> None:
    lab.script(
        "import sys, tftraining\ntftraining.begin(step=int(sys.argv[1]))\ntftraining.report(step=int(sys.argv[2]))"
    )
    program = lab.make("sh", "-c", "python script.py 3 5 && python script.py 5 9 && exec python script.py 9 12")
    assert (await lab.go(program)).code == 0
    assert (program.snapshot().first_step, program.snapshot().step) == (3, 12)


LOADERS = """
import concurrent.futures, multiprocessing, subprocess, sys, tftraining
def load(number):
    tftraining.report(step=90 + number)
    return number
if __name__ == "__main__":
    tftraining.report(step=1)
    for kind in ("fork", "spawn", "forkserver"):
        with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(kind)) as pool:
            print(sum(pool.map(load, range(4))))
    subprocess.run([sys.executable, "-c", "import tftraining; tftraining.report(step=99)"], check=True)
    tftraining.report(step=2)
"""


@pytest.mark.parametrize("name", ["execv", "subprocess"])
async def test_child_processes_of_the_program_report_nothing(lab: Lab, name: str) -> None:
    lab.script(LOADERS, "train.py")
    lab.script(WRAPPERS[name], "wrapper.py")
    program = lab.make("python", "wrapper.py", "train.py")
    ended = await lab.go(program)
    assert (ended.code, ended.lines) == (0, ("6", "6", "6"))
    assert program.snapshot().step == 2


# It reports inside the function: a dump right after the report must show it.
STANDS = "import time, tftraining\ndef stand():\n    tftraining.report(step=1)\n    time.sleep(600)\nstand()"


@pytest.mark.parametrize("name", ["execv", "subprocess"])
async def test_stack_dumps_come_from_the_program_behind_the_wrapper(lab: Lab, name: str) -> None:
    lab.script(STANDS, "train.py")
    lab.script(WRAPPERS[name], "wrapper.py")
    shown = lab.directory / "stderr"
    with stderr(shown):
        program = lab.make("python", "wrapper.py", "train.py")
        await program.start(lab.environment(), lab.on_exit)
        await until(lambda: program.snapshot().step, "it reports")
        program.dump_stacks()
        await until(lambda: "in stand" in shown.read_text(), "stacks")
    assert program.pid is not None


async def test_a_process_without_a_handler_gets_no_signal(lab: Lab) -> None:
    lab.script("import os\nos.execvp('sh', ['sh', '-c', 'echo > $OUT/on; exec sleep 600'])")
    shown = lab.directory / "stderr"
    with stderr(shown):
        program = lab.make("python", "script.py")
        await program.start(lab.environment(), lab.on_exit)
        await until((lab.directory / "on").exists, "it has executed another program")
        program.dump_stacks()
        await until(lambda: "cannot show stacks" in shown.read_text(), "the word of it")
    assert program.pid is not None
