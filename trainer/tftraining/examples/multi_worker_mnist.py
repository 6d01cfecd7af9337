"""Train a small convolutional network on pictures of ten classes, on any number of workers, and survive their loss.

    python -m tftraining.examples.multi_worker_mnist --epochs 10

Every worker of the job runs this same program; TF_CONFIG tells each its part, and without it the program trains alone.
The batch grows with the workers, the state is backed up after every epoch into `<directory>/backup` (by the loop of its
own, --loop custom, into `<directory>/checkpoints`), and a job that is started again goes on from there, at the end too:
the backup stays until the saved model has been proved. The model is saved by all to `<directory>/model`, where only the
chief's copy counts; the chief then proves it and writes `<directory>/result.json`. With --keep-checkpoints a job may
have a side-car evaluator, which measures each checkpoint on the test data. The program must never depend on the order
in which the workers end.

Keras is Keras 3 with --keras 3, as in the manifests, and otherwise tf_keras, by that name: without a launcher, `fit` of
Keras 3 fails under MultiWorkerMirroredStrategy with two or more workers (keras issue 20585). --loop custom needs none.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining.cluster import Task, task_from_environment
from tftraining.lib.options import (
    Defaults,
    UsageError,
    add_schedule,
    check_accumulation,
    check_early,
    make_directory,
    make_parser,
    positive,
    run_program,
)

DEFAULTS = Defaults(
    10,
    64,
    0.1,
    batch="for each worker; the global batch is this times the number of workers",
    optimizer="plain gradient descent",
    steps_per_epoch=70,
)
AUTO_SHARD = ("auto", "data", "file", "off")  # names of TensorFlow's AutoShardPolicy, in lower case
KERAS = {"legacy": "tf_keras", "3": "keras"}
TEST_BATCH = 500
COMMUNICATION = ("auto", "nccl", "ring")  # names of TensorFlow's CommunicationImplementation


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = make_parser("multi_worker_mnist", __doc__, DEFAULTS)
    group = parser.add_argument_group("this program")
    add_schedule(group)
    add = group.add_argument
    add("--loop", choices=("fit", "custom"), default="fit", help="the fit of Keras, or a custom training loop (fit)")
    add("--keras", choices=sorted(KERAS), default="legacy", help="Keras 3 (behind launchers) or tf_keras (legacy)")
    add("--save-freq", type=_save_freq, default="epoch", help="when to back up: each 'epoch', or every N steps")
    add("--keep-checkpoints", action="store_true", help="keep a checkpoint of every epoch, for an evaluator")
    add(
        "--validation-steps",
        type=_steps_or_all,
        default=0,
        metavar="STEPS",
        help="batches of the test data to evaluate after each epoch, or 'all' (none)",
    )
    add("--save-every", type=positive, help="also save the model every N epochs, not only at the end")
    add("--auto-shard", choices=AUTO_SHARD, default="data", help="how the data are sharded among the workers (data)")
    add(
        "--records",
        type=positive,
        metavar="FILES",
        help="read the training data from so many TFRecord files in DIRECTORY/records, written first if missing",
    )
    add(
        "--data-service",
        metavar="HOST:PORT",
        help="share one tf.data service among the workers, which reads and shuffles the --records",
    )
    add(
        "--communication",
        choices=COMMUNICATION,
        default="auto",
        help="implementation of the collectives; nccl needs GPUs",
    )
    add(
        "--gpus-each",
        type=positive,
        metavar="N",
        help="GPUs per worker on a machine that all workers share; default: all",
    )
    return parser.parse_args(argv)


def _steps_or_all(text: str) -> int:
    return -1 if text == "all" else positive(text)  # as Dataset.take counts


def _save_freq(text: str) -> str | int:
    return text if text == "epoch" else positive(text)


def check(options: argparse.Namespace, task: Task, gpus: int | None) -> None:
    """UsageError for valid options that cannot work for this task or with `gpus` GPUs.

    `gpus` is None while the number is unknown.
    """
    if task.type not in ("chief", "worker", "evaluator"):
        raise UsageError(f"this program supports the roles chief, worker and evaluator, not {task.name}")
    if task.type == "evaluator" and not options.keep_checkpoints:
        raise UsageError("an evaluator needs checkpoints: set --keep-checkpoints for all roles")
    if options.communication == "nccl" and gpus == 0:
        raise UsageError("--communication nccl needs GPUs, but none is visible: choose auto or ring")
    if options.loop == "custom" and options.precision == "mixed_float16":
        raise UsageError("--precision mixed_float16 needs --loop fit: choose mixed_bfloat16")
    if options.loop == "fit" and options.jit and task.workers > 1:
        raise UsageError("--jit with several workers needs --loop custom: XLA cannot wait for other workers")
    if options.auto_shard == "file" and task.workers > (options.records or 1):
        raise UsageError(
            f"--auto-shard file needs a file for each worker, and these data sets are in memory: set --records"
            f" {task.workers} at least, or choose data or off"
        )
    if options.records and options.loop == "custom":
        raise UsageError("--records needs --loop fit: the custom loop computes the order of the data, in memory")
    if options.data_service and not options.records:
        raise UsageError("--data-service needs --records, the files that its servers read")
    if options.accumulate > 1 and options.loop == "fit":
        raise UsageError("--accumulate needs --loop custom: fit computes the gradients of a batch at once")
    check_accumulation(options)


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("multi_worker_mnist", parse(None), lambda options: check(options, task_from_environment(), None))

import tensorflow as tf
import tf_keras

from tftraining import paths
from tftraining.lib import data, device_setup
from tftraining.lib.callbacks import LogEpochs, ProfileSteps, SaveEvery, callback
from tftraining.lib.checkpoints import State, checkpoints_of
from tftraining.lib.custom_loop import Training
from tftraining.lib.data import Examples
from tftraining.lib.data_service import served
from tftraining.lib.evaluator import Evaluator, measure_with
from tftraining.lib.input_pipeline import Order, as_tensors, endless_batches, plain_batches, sharded
from tftraining.lib.record_files import read_records, write_records
from tftraining.lib.schedule import learning_rate
from tftraining.lib.train_step import TrainStep, metrics_of_training
from tftraining.lib.training_log import TrainingLog, say
from tftraining.lib.verify_model import VerificationError, verify

MOST_STEPS = 10  # of one tf.function, where the state is copied into memory between them

Save = Callable[[], None]


@dataclass(frozen=True)
class Places:
    """The paths of a job's output; all processes of the job see the same directory."""

    directory: str
    keras: str = "legacy"

    @property
    def model(self) -> str:
        """The path of the saved model; each worker but the chief writes a temporary copy."""
        return str(Path(self.directory) / ("model.keras" if self.keras == "3" else "model"))

    @property
    def backup(self) -> str:
        """The path of the state of an unfinished training, for BackupAndRestore."""
        return str(Path(self.directory) / "backup")


