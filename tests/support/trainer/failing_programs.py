"""Programs that fail as people's programs do, and the message of each: the last section of docs/troubleshooting.md.

    python -m tests.support.trainer.failing_programs   # prints the section; some minutes
    python -m tests.support.trainer.failing_programs "a bare assert"    # the rows of these causes

Each program runs in a process of its own, forked from one that has imported TensorFlow. What it prints goes through the
launcher's own parser.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tftraining.launch.failure.exit import exit_of, reason_of
from tftraining.launch.failure_and_restart_messages import describe
from tftraining.launch.process.output import OutputTail
from tftraining_client.commands.advice import advice

KERASES = {"tf_keras": "import tf_keras as keras", "Keras 3": "import keras"}
SECONDS = 120

BEGIN = """
import json, os, sys
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
y = np.zeros((64, 1), "float32")

def data(*parts, batch=4):
    return tf.data.Dataset.from_tensor_slices(parts).repeat().batch(batch)

def one(path, read):  # a data set of examples made from a file
    return tf.data.Dataset.from_tensors(path).repeat().map(read).map(lambda v: (x[0] + v, y[0])).batch(4)

def model(*layers, loss="mse", **options):
    with strategy.scope():
        made = keras.Sequential([keras.Input((8,)), *(layer() for layer in layers or [lambda: keras.layers.Dense(1)])])
        made.compile("sgd", loss, **options)
    return made

def of(call):  # a model with a layer of one's own
    class Own(keras.layers.Layer):
        def call(self, t, training=None):
            return call(t)
    return [lambda: Own(), lambda: keras.layers.Dense(1)]

def fit(made, dataset, **options):
    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    made.fit(dataset.with_options(off), epochs=1, steps_per_epoch=4, verbose=0, **options)
"""

PROGRAMS = {
    "Shapes and labels": {
        "data of another shape than the model's input": "fit(model(), data(x[:, :5], y))",
        "a label outside the classes": """
labels = np.where(np.arange(64) == 2, 12, 0)
fit(model(lambda: keras.layers.Dense(10, "softmax"), loss="sparse_categorical_crossentropy"), data(x, labels))""",
        "labels that are not one-hot": """
fit(model(lambda: keras.layers.Dense(3, "softmax"), loss="categorical_crossentropy"), data(x, y))""",
        "labels that are strings": """
fit(model(loss="binary_crossentropy"), data(x, np.array([["cat"]] * 64)))""",
        "no labels": "fit(model(), data(x))",
        "one input for a model of two": """
with strategy.scope():
    a, b = keras.Input((8,)), keras.Input((8,))
    made = keras.Model([a, b], keras.layers.Dense(1)(keras.layers.Concatenate()([a, b])))
    made.compile("sgd", "mse")
fit(made, data(x, y))""",
        "arrays of unequal length": "model().fit(x, y[:50], verbose=0)",
        "an index outside an embedding": """
embedding = lambda t: tf.nn.embedding_lookup(tf.zeros((10, 8)), tf.cast(t[:, 0] * 0 + 1000, tf.int32))
fit(model(*of(embedding)), data(x, y))""",
        "a product of shapes that do not fit": "tf.matmul(tf.zeros((2, 3)), tf.zeros((4, 5)))",
        "a reshape in a tf.function": """
@tf.function(input_signature=[tf.TensorSpec((None,))])
def square(t):
    return tf.reshape(t, (3, 3))
square(tf.zeros(8))""",
        "a reshape in a model": "model(lambda: keras.layers.Reshape((3, 3)))",
    },
    "Data": {
        "a file of tf.data is missing": """
fit(model(), one("/data/train.csv", lambda p: tf.strings.to_number(tf.io.read_file(p))))""",
        "a damaged TFRecord": """
open("train.tfrecord", "wb").write(b"x" * 100)
fit(model(), tf.data.TFRecordDataset("train.tfrecord").map(lambda _: (x[0], y[0])).batch(4))""",
        "a feature is missing in a TFRecord": """
with tf.io.TFRecordWriter("train.tfrecord") as file:
    file.write(tf.train.Example().SerializeToString())
