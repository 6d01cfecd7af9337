"""Train asynchronously with parameter servers: workers come and go, and the training goes on.

    python -m tftraining.examples.parameter_server --loop custom

The chief coordinates: it hands out steps to the workers, which read the weights from the parameter servers and write
their gradients back, without waiting for each other. A worker that dies loses the step that it was in, which another
takes over; when it is back it gets steps again. Every process of the job runs this same program and TF_CONFIG, with the
roles chief, worker and ps, tells each its part. Without TF_CONFIG the whole cluster lives in this one process.

The state is backed up into `<directory>` after every epoch, so a chief that is started again goes on from there. The
servers end when the chief has gone for good. The same seed does not give the same result twice: the workers race.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tftraining.cluster import Task, task_from_environment
from tftraining.lib.options import Defaults, UsageError, check_early, make_directory, make_parser, positive, run_program

DEFAULTS = Defaults(5, 32, 0.05, batch="for each worker", optimizer="plain gradient descent", steps_per_epoch=100)
TEST_BATCH = 500
CONNECT_TIMEOUT = 1.0  # seconds
LOOK_EVERY = 1.0  # seconds between a server's checks of the chief

Cluster = dict[str, list[str]]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = make_parser("parameter_server", __doc__, DEFAULTS)
    add = parser.add_argument_group("this program").add_argument
    add("--loop", choices=("fit", "custom"), default="fit", help="the fit of Keras, or a custom training loop (fit)")
    add("--workers", type=positive, default=2, metavar="N", help="workers in this process, without TF_CONFIG (2)")
    add("--ps", type=positive, default=1, metavar="N", help="parameter servers in this process, without TF_CONFIG (1)")
    add("--shard-variables", action="store_true", help="shard each large variable across all parameter servers")
    add(
        "--linger",
        type=positive,
        default=20,
        metavar="SECONDS",
        help="seconds after which a server ends when the chief has ended (20)",
    )
    return parser.parse_args(argv)


def check(options: argparse.Namespace, task: Task, cluster: Cluster) -> None:
    """UsageError for a cluster or options that do not work with parameter servers."""
    missing = [role for role in ("chief", "worker", "ps") if not cluster.get(role)]
    if missing:
        raise UsageError(f"TF_CONFIG has no {missing[0]}: this program needs a chief, workers and a ps")
    if task.type not in cluster:
        raise UsageError(f"this program supports the roles chief, worker and ps, not {task.name}")
    if options.jit:
        raise UsageError("--jit is not supported: the variables are on other machines, where XLA cannot reach them")
    if options.profile_steps and options.loop == "fit":
        raise UsageError("--profile-steps needs --loop custom: fit does not tell which step a worker has completed")
    if options.precision == "mixed_float16" and options.loop == "custom":
        raise UsageError("--precision mixed_float16 needs one loss scale for all workers: choose mixed_bfloat16")


def part_of_cluster(options: argparse.Namespace) -> tuple[Task, Cluster]:
    """This process's task and the cluster, which is empty without TF_CONFIG; UsageError from `check`."""
    task = task_from_environment()
    cluster: Cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    check(options, task, cluster or {"chief": [""], "worker": [""], "ps": [""]})
    return task, cluster


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("parameter_server", parse(None), part_of_cluster)

import tensorflow as tf
import tf_keras as keras

from tftraining.lib import data, device_setup
from tftraining.lib.callbacks import LogEpochs, callback
from tftraining.lib.checkpoints import State, restored
from tftraining.lib.data import Data, Examples
from tftraining.lib.input_pipeline import endless_batches, order_of, plain_batches
from tftraining.lib.train_step import TrainStep, evaluate, metrics_of_test, metrics_of_training
from tftraining.lib.training_log import TrainingLog, say


def serve(task: Task, cluster: Cluster, linger: float) -> NoReturn:
    """Serve the chief until it has been gone for `linger` seconds; then end the process."""
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=task.type, task_index=task.index)
    say(f"{task.name}: serving at {server.target}")
    wait_for_the_end(lambda: answers(cluster["chief"][0]), linger, time.monotonic, time.sleep)
    say(f"{task.name}: the chief has gone")
    # TensorFlow cannot shut a server down: the server's destructor waits for ever for calls of the chief.
    os._exit(0)


def wait_for_the_end(
    present: Callable[[], bool], linger: float, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Return once `present` was true and then false for `linger` seconds."""
    seen: float | None = None
    while seen is None or now() - seen < linger:
        if present():
            seen = now()
        sleep(LOOK_EVERY)


def answers(address: str) -> bool:
    """Whether a server listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT):
            return True
    except OSError:
        return False


