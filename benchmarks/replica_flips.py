"""Flips single bits of one replica's variables in a real training, and counts which of them the comparison of the
replicas finds.

`python -m benchmarks.replica_flips --flips 500 [--replicas 4] [--keras keras] [--how custom]` trains with as many
devices as replicas, in one process, with the copies, digests and summaries that a program makes beside a launcher, and
judges them as the chief's launcher does. Each flip hits a value, a bit and a replica at random, and lies above the
tolerance if it changes the value by more than a thousandth of the norm of its cell. Behind each flip all replicas get
the values of before. `--cost` measures a digest and a summary beside a copy instead. The last line is JSON.
"""

import argparse
import importlib
import json
import math
import mmap
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tftraining
from tftraining.launch.gang.replica_values import ReplicaSummary, compare, digests_of, summary_of
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_report, copy_request
from tftraining.launch.in_user_process.memory_backup.replica_digest import CELLS, TOLERANCE, ReplicaDigests
from tftraining.launch.process import progress_reader

HOOKS = Path(tftraining.__file__).parent / "launch" / "in_user_process" / "pythonpath"
EPOCH = 10_000  # steps
COST_VARIABLES, COST_TIMES = 20, 15
COPIES = 4  # behind a flip, in which it may be found


class Store:
    """The launcher's side of the store."""

    def __init__(self, place: Path) -> None:
        self._place, self._read = place, -1

    def report(self) -> tuple[int, list[str], ReplicaSummary | None] | None:
        """Step, digests and summary of a copy that was not read before."""
        try:
            told = json.loads((self._place / copy_report.NAME).read_text())
        except OSError:
            return None
        digests = digests_of(told.get("digests"))
        if not digests or max(digests) <= self._read:
            return None
        self._read = max(digests)
        return self._read, list(digests[self._read]), summary_of(told.get("summary"))

    def ask(self, step: int) -> None:
        """Ask for a summary of the copy of this step, or of the first one behind it."""
        with (self._place / copy_request.NAME).open("r+b") as file:
            file.seek(copy_request.SUMMARY)
            file.write(copy_request.STEP.pack(step))


