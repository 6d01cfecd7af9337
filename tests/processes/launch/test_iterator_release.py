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
# An iterator of which an element waits for a named pipe, and with it the iterator's destructor.
READ = """
import os, sys, time
import tensorflow as tf
def read(x):
    return tf.io.read_file(tf.where(x == 1, sys.argv[1], os.devnull))
def opened():  # for writing, once the iterator reads
    while True:
        try:
            return os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
data = tf.data.Dataset.range(9).map(read, num_parallel_calls=2)
{prepare}
iterator = iter(data)
next(iterator)
pipe = opened()
"""
DISTRIBUTE = "data = tf.distribute.MirroredStrategy(['CPU:0']).experimental_distribute_dataset(data.batch(1))"
# The pipe is closed behind the destructor.
PROGRAM = """
import threading
threading.Timer(1, lambda: (print("told", flush=True), os.close(pipe))).start()
del iterator
print("dropped", flush=True)
"""


def run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the hooks; its argument is a named pipe."""
    os.mkfifo(tmp_path / "pipe")
    os.close(progress_reader.create(tmp_path / "page"))
    told = {"PYTHONPATH": hooks.python_path(""), hooks.PROGRESS: str(tmp_path / "page"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", program, str(tmp_path / "pipe")]
    return subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param("", marks=pytest.mark.slow_fault),
        DISTRIBUTE,
    ],
)
def test_a_program_does_not_wait_for_the_end_of_its_input(tmp_path: Path, prepare: str) -> None:
    done = run(tmp_path, READ.format(prepare=prepare) + PROGRAM)
    assert (done.returncode, done.stdout.split()) == (0, ["dropped", "told"]), done.stderr[-2000:]


# What somebody may notice while an iterator lives: each says "ended" when that is over.
NOTICED = {
    "generator": """
def generate():
    try:
        yield from range(9)
    finally:
        print("ended")
data = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64))
""",
    "python": """
began = threading.Event()
def wait(x):
    if int(x):
        began.set()
        time.sleep(0.5)
        print("ended")
    return x
data = tf.data.Dataset.range(2).interleave(
    lambda x: tf.data.Dataset.from_tensors(x).map(lambda x: tf.py_function(wait, [x], tf.int64)), cycle_length=1)
data = data.prefetch(1)
drop = began.wait
""",
    "cache": """
data = tf.data.Dataset.range(9).cache(sys.argv[1] + "-cache")
print("ended")
""",
}


@pytest.mark.parametrize("noticed", NOTICED)
def test_an_iterator_whose_end_may_be_noticed_has_ended_when_the_program_goes_on(tmp_path: Path, noticed: str) -> None:
    begin = f"import glob, sys, threading, time\nimport tensorflow as tf\ndrop = int\n{NOTICED[noticed]}"
    end = (
        'iterator = iter(data)\nnext(iterator)\ndrop()\ndel iterator\nprint(glob.glob(sys.argv[1] + "-*"), "dropped")\n'
    )
    done = run(tmp_path, begin + end)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["ended", "[] dropped"]), done.stderr[-2000:]


HANDLER = """
import atexit
def end():  # what the destructor waits for
    print("handler", flush=True)
    os.close(pipe)
atexit.register(end)
"""


def test_the_programs_own_exit_handlers_do_not_wait_for_the_iterators(tmp_path: Path) -> None:
    done = run(tmp_path, HANDLER + READ.format(prepare="") + "del iterator")
    assert (done.returncode, done.stdout) == (0, "handler\n"), done.stderr[-2000:]


# The pipe is closed without Python, while the interpreter ends.
FINALIZED = """
import gc, os, sys, time, types
class Last:
    def __init__(self):
        self.close, self.write, self.sleep = os.close, os.write, time.sleep
    def __del__(self):  # when modules die; a thread that asks for the interpreter's lock now is ended
        self.close(self.pipe)
        self.sleep(2)
        self.write(1, b"last\\n")
sys.modules["last"] = types.ModuleType("last")
sys.modules["last"].last = Last()
"""
FORGOTTEN = """
sys.modules["last"].last.pipe = pipe
del data, iterator
gc.collect()
"""


def test_a_destructor_that_comes_back_while_the_interpreter_ends_aborts_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, FINALIZED + READ.format(prepare=DISTRIBUTE) + FORGOTTEN)
    assert (done.returncode, done.stdout) == (0, "last\n"), done.stderr[-2000:]