def make_strategy(communication: str) -> tf.distribute.MultiWorkerMirroredStrategy:
    """The strategy for all workers in TF_CONFIG; waits until every worker has connected."""
    kind = tf.distribute.experimental.CommunicationImplementation[communication.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def make_dataset(examples: Examples, options: argparse.Namespace, task: Task) -> tf.data.Dataset:
    """The endless training data, in batches for all workers together.

    Under the policy `off`, each worker draws from all the data, so each needs an order of its own.
    """
    order = order_for(options, task)
    if options.records:
        folder = Path(options.directory) / "records"
        write_records(examples, folder, options.records)
        dataset = read_records(folder, examples.images.shape[1:])
    else:
        dataset = tf.data.Dataset.from_tensor_slices((examples.images, examples.labels))
    dataset = dataset.shuffle(len(examples), seed=order.seed).repeat().batch(order.batch_size)
    if options.data_service:
        # All workers draw from the batches of one job of the service. Another training needs another job, or the two
        # would divide the data of one of them; so does another size of the batch.
        owner = os.environ.get("TFTRAINING_JOB_UID", "") + os.path.realpath(options.directory)
        dataset = served(dataset, options.data_service, f"{owner}-{order.batch_size}")
        return sharded(dataset, "off").prefetch(tf.data.AUTOTUNE)
    return sharded(dataset, options.auto_shard).prefetch(tf.data.AUTOTUNE)


def make_network(shape: tuple[int, ...], keras: Any = tf_keras) -> Any:
    """The network of TensorFlow's multi-worker tutorial, from images of `shape` (height, width, 1) to logits."""
    return keras.Sequential(
        [
            keras.layers.Input(shape),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(data.CLASSES),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )


def make_model(shape: tuple[int, ...], rate: Any, jit: bool = False, keras: Any = tf_keras) -> Any:
    """The network, compiled; `rate` is a learning rate or a schedule."""
    model = make_network(shape, keras)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(rate),
        # Not "accuracy": Keras resolves that name at the first step, and a job that was stopped after its last step
        # saves the model without taking one.
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=jit,
    )
    return model


def validation_batches(examples: Examples, options: argparse.Namespace) -> tf.data.Dataset | None:
    """The test data of each evaluation, in batches for all workers together; None without --validation-steps."""
    batches = plain_batches(examples, TEST_BATCH).take(options.validation_steps)
    # Not by --auto-shard: the test data are in memory, and `fit` counts the batches of all workers together, so that
    # under the policy `off` it would leave out all but the first part of each.
    return sharded(batches, "data") if options.validation_steps else None


def train(options: argparse.Namespace, task: Task, examples: data.Data, training_log: TrainingLog) -> None:
    """Train to the last epoch and save. All workers must call this."""
    strategy = make_strategy(options.communication)
    keras = keras_of(options)
    with strategy.scope():
        rate = learning_rate(options, options.epochs * options.steps_per_epoch, keras)
        model = make_model(examples.train.images.shape[1:], rate, options.jit, keras)

    def save() -> None:
        model.save(paths.write_filepath(Places(options.directory, options.keras).model, task))
        say(f"saved the model after step {int(model.optimizer.iterations.numpy())}")

    batch_size = options.batch_size * task.workers
    train_step = TrainStep(model, model.optimizer, batch_size, jit=options.jit, accumulate=options.accumulate)
    if options.loop == "fit":
        state = State(train_step, options.directory, task, resume=False) if options.keep_checkpoints else None
        datasets = make_dataset(examples.train, options, task), validation_batches(examples.test, options)
        train_by_fit(options, model, datasets, training_log, callbacks_of(options, save, state))
        if state is not None:
            state.save(options.epochs)
    else:
        train_by_hand(options, task, Training(strategy, train_step), examples, training_log, save)
    save()


def callbacks_of(options: argparse.Namespace, save: Save, state: State | None) -> list[Any]:
    """The callbacks that save during `fit`."""
    keras, saving = keras_of(options), []
    if options.save_every:
        saving.append(callback(keras, SaveEvery, options.save_every, lambda epoch: save()))
    return saving if state is None else [*saving, callback(keras, SaveEvery, 1, state.save)]


def train_by_fit(
    options: argparse.Namespace,
    model: Any,
    datasets: tuple[tf.data.Dataset, tf.data.Dataset | None],
    training_log: TrainingLog,
    callbacks: Sequence[Any],
) -> None:
    """Train with Keras's own loop, on the first of the datasets; the second is for the validation."""
    # The backup outlives `fit`: if a worker dies while the model is saved, all workers restart, and need to repeat only
    # the saving.
    keras = keras_of(options)
    backup = keras.callbacks.BackupAndRestore(
        Places(options.directory).backup, save_freq=options.save_freq, delete_checkpoint=False
    )
    dataset, validation = datasets
    profiling = [callback(keras, ProfileSteps, training_log)] if options.profile_steps else []
    model.fit(
        dataset,
        epochs=options.epochs,
        steps_per_epoch=options.steps_per_epoch,
        validation_data=validation,
        callbacks=[backup, callback(keras, LogEpochs, training_log), *profiling, *callbacks],
        shuffle=False,  # Keras 3 warns that it cannot
        verbose=0,
    )


def train_by_hand(
    options: argparse.Namespace,
    task: Task,
    training: Training,
    examples: data.Data,
    training_log: TrainingLog,
    save: Save,
) -> None:
    """Train with a custom loop, with a checkpoint after each epoch, or also every --save-freq steps."""
    state = State(training.train_step, options.directory, task)
    training_log.weights = training.train_step.model.trainable_variables
    training_log.start(state.epoch, state.step, options.steps_per_epoch)
    order, validation = order_for(options, task), validation_batches(examples.test, options)
    tests = training.distributed(validation) if validation is not None else None
    start = (state.epoch * options.steps_per_epoch + state.place) * order.batch_size
    batches = endless_batches(as_tensors(examples.train), order, start)
    iterator = training.begin(sharded(batches, options.auto_shard))
    for epoch in range(state.epoch, options.epochs):
        training_log.begin()
        tallies = train_epoch(options, training, iterator, state, training_log)
        tested = training.test(tests) if tests is not None else {}
        training_log.end(epoch + 1, metrics_of_training(tallies, options.steps_per_epoch) | tested)
        state.save(epoch + 1)
        if options.save_every and (epoch + 1) % options.save_every == 0 and epoch + 1 < options.epochs:
            save()
    state.done()


def train_epoch(
    options: argparse.Namespace,
    training: Training,
    iterator: tf.distribute.DistributedIterator,
    state: State,
    training_log: TrainingLog,
) -> tf.Tensor:
    """Train to the end of the epoch of `state`, with checkpoints between tf.functions; the sum of the tallies."""
    tallies, done = state.tallies, state.place
    begin, most = state.epoch * options.steps_per_epoch, MOST_STEPS if state.in_memory else None
    for end, saves in ends_of_parts(begin + done, begin + options.steps_per_epoch, options.save_freq, most):
        tallies += training.take(iterator, end - begin - done)
        done = end - begin
        if done < options.steps_per_epoch:
            training_log.reach(end)
            (state.save if saves else state.reach)(state.epoch, done, tallies)
    return tallies


def ends_of_parts(begin: int, end: int, save_freq: str | int, most: int | None = None) -> Iterator[tuple[int, bool]]:
    """The steps after `begin` at which a tf.function ends, and whether a checkpoint is saved there.

    `end` is always the last one; no part has more than `most` steps, if that is given.
    """
    done = begin
    while done < end:
        save = (done // save_freq + 1) * save_freq if isinstance(save_freq, int) else end
        done = min(save, end, done + (most or end - begin))
        yield done, done == save


def evaluate(options: argparse.Namespace, examples: Examples) -> None:
    """Run the evaluator: measure each new checkpoint, up to the last."""
    model = make_network(examples.images.shape[1:], keras_of(options))
    measure = measure_with(model, plain_batches(examples, TEST_BATCH))
    last = Evaluator(options.directory, options.epochs, measure, options.logdir).follow()
    say(f"result: epochs={options.epochs} accuracy={last['test_accuracy']:.4f} loss={last['test_loss']:.4f}")


def keras_of(options: argparse.Namespace) -> Any:
    """The Keras module of --keras."""
    return importlib.import_module(KERAS[options.keras])


def order_for(options: argparse.Namespace, task: Task) -> Order:
    """The order of the data: the same for all workers if they share the data, otherwise one per worker."""
    alone = options.auto_shard == "off" and not options.data_service
    seed = options.seed + (task.rank if alone else 0)
    return Order(options.batch_size * task.workers, seed, options.steps_per_epoch)


def export(places: Places) -> None:
    """Write the SavedModel `model` from the `.keras` file, the only format that `save` of Keras 3 has."""
    model = importlib.import_module("keras").models.load_model(places.model)
    model.export(str(Path(places.directory) / "model"), verbose=False)


def finish(options: argparse.Namespace, task: Task, training_log: TrainingLog) -> None:
    """Verify the saved model, export it, write the result, delete the backup (chief only).

    VerificationError for a model that cannot be used.
    """
    places = Places(options.directory, options.keras)
    verified = verify(places.model, options.data, options.data_dir)
    say(
        f"loaded the saved model in a single process: test accuracy {verified['accuracy']:.4f},"
        f" and trained it one step more: loss {verified['loss_of_step']:.4f}"
    )
    if options.keras == "3":
        export(places)
    training_log.finish({"accuracy": verified["accuracy"], "loss": verified["loss"], "workers": task.workers})
    if not options.keep_checkpoints:
        done_with = Path(places.backup) if options.keras == "3" else Path(places.backup) / "chief"
        for each in (done_with, Path(checkpoints_of(options.directory))):
            shutil.rmtree(each, ignore_errors=True)


def run(options: argparse.Namespace) -> None:
    """Run the whole program for one process of the job."""
    task = task_from_environment()
    check(options, task, device_setup.take_gpus(options.gpus_each, task.rank))
    device_setup.prepare(options, keras=keras_of(options))
    loaded = data.load(options.data, options.data_dir)
    make_directory("multi_worker_mnist", options, "data", "loop", "keras", "precision", "records")
    if task.type == "evaluator":
        evaluate(options, loaded.test)
    else:
        take_part(options, task, loaded)


def take_part(options: argparse.Namespace, task: Task, examples: data.Data) -> None:
    """Run the chief or a worker."""
    training_log = TrainingLog(options.epochs, options if task.is_chief else None)
    say(
        f"{task.name}: {task.workers} workers, {len(examples.train)} images of {options.data}, into {options.directory}"
    )
    train(options, task, examples, training_log)
    if task.is_chief:
        finish(options, task, training_log)
    elif "TFTRAINING_DIR" not in os.environ:
        paths.remove_own_temporary_directory(options.directory, task)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and verified; 2, with one line, for an impossible request; 1 for an unusable model."""
    try:
        return run_program("multi_worker_mnist", parse(argv), run)
    except VerificationError as error:
        print(f"multi_worker_mnist: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