features = {"x": tf.io.FixedLenFeature((8,), tf.float32)}
records = tf.data.TFRecordDataset("train.tfrecord").map(lambda record: tf.io.parse_single_example(record, features))
fit(model(), records.map(lambda r: (r["x"], y[0])).batch(4))""",
        "a field of a CSV file": """
open("train.csv", "w").write("1,2\\n3,abc\\n")
rows = tf.data.experimental.CsvDataset("train.csv", [1.0, 1.0])
fit(model(), rows.map(lambda a, b: (x[0] + a, y[0] + b)).batch(2))""",
        "a file that is no image": """
open("cat.jpg", "w").write("this is no image")
fit(model(), one("cat.jpg", lambda p: tf.cast(tf.size(tf.io.decode_image(tf.io.read_file(p))), tf.float32)))""",
        "examples of unequal shapes in a batch": """
rows = lambda: iter([(x[0], y[0]), (x[0, :7], y[0])])
signature = (tf.TensorSpec((None,)), tf.TensorSpec((1,)))
fit(model(), tf.data.Dataset.from_generator(rows, output_signature=signature).batch(2))""",
        "a generator raises": """
def rows():
    yield x[0], y[0]
    raise ValueError("line 17 of train.csv has 7 fields, not 9")
signature = (tf.TensorSpec((8,)), tf.TensorSpec((1,)))
fit(model(), tf.data.Dataset.from_generator(rows, output_signature=signature).batch(2))""",
        "a tf.py_function raises": """
def read(row):
    raise KeyError("label")
fit(model(), data(x, y).map(lambda a, b: (tf.py_function(read, [a], tf.float32), b)))""",
        "a function of map raises": """
fit(model(), tf.data.Dataset.from_tensor_slices({"a": x}).map(lambda row: (row["a"], row["label"])).batch(4))""",
        "an empty data set": """
fit(model(), tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda a, b: False).batch(4))""",
    },
    "Types and numbers": {
        "a sum of two types": "tf.constant(1) + tf.constant(1.0)",
        "another type in a layer": "fit(model(*of(lambda t: t * tf.cast(t, tf.float64))), data(x, y))",
        "tf.debugging.enable_check_numerics": """
tf.debugging.enable_check_numerics()
fit(model(*of(lambda t: tf.math.log(-tf.abs(t)))), data(x, y))""",
        "tf.debugging.assert_greater in a layer": """
def checked(t):
    tf.debugging.assert_greater(t, 100.0, message="pixels below 100")
    return t
fit(model(*of(checked)), data(x, y))""",
        "an array in the message": 'raise ValueError(f"no image in this batch: {x}")',
        "a long list in the message": 'raise ValueError(f"bad labels {list(range(2000))} in batch 17")',
    },
    "tf.function, XLA and memory": {
        "a variable made at each call": """
@tf.function
def step(t):
    return tf.Variable(t) + 1
step(tf.constant(1.0))""",
        "a tensor as a Python bool": """
fit(model(*of(tf.autograph.experimental.do_not_convert(lambda t: t if tf.reduce_sum(t) > 0 else -t))), data(x, y))""",
        "an operation that XLA does not know": """
length = lambda t: tf.cast(tf.strings.length(tf.strings.as_string(tf.reduce_sum(t))), tf.float32)
fit(model(*of(lambda t: t * length(t)), jit_compile=True), data(x, y))""",
        "a tensor larger than the memory": """
fit(model(*of(lambda t: t * tf.reduce_sum(tf.random.uniform((1 << 22, 1 << 22)) + tf.reduce_sum(t)))), data(x, y))""",
        "a failed check of TensorFlow's C++": """
import ctypes
print("F0000 00:00:1795720604.574000   31559 tensor_shape.cc:201] Check failed: size >= 0 (-8 vs. 0)", file=sys.stderr)
ctypes.CDLL(None).abort()""",
    },
    "Models and files": {
        "a model outside the strategy's scope": """
made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
with strategy.scope():
    made.compile("sgd", "mse")
fit(made, data(x, y))""",
        "an unknown loss": 'fit(model(loss="mean_sqared_error"), data(x, y))',
        "a model that is not compiled": """
keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]).fit(x, y, verbose=0)""",
        "a setting that comes too late": "tf.config.threading.set_intra_op_parallelism_threads(2)",
        "missing weights": 'model().load_weights("/data/model.weights.h5")',
        "weights of another shape": """
