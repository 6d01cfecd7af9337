"""A program starts plainly, with the reason, where a fork of the warm interpreter would not be as a plain start.

TensorFlow is a stand-in that imports a package which an image has, `firm`, and one that it has not, `optional`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.launchers.harness import Lab, children_of

TENSORFLOW = """
import firm, space.inner.leaf, sqlite3
try:
    import optional
except ImportError:
    optional = None
"""
SHOWS = "import tensorflow\nprint(tensorflow.firm.WHOSE, getattr(tensorflow.optional, 'WHOSE', None))\n"
REFUSED = "plain: it changed {} before importing TensorFlow; restarting it without the warm interpreter"


def module(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.py").write_text(text)


@pytest.fixture
def image(lab: Lab) -> Lab:
    """An image with the packages of the site, and a program with others."""
    lab.tensorflow(TENSORFLOW)
    module(lab.directory / "site-packages", "firm", "WHOSE = 'site'")
    module(lab.modules / "space/inner", "leaf", "")  # a namespace package within one
    module(lab.work / "vendor", "firm", "WHOSE = 'own'")
    module(lab.work / "more", "optional", "WHOSE = 'own'")
    module(lab.work / "helpers", "helper", "")
    lab.extra["PYTHONPATH"] = f"{lab.modules}:{lab.directory / 'site-packages'}"
    return lab


FINDER = "class Finder:\n    def find_spec(self, name, path=None, target=None): return None\n"
STUB = "import sys, types\nstub = types.SimpleNamespace(WHOSE='own')\n"
CHANGES = {
    "its own packages first": (
        "import sys\nsys.path[:0] = ['vendor']\nimport firm\n",
        "own None",
        "the search for firm",
    ),
    "its own packages alone": ("import sys\nsys.path[2:3] = ['vendor']\n", "own None", "the search for firm"),
    "a package that the image lacks": (
        "import sys\nsys.path.append('more')\n",
        "site own",
        "the search for optional",
    ),
    "a query": (
        "import sys, importlib.util\nsys.path[:0] = ['vendor']\nprint(importlib.util.find_spec('firm').origin[-14:])\n",
        "vendor/firm.py\nown None",
        "the search for firm",
    ),
    "an upgrade": (
        "import os, sys\nwhere = sys.path[2] + '/firm.py'\nopen(where + '.new', 'w').write('WHOSE = \"newer\"')\n"
        "os.replace(where + '.new', where)\n",
        "newer None",
        "the search for firm",
    ),
    "an import hook": (f"import sys\n{FINDER}sys.meta_path.insert(0, Finder())\n", "site None", "sys.meta_path"),
    "a path hook": (
        "import sys\ndef hook(path): raise ImportError\nsys.path_hooks.insert(0, hook)\n",
        "site None",
        "sys.path_hooks",
    ),
    "a module of its own": (f"{STUB}sys.modules['firm'] = stub\n", "own None", "sys.modules['firm']"),
    "an optional module of its own": (f"{STUB}sys.modules['optional'] = stub\n", "site own", "sys.modules['optional']"),
    "a module of the standard library": (
        f"{STUB}sys.modules['sqlite3'] = stub\n",
        "site None",
        "sys.modules['sqlite3']",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_program_that_changes_what_is_imported_is_started_plainly(image: Lab, name: str) -> None:
    text, shown, changed = CHANGES[name]
    image.script(text + SHOWS)
    program = await image.prepared()
    assert "\n".join((await image.go(program)).lines) == shown
    assert program.mode == REFUSED.format(changed)


HARMLESS = {
    "nothing": "",
    "a directory of helpers": "import sys\nsys.path.insert(0, 'helpers')\nimport helper\n",
    "a file beside it": "open('notes.py', 'w').close()\n",
    "a finder for what nobody finds": f"import sys\n{FINDER}sys.meta_path.append(Finder())\n",
    "a package of the image": "import firm, sqlite3\n",
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_a_program_that_changes_nothing_of_it_starts_warm(image: Lab, name: str) -> None:
    image.script(HARMLESS[name] + SHOWS)
    program = await image.prepared()
    assert (await image.go(program)).lines == ("site None",)
    assert program.mode == "warm"


async def test_a_module_beside_the_script_that_tensorflow_would_import_is_seen_before_the_start(image: Lab) -> None:
    shutil.copy(image.work / "more/optional.py", image.work)
    image.script(SHOWS)
    program = await image.prepared()
    assert (await image.go(program)).lines == ("site own",)
    assert program.mode == "plain: its directory has a module optional, which TensorFlow would import if it could"


SITE = "sitecustomize or a .pth file"
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='agent', daemon=True).start()"
STARTS = {
    "a thread": (THREAD, "a thread that runs before it (agent) would not exist in a fork"),
    "an unnamed thread": (
        "import _thread, time\n_thread.start_new_thread(lambda: time.sleep(600), ())\ntime.sleep(0.2)",
        "a thread that runs before it (unnamed) would not exist in a fork",
    ),
    "a process": (
        "import subprocess, sys\nagent = subprocess.Popen(['sleep', '5'])",
        f"{SITE} started a process, which would not be a child of a fork",
    ),
    "a timer": (
        "import signal\nsignal.signal(signal.SIGPROF, lambda *_: None)\nsignal.setitimer(signal.ITIMER_PROF, 100)",
        f"{SITE} started a timer, which would not exist in a fork",
    ),
    "a file": (
        "log = open(__file__)",
        f"{SITE} opened {{directory}}/agent/sitecustomize.py, which all rounds would share",
    ),
    "a trace": (
        "import sys\nsys.setprofile(lambda *_: None)",
        f"{SITE} traces the interpreter, and with it the import of TensorFlow",
    ),
    "a variable": ("import os\nos.environ['RANK'] = '1'", f"{SITE} set RANK"),
    "a variable less": ("import os\ndel os.environ['TF_CONFIG']", f"{SITE} set TF_CONFIG"),
    "what changes": (
        "import os\nTASK = os.environ.get('TF_CONFIG')",
        "sitecustomize contains TF_CONFIG, which may differ from round to round",
    ),
    "a seed": (
        "import random\nrandom.seed(1)",
        "sitecustomize contains seed(, which may differ from round to round",
    ),
}


@pytest.mark.parametrize("name", STARTS)
async def test_what_starts_with_the_interpreter_needs_a_plain_start(lab: Lab, name: str) -> None:
    text, reason = STARTS[name]
    module(lab.directory / "agent", "sitecustomize", text)
    lab.extra["PYTHONPATH"] = f"{lab.directory / 'agent'}:{lab.modules}"
    lab.script("import tensorflow, sys\nprint('ran')")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("ran",)
    assert program.mode == f"plain: {reason.format(directory=lab.directory)}"
    await program.close()
    assert children_of(os.getpid()) == []


async def test_a_thread_of_the_import_needs_a_plain_start(lab: Lab) -> None:
    lab.tensorflow(THREAD)
    lab.script("import tensorflow, threading\nprint(len(threading.enumerate()))")
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("2",)
    assert program.mode == "plain: a thread that runs before it (agent) would not exist in a fork"


async def test_a_sitecustomize_that_leaves_nothing_behind_starts_warm(lab: Lab) -> None:
    text = "import atexit, signal, sys, warnings\nsignal.signal(signal.SIGUSR2, lambda *_: print('signal'))\n"
    text += "atexit.register(print, 'end')\nwarnings.simplefilter('ignore')\nsys.path.append('/nowhere')\n"
    module(lab.directory / "agent", "sitecustomize", text)
    lab.extra["PYTHONPATH"] = f"{lab.directory / 'agent'}:{lab.modules}"
    lab.script(
        "import os, signal, sys, warnings, tensorflow\nos.kill(os.getpid(), signal.SIGUSR2)\n"
        "print(sys.path[-1], warnings.filters[0][0])"
    )
    program = await lab.prepared()
    assert (await lab.go(program)).lines == ("signal", "/nowhere ignore", "end")
    assert program.mode == "warm"
