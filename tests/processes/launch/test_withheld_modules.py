"""What the warm interpreter has imported is the program's from its own import on, if the environment is as it was.

TensorFlow is a stand-in that tells what C finds in the environment; the real one is in test_late_variables.py.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.support.launchers.harness import Lab, alive, children_of, until

TENSORFLOW = "import ctypes; seen = ctypes.CDLL(None).getenv; seen.restype = ctypes.c_char_p; seen = seen(b'{}')"
# What the text of the program does not show: a package that is installed, another name for the environment, C.
HIDDEN = {
    "an installed package": ("import helper", "import os\nos.environ['{}'] = '1'"),
    "a function's argument": ("import os\ndef change(where):\n    where['{}'] = '1'\nchange(os.environ)", ""),
    "an alias in another module": ("import helper\nhelper.env['{}'] = '1'", "from os import environ as env"),
    "a bound method": ("import os\nchange = os.environ.setdefault\nchange('{}', '1')", ""),
    "C": ("import ctypes\nctypes.CDLL(None).setenv(b'{}', b'1', 1)", ""),
}
ANEW = "it set {} before importing TensorFlow; restarting it without the warm interpreter"


def hide(lab: Lab, way: str, variable: str, then: str = "") -> None:
    """A script that sets the variable in this way, leaves a mark each time it does, and imports TensorFlow."""
    text, helper = (each.format(variable) for each in HIDDEN[way])
    place = lab.directory / "site-packages"
    place.mkdir()
    (place / "helper.py").write_text(helper)
    lab.extra["PYTHONPATH"] = f"{lab.modules}:{place}"
    lab.tensorflow(TENSORFLOW.format(variable))
    lab.script(f"{text}\nopen('begun', 'a').write('x')\n{then}\nimport tensorflow\nprint(tensorflow.seen)")


@pytest.mark.parametrize("way", HIDDEN)
async def test_a_variable_set_in_an_installed_package_needs_a_plain_start(lab: Lab, way: str) -> None:
    hide(lab, way, "TF_X")
    program = await lab.prepared()
    for number in range(2):
        assert (await lab.go(program)).lines == ("b'1'",)
        assert program.mode == f"plain: {ANEW.format('TF_X')}"
        assert (lab.work / "begun").read_text() == "x" * (number + 2), "twice the first time, then plainly at once"
    assert children_of(os.getpid()) == [], "the warm interpreter is of no use any more"


@pytest.mark.parametrize(
    "variable",
    [
        "HDF5_USE_FILE_LOCKING",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
        "OPENBLAS_NUM_THREADS",
        "OMP_NUM_THREADS",
        "KERAS_BACKEND",
        "HOME",
        "A_VARIABLE_OF_ITS_OWN",
    ],
)
async def test_a_change_of_any_variable_needs_a_plain_start(lab: Lab, variable: str) -> None:
    hide(lab, "an installed package", variable)
    assert (await lab.go(await lab.prepared())).lines == ("b'1'",)
    assert lab.programs[0].mode == f"plain: {ANEW.format(variable)}"


@pytest.mark.parametrize("variable", ["TF_CONFIG", "TFTRAINING_X", "WANDB_MODE", "NCCL_DEBUG", "PYTHONHASHSEED"])
async def test_late_variables_may_be_set(lab: Lab, variable: str) -> None:
    hide(lab, "an installed package", variable)
    await lab.go(await lab.prepared())
    assert lab.programs[0].mode == "warm"
    assert (lab.work / "begun").read_text() == "x"


async def test_child_processes_do_not_outlive_the_restart_as_a_plain_start(lab: Lab) -> None:
    started = "import subprocess\nprint(subprocess.Popen(['setsid', 'sleep', '600']).pid, file=open('pids', 'a'))"
    hide(lab, "C", "TF_X", started)
    assert (await lab.go(await lab.prepared())).lines == ("b'1'",)
    pids = [int(pid) for pid in (lab.work / "pids").read_text().split()]
    assert len(pids) == 2
    await until(lambda: not any(map(alive, pids)), "the end of what it has started")


async def test_a_killed_program_is_not_started_again(lab: Lab) -> None:
    wait = f"import os, time\nprint(file=open({str(lab.directory / 'on')!r}, 'w'))\ntime.sleep(600)"
    hide(lab, "C", "TF_X", wait)
    program = await lab.prepared()
    await program.start(lab.environment(), lab.on_exit)
    await until((lab.directory / "on").exists, "it runs")
    await program.terminate()
    await lab.end(program)
    await asyncio.sleep(0.3)
    assert program.pid is None
    assert (lab.work / "begun").read_text() == "x"


async def test_a_child_process_that_sets_a_variable_is_only_warned(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    lab.tensorflow("")
    lab.script(
        "import os\nif not os.fork():\n    change = os.environ.update\n    change(TF_X='1')\n"
        "    import tensorflow, tf_keras\n    os._exit(3)\nprint(os.wait()[1] >> 8)"
    )
    # The warning goes to stderr: its place among the lines of stdout is open.
    assert "3" in (await lab.go(await lab.prepared())).lines
    assert lab.programs[0].mode == "warm"
    await lab.close()
    assert capfd.readouterr().err.count("tftraining: TF_X was changed after TensorFlow read it") == 1


SEES = """
import importlib.util, os, sys
shown = [name for name in sys.modules if name.partition(".")[0] in ("tensorflow", "tf_keras", "shared", "alone")]
spec = importlib.util.find_spec("tensorflow")
print(shown, spec.name, spec.origin, spec.submodule_search_locations, "tensorflow" in sys.modules)
print(os.environ.get("TF_OWN"))
from tensorflow.inner import deep
import tensorflow, shared, alone
print(os.environ.get("TF_OWN"))
print(deep.__name__, tensorflow.inner.deep is deep, tensorflow.__spec__.loader, tensorflow.__spec__.origin)
print(shared.count, sys.modules["tensorflow.inner"] is tensorflow.inner, importlib.reload(deep) is deep)
"""


async def test_the_import_system_looks_as_in_a_plain_start(lab: Lab) -> None:
    own = "import os, alone, shared\nshared.count += 1\nos.environ['TF_OWN'] = '1'"
    files = {"__init__.py": own, "inner/__init__.py": "", "inner/deep.py": ""}
    (lab.modules / "tensorflow.py").unlink()
    for name, text in files.items():
        path = lab.modules / "tensorflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (lab.modules / "shared.py").write_text("count = 0")
    (lab.modules / "alone.py").write_text("")
    lab.script(SEES)
    shown = []
    for warm in (False, True):
        program = lab.make("python", "script.py", warm=warm)
        await program.prepare(lab.environment())
        ended = await lab.go(program)
        assert ended.code == 0
        assert (program.mode == "warm") == warm
        shown.append([line.replace(" at 0x", "").rpartition("<")[0] or line for line in ended.lines])
    assert shown[0] == shown[1]
    assert shown[0][0].startswith("[] tensorflow")


async def test_modules_that_are_never_imported_are_finalized(lab: Lab) -> None:
    lab.tensorflow("import atexit, sys\natexit.register(lambda: print('tensorflow' in sys.modules))")
    lab.script("print('ran')")
    assert (await lab.go(await lab.prepared())).lines == ("ran", "True")
    assert lab.programs[0].mode == "warm"