model(lambda: keras.layers.Dense(4)).save_weights("model.weights.h5")
model().load_weights("model.weights.h5")""",
        "a missing model": 'keras.models.load_model("/data/model.keras")',
    },
    "Python": {
        "a callback asks for a missing metric": """
class Save(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(logs["val_loss"])
fit(model(), data(x, y), callbacks=[Save()])""",
        "a missing file": 'open("/data/train.csv")',
        "a missing module": "import nowhere_to_be_found",
        "a bare assert": "assert x.shape == (64, 9)",
        "an exception from another": """
try:
    json.loads("{")
except ValueError as error:
    raise RuntimeError("config.json cannot be read") from error""",
        "sys.exit with words": 'sys.exit("no GPU found: set --cpu")',
        "sys.exit(3) without words": "sys.exit(3)",
        "an unknown option": """
import argparse
options = argparse.ArgumentParser(prog="train.py")
options.add_argument("--epochs", type=int)
options.parse_args(["--epoch-count", "3"])""",
    },
}
CELL = str.maketrans({"|": "\\|", "`": "'"})
CAUSES = [cause for programs in PROGRAMS.values() for cause in programs]
HEAD = """## Messages of failing programs

What `status.message`, the events and `tftj` say of a program that has failed, by its cause: the line of TensorFlow's or
Keras' message that tells the cause, not the frame around it ("in user code:", "Graph execution error:"). Arrays are
cut. The whole traceback is in the log. The last column is the advice of `tftj explain`, where it has any beside the
command that submits a changed program: `tftj submit --replace -f FILE`.

`python -m tests.support.trainer.failing_programs` runs each program with both Kerases and prints this section; a
test compares it.
"""


def run(cause: str, which: str, directory: Path) -> tuple[str, str]:
    """The message of the program in a process of its own, and the advice."""
    programs = {name: text for section in PROGRAMS.values() for name, text in section.items()}
    script = directory / "train.py"
    script.write_text(f"{KERASES[which]}\n{BEGIN}\n{programs[cause]}\n", encoding="utf-8")
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        _become(script, writing)
    os.close(writing)
    tail = OutputTail()
    with os.fdopen(reading, "rb") as output:
        for line in output:
            tail.feed(2, line)
    ended = exit_of(os.waitpid(pid, 0)[1], tail.lines(), exception=tail.exception())
    return _portable(describe("worker-1", ended)), advice("Failed", "SameFailure", reason_of(ended), ended.exception)


def _become(script: Path, output: int) -> None:
    """Run the script as the interpreter would, and end."""
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, 4096)
    os.chdir(script.parent)
    tempfile.tempdir = str(script.parent)  # of AutoGraph's files, which a process that ends so does not remove
    os.environ.pop("TF_CONFIG", None)
    signal.alarm(SECONDS)
    code = 1
    try:
        runpy.run_path(str(script), run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        print(end.code if code == 1 else "", file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def _portable(message: str) -> str:
    """Without what differs between machines: addresses, allocators, places of packages."""
    message = re.sub(r"0x[0-9a-f]+", "0x…", message)
    return message.replace("mklcpu", "cpu").replace(str(Path.home()), "~")


def page() -> str:
    """The section, from runs of all programs."""
    lines = [HEAD]
    for section, programs in PROGRAMS.items():
        lines += [f"### {section}\n", "| cause | message | to try |", "|---|---|---|", *map(row, programs), ""]
    return "\n".join(lines[:-1])


def row(cause: str) -> str:
    """The row of a cause, with one message if both Kerases say the same."""
    with tempfile.TemporaryDirectory() as directory:
        found = {which: run(cause, which, Path(directory)) for which in KERASES}
    told = {which: f"`{message.translate(CELL)}`" for which, (message, _) in found.items()}
    messages = sorted({*told.values()}) if len({*told.values()}) == 1 else [f"{which}: {told[which]}" for which in told]
    return f"| {cause} | {'<br>'.join(messages)} | {found['Keras 3'][1]} |"


if __name__ == "__main__":
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tf_keras  # noqa: F401

    print("\n".join(map(row, sys.argv[1:])) if sys.argv[1:] else page())
