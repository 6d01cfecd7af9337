"""Which variables the import of the real TensorFlow reads, and warm starts of programs that change some."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.launchers.harness import Harness
from tests.support.needed import need_or_skip
from tftraining.launch.in_user_process.late_variables import is_read_later

PATIENCE = 240.0
SOURCE = Path(__file__).with_name("getenv.c")
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
READS = """
import os, sys
read, kind = set(), type(os.environ)
original = kind.__getitem__
kind.__getitem__ = lambda self, name: (read.add(name), original(self, name))[1]
path = original(os.environ, "TESTS_GETENV")
os.truncate(path, 0)  # what the interpreter has read at its start
import tensorflow, tf_keras
print(*sorted(map(str, read)), file=open(path + "-python", "w"))
"""
SET_BY_SCIKIT_LEARN = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # to set them if they are not set is to read them


def test_the_import_of_tensorflow_reads_no_late_variable(tmp_path: Path) -> None:
    need_or_skip("gcc")
    library, told = tmp_path / "getenv.so", tmp_path / "read"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    preloaded = {**ENVIRONMENT, "LD_PRELOAD": str(library), "TESTS_GETENV": str(told), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", READS], env=preloaded, check=True, timeout=PATIENCE)
    in_c, in_python = set(told.read_text().split()), set((tmp_path / "read-python").read_text().split())
    assert {"HDF5_USE_FILE_LOCKING", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL"} <= in_c
    assert {"KERAS_BACKEND", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "HOME"} <= in_python
    assert [name for name in {*in_c, *(in_python - SET_BY_SCIKIT_LEARN)} if is_read_later(name)] == []


VARIABLES = {
    "HDF5_USE_FILE_LOCKING": "FALSE",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
CHANGES = f"where.update({VARIABLES})\n"
# Where the variables are set, in the script and in an installed package; whether the text of the script shows it.
PLACES = {
    "main": (f"import os\nwhere = os.environ\n{CHANGES}", "", True),
    "helper": ("import firm_settings", f"import os\nwhere = os.environ\n{CHANGES}", False),
    "argument": (f"import os\ndef change(where):\n    {CHANGES}change(os.environ)", "", False),
}
# What each of them does: the lock of an open file, the implementation, the threads of both pools.
SHOWS = """
import tensorflow
import os, sys, h5py, sklearn.utils.parallel, threadpoolctl
from google.protobuf.internal import api_implementation
with h5py.File(sys.argv[1], "w"):
    locked = str(os.stat(sys.argv[1]).st_ino) in open("/proc/locks").read()
pools = sorted({(pool["user_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()})
print(locked, api_implementation.Type(), pools)
"""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    await harness.close()


@pytest.mark.parametrize(
    "place", [pytest.param(name, marks=pytest.mark.slow_fault) for name in ("helper", "main", "argument")]
)
async def test_a_variable_set_before_the_import_takes_effect(harness: Harness, tmp_path: Path, place: str) -> None:
    text, helper, shown = PLACES[place]
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "firm_settings.py").write_text(helper)
    script = tmp_path / "train.py"
    script.write_text(f"{text}\n{SHOWS}")
    environment = {**ENVIRONMENT, "PYTHONPATH": str(packages), "TMPDIR": str(tmp_path)}
    program = harness.make(sys.executable, str(script), str(tmp_path / "file.h5"), warm=True)
    await program.prepare(environment)
    await program.start(environment, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert ended.lines[-1] == "False python [('blas', 1), ('openmp', 1)]"
    word = "it sets HDF5_USE_FILE_LOCKING before" if shown else "it set HDF5_USE_FILE_LOCKING before"
    assert program.mode.startswith(f"plain: {word}")


@pytest.mark.slow_fault
async def test_an_installed_package_can_choose_the_keras_backend(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    helper, script = tmp_path / "site-packages/firm_settings.py", tmp_path / "train.py"
    helper.write_text("import os\nos.environ['KERAS_BACKEND'] = 'jax'")
    script.write_text("import firm_settings, keras\nprint(keras.backend.backend())")
    environment = {**ENVIRONMENT, "PYTHONPATH": str(helper.parent), "TMPDIR": str(tmp_path)}
    program = harness.make(sys.executable, str(script), warm=True)
    await program.prepare(environment)
    await program.start(environment, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert ended.lines[-1] == "ModuleNotFoundError: No module named 'jax'", "as in a plain start: it is not installed"
    assert program.mode.startswith("plain: it set KERAS_BACKEND before")