def local_cluster(workers: int, servers: int) -> tuple[Cluster, list[Any]]:
    """A cluster of servers in this process, on free ports; the servers live as long as the list."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers + servers)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    cluster = {"worker": addresses[:workers], "ps": addresses[workers:]}
    # At least two threads: a worker's server waits in one and trains in another.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(workers + 1, 4))
    spec = tf.train.ClusterSpec(cluster)
    tasks = [(role, index) for role, members in cluster.items() for index in range(len(members))]
    return cluster, [tf.distribute.Server(spec, job_name=r, task_index=i, config=config) for r, i in tasks]


def make_strategy(cluster: Cluster, shard_variables: bool) -> tf.distribute.ParameterServerStrategy:
    """The strategy for the chief of `cluster`; waits until every server has connected."""
    part = {"task_type": "chief", "task_id": 0} if "chief" in cluster else {}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc", **part
    )
    partitioner = None
    if shard_variables:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(1024, max_shards=len(cluster["ps"]))
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def make_model(shape: tuple[int, ...], options: argparse.Namespace) -> keras.Model:
    """A perceptron for images of `shape` (height, width, 1), compiled; small, as its weights travel in each step."""
    model = keras.Sequential(
        [
            keras.layers.Input(shape),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(data.CLASSES),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(options.learning_rate),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    return model


def worker_batches(examples: Examples, options: argparse.Namespace) -> tf.data.Dataset:
    """The training data of one worker; each start of a worker begins at another position of the endless data."""
    place = tf.cast(tf.timestamp() * 1e6, tf.int64) % (len(examples) * 2**20)
    return endless_batches(examples, order_of(options, 1), place)


def make_test(model: keras.Model, examples: Examples) -> Callable[[], dict[str, float]]:
    """A function that measures the loss and accuracy on the test data.

    The workers share the batches. A batch of a worker that dies is given to another one, so each counts once.
    """
    strategy = model.distribute_strategy
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)  # the one of `fit`, if it has one
    test_step = TrainStep(model, None, batch_size=1).test
    step = tf.function(lambda images, labels: strategy.run(test_step, args=(images, labels)))
    batches = list(plain_batches(examples, TEST_BATCH))

    def test() -> dict[str, float]:
        tallies = [coordinator.schedule(step, args=batch) for batch in batches]
        coordinator.join()
        return metrics_of_test(tf.add_n([each.fetch() for each in tallies]))

    return test


def train_by_fit(options: argparse.Namespace, model: keras.Model, examples: Data, training_log: TrainingLog) -> None:
    """Train with Keras's own loop, which schedules the steps on the workers by itself."""
    backup = keras.callbacks.BackupAndRestore(str(Path(options.directory) / "backup"), delete_checkpoint=False)
    model.fit(
        keras.utils.experimental.DatasetCreator(lambda _: worker_batches(examples.train, options)),
        epochs=options.epochs,
        steps_per_epoch=options.steps_per_epoch,
        callbacks=[backup, callback(keras, LogEpochs, training_log, make_test(model, examples.test))],
        verbose=0,
    )


def train_by_hand(options: argparse.Namespace, model: keras.Model, examples: Data, training_log: TrainingLog) -> None:
    """Train with a custom loop: schedule the steps of an epoch, wait for all of them, sum their tallies."""
    strategy = model.distribute_strategy
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
        train_step = TrainStep(model, model.optimizer, options.batch_size)
        state = State(train_step, options.directory)
    step = tf.function(lambda batches: strategy.run(train_step.train, args=next(batches)))
    batches = iter(coordinator.create_per_worker_dataset(lambda: worker_batches(examples.train, options)))
    test = make_test(model, examples.test)
    training_log.weights = model.trainable_variables
    training_log.start(state.epoch, state.step, options.steps_per_epoch)
    for epoch in range(state.epoch, options.epochs):
        training_log.begin()
        tallies = [coordinator.schedule(step, args=(batches,)) for _ in range(options.steps_per_epoch)]
        coordinator.join()
        metrics = metrics_of_training(tf.add_n([each.fetch() for each in tallies]), options.steps_per_epoch)
        training_log.end(epoch + 1, metrics | test())
        state.save(epoch + 1)


def taken_out(model: keras.Model, alone: keras.Model, directory: str) -> keras.Model:
    """`alone`, built without a strategy, with the weights of `model`; by a checkpoint, as weights may be sharded."""
    path = tf.train.Checkpoint(model=model).write(str(Path(directory) / "weights"))
    return restored(alone, path)


def coordinate(options: argparse.Namespace, cluster: Cluster) -> None:
    """Run the chief: train, copy the weights out of the cluster, measure them in this process."""
    examples = data.load(options.data, options.data_dir)
    make_directory("parameter_server", options, "data", "loop", "shard_variables", "precision")
    tf.get_logger().setLevel("INFO")  # TensorFlow logs the loss and the return of a worker
    strategy = make_strategy(cluster, options.shard_variables)
    workers, servers = len(cluster["worker"]), len(cluster["ps"])
    say(f"{len(examples.train)} images of {options.data}, {workers} workers, {servers} ps, into {options.directory}")
    training_log = TrainingLog(options.epochs, options)
    shape = examples.train.images.shape[1:]
    with strategy.scope():
        model = make_model(shape, options)
    (train_by_fit if options.loop == "fit" else train_by_hand)(options, model, examples, training_log)
    alone = taken_out(model, make_model(shape, options), options.directory)
    alone.save(str(Path(options.directory) / "model"))
    measured = evaluate(alone, plain_batches(examples.test, TEST_BATCH))
    training_log.finish({"accuracy": measured["test_accuracy"], "loss": measured["test_loss"], "workers": workers})


def run(options: argparse.Namespace) -> None:
    """Run the whole program for one process of the job."""
    task, cluster = part_of_cluster(options)
    device_setup.prepare(options, ordered=False)
    if not cluster:
        cluster, _servers = local_cluster(options.workers, options.ps)
        coordinate(options, cluster)
        return
    if task.type == "chief":
        coordinate(options, cluster)
    else:
        serve(task, cluster, options.linger)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2, with one line, for a request that cannot be fulfilled."""
    return run_program("parameter_server", parse(argv), run)


if __name__ == "__main__":
    sys.exit(main())