class Flips:
    """The flips of one training. Call `step` behind each step."""

    def __init__(self, variables: list[Any], parts: Any, weights: int, store: Store, told: argparse.Namespace) -> None:
        self._numpy, self._tensorflow = sys.modules["numpy"], sys.modules["tensorflow"]
        self._variables = [(each, parts(each)) for each in variables if each.dtype.name == "float32"]
        self._all = [(each, parts(each)) for each in variables]
        self._weights = weights  # the first ones
        self._store, self._draw, self._wanted = store, random.Random(told.seed), told.flips
        self._seconds, self._end_at = told.seconds, math.inf
        self._flip: dict[str, Any] | None = None
        self.counts: Counter[str] = Counter()
        self.missed: list[str] = []
        values = sum(each.shape.num_elements() for each in variables)
        self.length = -(-values * len(self._variables[0][1]) // CELLS)

    def step(self) -> bool:
        """Whether enough flips above the tolerance were made."""
        found = self._store.report()
        if self._flip is None:
            if 0 < self._wanted <= self.counts["above"] or time.monotonic() > self._end_at:
                return True
            if found is not None:
                self._end_at = min(self._end_at, time.monotonic() + self._seconds)  # the first copy begins it
                self.counts["comparisons"] += 1
                self.counts["false alarms"] += len(set(found[1])) > 1
                if self._wanted:
                    self._begin(found[0])
        else:
            self._flip["steps"] += 1
            if found is not None:
                self._look(*found)
            elif self._flip["steps"] > 400:
                self._end("no copy: the loss is no number")
        return False

    def _begin(self, step: int) -> None:
        numpy, draw = self._numpy, self._draw
        number = draw.randrange(len(self._variables))
        variable, parts = self._variables[number]
        kind = "weights" if number < self._weights else "optimizer"
        replica = draw.randrange(len(parts))
        value = parts[replica].numpy()
        flat = value.reshape(-1)
        place, bit = draw.randrange(flat.size), draw.randrange(32)
        begin = place // self.length * self.length
        norm = float(numpy.linalg.norm(flat[begin : begin + self.length].astype("float64")))
        before = float(flat[place])
        flat.view("uint32")[place] ^= numpy.uint32(1 << bit)
        change = abs(float(flat[place]) - before)
        above = not change <= TOLERANCE * norm + 1e-30 * self.length
        self._flip = {
            "name": variable.name,
            "replica": replica,
            "bit": bit,
            "kind": f"{kind} above" if above else "below",
            "steps": 0,
            "copies": 0,
            "unequal": {},
            "what": f"bit {bit} of {variable.name}: {before} changes by {change}, norm {norm}",
            "saved": [part[0].numpy() for _, part in self._all],
        }
        self.counts["flips"] += 1
        self.counts["above"] += above
        self.counts[self._flip["kind"]] += 1
        self._assign(parts[replica], value)

    def _look(self, step: int, digests: list[str], summary: ReplicaSummary | None) -> None:
        assert self._flip is not None
        self._flip["copies"] += 1
        groups: dict[str, list[tuple[str, int]]] = {}
        for number, digest in enumerate(digests):
            groups.setdefault(digest, []).append(("worker-0", number))
        unequal = self._flip["unequal"]
        if len(groups) > 1:
            if not unequal:
                self._flip["digest"] = self._flip["copies"]
                self._store.ask(step)
            unequal[step] = groups
        told = unequal.get(summary.step) if summary else None
        verdict = compare(told, {"worker-0": summary}, several=False) if summary and told else None
        if verdict is not None:
            self._end(self._judge(verdict.words) if verdict.differs else "within the tolerance")
        elif self._flip["copies"] >= COPIES:
            self._end("not found")

    def _judge(self, words: str) -> str:
        assert self._flip is not None
        if self._flip["name"] not in words:
            return "found in another variable"
        named = f"replica {self._flip['replica']} of worker-0 holds other values than the rest" in words
        return "found and named" if named else "found"

    def _end(self, how: str) -> None:
        assert self._flip is not None
        kind = self._flip["kind"]
        self.counts[f"{kind}: {how}"] += 1
        self.counts[f"{kind}: digests differ in the first copy"] += self._flip.get("digest") == 1
        self.counts[f"{kind}: within two copies"] += "found" in how and "not" not in how and self._flip["copies"] <= 2
        if kind != "below" and how != "found and named":
            self.missed.append(f"{how}: replica {self._flip['replica']}, {self._flip['what']}")
        for (_, parts), value in zip(self._all, self._flip["saved"], strict=True):
            for part in parts:
                self._assign(part, value)
        self._flip = None
        self._store.ask(0)

    def _assign(self, part: Any, value: Any) -> None:
        self._tensorflow.raw_ops.AssignVariableOp(resource=part.handle, value=self._numpy.array(value))


def program(arguments: argparse.Namespace) -> None:
    """The training, with the hooks of a program that a launcher has started."""
    tensorflow = importlib.import_module("tensorflow")
    cpu = tensorflow.config.list_physical_devices("CPU")[0]
    devices = [tensorflow.config.LogicalDeviceConfiguration()] * arguments.replicas
    tensorflow.config.set_logical_device_configuration(cpu, devices)
    keras = importlib.import_module(arguments.keras)
    keras.utils.set_random_seed(1)
    strategy = tensorflow.distribute.MirroredStrategy()
    with strategy.scope():
        layers = keras.layers
        middle = [layers.Dense(arguments.width, "relu"), layers.BatchNormalization(), layers.Dense(64, "relu")]
        model = keras.Sequential([layers.Input((64,)), *middle, layers.Dropout(0.1), layers.Dense(1)])
        optimizer = keras.optimizers.Adam()
        model.compile(optimizer, "mse", metrics=["mae"])
        optimizer.build(model.trainable_variables)
    held = model.trainable_variables + (optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
    variables = [each if isinstance(each, tensorflow.Variable) else each.value for each in held]
    variables = [each for each in variables if each.shape.rank or each.dtype.name != "float32"]
    store, parts = Store(Path(arguments.store)), strategy.experimental_local_results
    weights = len(model.trainable_variables)
    flips = Flips(variables, parts, weights, store, arguments)

    def examples(index: Any) -> Any:
        x = tensorflow.random.stateless_normal([24, 64], tensorflow.stack([tensorflow.cast(index, "int32"), 7]))
        return x, tensorflow.reduce_sum(x, 1, keepdims=True)

    if arguments.how == "fit":
        data = tensorflow.data.Dataset.range(EPOCH).map(examples).repeat()

        class Flip(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if flips.step():
                    self.model.stop_training = True

        model.fit(data, epochs=1000, steps_per_epoch=EPOCH, callbacks=[Flip()], verbose=0)
    else:

        @tensorflow.function  # type: ignore[untyped-decorator]
        def train(index: Any) -> None:
            def replica() -> None:
                x, y = examples(index)
                with tensorflow.GradientTape() as tape:
                    loss = tensorflow.reduce_mean((model(x, training=True) - y) ** 2)
                trained = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))

            strategy.run(replica)

        backup = tftraining.MemoryBackup(tensorflow.train.Checkpoint(model=model, optimizer=optimizer))
        step = backup.restore(0)
        while not flips.step():
            train(tensorflow.constant(step))
            step += 1
            backup.step(step)
    told = {name: getattr(arguments, name) for name in ("seed", "replicas", "keras", "how")}
    told |= {"cell": flips.length, **dict(sorted(flips.counts.items())), "missed": flips.missed}
    print(json.dumps(told), flush=True)


def cost() -> dict[str, dict[str, float]]:
    """The milliseconds of a copy into a file in memory, and of its digest and its summary: medians."""
    numpy, told = importlib.import_module("numpy"), {}
    for size in (5, 76, 530):
        shape = (size * 1_000_000 // (4 * COST_VARIABLES * 1000), 1000)
        held = [numpy.random.default_rng(1).normal(size=shape).astype("float32") for _ in range(COST_VARIABLES)]
        width = held[0].nbytes
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            os.posix_fallocate(file.fileno(), 0, COST_VARIABLES * width)
            buffer = mmap.mmap(file.fileno(), COST_VARIABLES * width)
            views = [
                numpy.frombuffer(buffer, "float32", held[0].size, place * width).reshape(shape)
                for place in range(COST_VARIABLES)
            ]
            replicas = ReplicaDigests([(f"variable-{place}", [view]) for place, view in enumerate(views)])
            parts: dict[str, Callable[[], object]] = {
                "copy": lambda held=held, views=views: [*map(numpy.copyto, views, held)],  # type: ignore[misc]
                "digest": replicas.digests,
                "summary": replicas.summary,
            }
            seconds: dict[str, list[float]] = {name: [] for name in parts}
            for _ in range(COST_TIMES):
                for name, part in parts.items():
                    begin = time.perf_counter()
                    part()
                    seconds[name].append(time.perf_counter() - begin)
        told[f"{size} MB"] = {name: round(1000 * statistics.median(each), 2) for name, each in seconds.items()}
    return told


def main() -> int:
    """Start the training as a launcher does; its exit code."""
    arguments = parse()
    if arguments.cost:
        print(json.dumps(cost()))
        return 0
    if arguments.store:
        program(arguments)
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store, tempfile.TemporaryDirectory() as place:
        (Path(store) / copy_request.NAME).write_bytes(struct.pack("<QQ", 0, 0))
        page = Path(place) / "page"
        os.close(progress_reader.create(page))
        told = {"directory": store, "percent": 100, "restore": None, "waitSteps": 10, "uid": "flips"}
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HOOKS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TMPDIR": place,
            "TFTRAINING_PROGRESS": str(page),
            "TFTRAINING_ROUND": "1",
            copy_file.VARIABLE: json.dumps(told),
        }
        command = [sys.executable, "-m", "benchmarks.replica_flips", *sys.argv[1:], "--store", store]
        return subprocess.run(command, env=environment, check=False).returncode


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flips", type=int, default=100, help="above the tolerance; 0: only compare")
    parser.add_argument("--seconds", type=float, default=300.0, help="end with fewer flips then")
    parser.add_argument("--seed", type=int, default=1, help="of what is flipped")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--keras", choices=("keras", "tf_keras"), default="keras")
    parser.add_argument("--how", choices=("fit", "custom"), default="fit")
    parser.add_argument("--width", type=int, default=256, help="of the first layer")
    parser.add_argument(
        "--cost", action="store_true", help="measure what a digest and a summary cost, and flip nothing"
    )
    parser.add_argument("--store", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
