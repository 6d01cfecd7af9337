"""A training by `fit` whose input and random numbers depend on the step alone, and which kills itself where it is told.

Killed or not, it has to end with the same bytes in every variable. In the job's directory each worker keeps a line for
every step that it makes in `steps-<worker>`, and its variables at the end in `end-<worker>`. With a file
`no-pause` there, the steps have no pause.
"""

from __future__ import annotations

# BatchNormalization has other moving averages in each worker.
# KILLS has `<worker>@<step>` for each kill.
PROGRAM = """
import json, os, signal, time
import numpy as np
import tensorflow as tf
import tf_keras as keras
{devices}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
directory = os.environ["TFTRAINING_DIR"]
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
def example(index):
    x = tf.random.stateless_normal([8], tf.stack([index, 7]))
    return x, tf.reduce_sum(x, keepdims=True)
data = tf.data.Dataset.range(100_000).map(example).batch({batch}).repeat()
with strategy.scope():
    layers = keras.layers
    middle = [layers.Dense({width}), layers.{normalization}(), layers.Dropout({dropout})]
    model = keras.Sequential([layers.Input((8,)), *middle, layers.Dense(1)])
    model.compile("adam", "mse")
class Follow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        with open(f"{{directory}}/steps-{{task}}", "a") as file:
            file.write(f"{{step}}\\n")
        if not os.path.exists(f"{{directory}}/no-pause"):
            time.sleep({pause})
        for order in os.environ.get("KILLS", "").split():
            worker, at = map(int, order.split("@"))
            done = f"{{directory}}/killed-{{order}}"
            if worker == task and step >= at and not os.path.exists(done):
                open(done, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
backup = keras.callbacks.BackupAndRestore(f"{{directory}}/backup")
model.fit(data, epochs={epochs}, steps_per_epoch={steps}, callbacks=[backup, Follow()], verbose=0)
state = [*model.variables, *model.optimizer.variables]
if "{fails}" and task == 0 and not os.path.exists(f"{{directory}}/failed"):
    open(f"{{directory}}/failed", "w").close()
    raise RuntimeError("after fit")
parts = [part.numpy() for each in state for part in strategy.experimental_local_results(each)]
with open(f"{{directory}}/end-{{task}}", "wb") as file:
    file.write(b"".join(part.tobytes() for part in parts))
"""
DEFAULTS = {
    "width": "16",
    "epochs": "3",
    "steps": "100",
    "pause": "0.005",
    "fails": "",
    "devices": "",
    "normalization": "BatchNormalization",
    "batch": "8",
    "dropout": "0",
}


def program(**changes: str) -> str:
    """The text of the program."""
    return PROGRAM.format(**{**DEFAULTS, **changes})
