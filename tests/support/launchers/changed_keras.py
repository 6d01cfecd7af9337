"""Trains with changed copies of Keras, as a restarted program does, with the hooks of the launcher but without one.

The command line has the directories of the cases. Each case is forked from this process, which has imported
TensorFlow; each of its rounds is forked from the case, which has imported its copy of Keras. The first round is killed
in the second of three epochs, the second one goes on. It writes `told.json`: what each round has written to its
standard error, what it has reported, and a digest of what the last one has trained.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tftraining.launch.in_user_process import iterator_release, keras_hook
from tftraining.launch.in_user_process.memory_backup import copy_file
from tftraining.launch.in_user_process.tracker import Tracker
from tftraining.launch.process import progress_reader

EPOCHS, STEPS, KILLED_AT = 3, 40, 70


def run_round(keras: Any, place: Path, number: int) -> None:
    """One round of the program, as the launcher would start it."""
    os.dup2(os.open(place / f"stderr-{number}", os.O_WRONLY | os.O_CREAT), 2)
    memory, page = place / "memory", place / f"page-{number}"
    os.close(progress_reader.create(page))
    held = copy_file.held(str(memory))
    told = {"directory": str(memory), "percent": 100, "restore": held[-1] if held else None, "sizeLimit": 1 << 28}
    environment = {"TFTRAINING_MEMORY_BACKUP": json.dumps(told), "TFTRAINING_ROUND": str(number)}
    finished = {"uid": "u", "file": str(place / "finished"), "launcher": "l"}
    keras_hook.install(Tracker(str(page)), json.dumps(finished), environment)
    iterator_release.install()
    # In a thread, so that both rounds call `fit` with the same stack: as two starts of a program do.
    training = threading.Thread(target=train, args=(keras, place, KILLED_AT if number == 1 else 0))
    training.start()
    training.join()


def train(keras: Any, place: Path, killed_at: int) -> None:
    """Train, and note a digest of the weights. An epoch takes the whole input: to begin one again is exact."""
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(1).random((8 * STEPS, 4), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8).repeat()
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    steps = 0

    class Kill(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            nonlocal steps
            steps += 1
            if steps == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [keras.callbacks.BackupAndRestore(str(place / "backup")), Kill()]
    model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=callbacks, verbose=0)
    weights = b"".join(each.tobytes() for each in model.get_weights())
    (place / "digest").write_text(hashlib.sha256(weights).hexdigest())


def run_case(place: Path) -> None:
    case = json.loads((place / "case.json").read_text())
    sys.path.insert(0, str(place / "packages"))
    for name in [name for name in sys.modules if name.split(".")[0] == case["package"]]:
        del sys.modules[name]  # TensorFlow has imported the installed one
    keras = importlib.import_module(case["package"])
    assert str(keras.__file__).startswith(str(place))
    (place / "memory").mkdir()
    (place / "memory" / "request").write_bytes(struct.pack("<Q", 0))
    codes = [in_fork(run_round, keras, place, number) for number in (1, 2)]
    pages = [os.open(place / f"page-{number}", os.O_RDONLY) for number in (1, 2)]
    last = progress_reader.read(pages[-1])
    told = {
        "codes": codes,
        "lines": [(place / f"stderr-{number}").read_text().splitlines() for number in (1, 2)],
        "digest": (place / "digest").read_text() if (place / "digest").exists() else "",
        "progress": [last.first_step, last.step, last.epoch],
    }
    (place / "told.json").write_text(json.dumps(told))


def in_fork(function: Any, *arguments: Any) -> int:
    """Run the function in a fork of this process; how that ended."""
    child = os.fork()
    if not child:
        try:
            function(*arguments)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for directory in sys.argv[1:]:
        if in_fork(run_case, Path(directory)):
            raise SystemExit(f"the case {directory} failed")
