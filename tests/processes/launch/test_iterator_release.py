"""A program does not wait for the destructor of TensorFlow's iterator, and ends well with one that is not over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import hooks
from tftraining.launch.process import progress_reader

PATIENCE = 120.0
# The destructor waits for the function, and the function for what comes behind the destructor.
PROGRAM = """
import threading
import tensorflow as tf
called, told = threading.Event(), threading.Event()
def wait(x):
    if int(x) == 1:
        called.set()
        told.wait()
    return x
data = tf.data.Dataset.range(9).map(lambda x: tf.py_function(wait, [x], tf.int64), num_parallel_calls=2)
{prepare}
iterator = iter(data)
next(iterator)
called.wait()
del iterator
threading.Timer(1, lambda: (print("told", flush=True), told.set())).start()
print("dropped", flush=True)
"""


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param("", marks=pytest.mark.slow_fault),
        "data = tf.distribute.MirroredStrategy(['CPU:0']).experimental_distribute_dataset(data.batch(1))",
    ],
)
def test_a_program_does_not_wait_for_the_end_of_its_input(tmp_path: Path, prepare: str) -> None:
    os.close(progress_reader.create(tmp_path / "page"))
    told = {"PYTHONPATH": hooks.python_path(""), hooks.PROGRESS: str(tmp_path / "page"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", PROGRAM.format(prepare=prepare)]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["dropped", "told"]), done.stderr[-2000:]


HANDLER = """
import atexit, threading
called, told = threading.Event(), threading.Event()
atexit.register(lambda: (print("handler", flush=True), told.set()))  # what the destructor waits for
import tensorflow as tf
def wait(x):
    if int(x) == 1:
        called.set()
        told.wait()
    return x
iterator = iter(tf.data.Dataset.range(9).map(lambda x: tf.py_function(wait, [x], tf.int64), num_parallel_calls=2))
next(iterator)
called.wait()
del iterator
"""


def test_the_programs_own_exit_handlers_do_not_wait_for_the_iterators(tmp_path: Path) -> None:
    os.close(progress_reader.create(tmp_path / "page"))
    told = {"PYTHONPATH": hooks.python_path(""), hooks.PROGRESS: str(tmp_path / "page"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", HANDLER]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "handler\n"), done.stderr[-2000:]


# The destructor waits for a read of a named pipe, without Python, until the interpreter ends.
FINALIZED = """
import gc, os, sys, threading, time, types
class Last:
    def __init__(self, path):
        self.path, self.os, self.sleep = path, os, time.sleep
    def __del__(self):  # when modules die; a thread that asks for the interpreter's lock now is ended
        self.os.close(self.os.open(self.path, self.os.O_WRONLY))
        self.sleep(2)
        self.os.write(1, b"last\\n")
sys.modules["last"] = types.ModuleType("last")
sys.modules["last"].last = Last(sys.argv[1])
import tensorflow as tf
def read(x):
    return tf.io.read_file(tf.where(x == 1, sys.argv[1], os.devnull))
data = tf.data.Dataset.range(9).map(read, num_parallel_calls=2).batch(1)
iterator = iter(tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(data))
next(iterator)
del data, iterator
gc.collect()
"""


def test_a_destructor_that_comes_back_while_the_interpreter_ends_aborts_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told = {"PYTHONPATH": hooks.python_path(""), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", FINALIZED, str(tmp_path / "pipe")]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "last\n"), done.stderr[-2000:]
