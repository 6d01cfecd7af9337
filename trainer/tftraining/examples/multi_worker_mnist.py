"""Train a small convolutional network on pictures of ten classes, on any number of workers, and survive their loss.

    python -m tftraining.examples.multi_worker_mnist --epochs 10

Every worker of the job runs this same program; TF_CONFIG tells each its part, and without it the program trains alone.
The batch grows with the workers, the state is backed up after every epoch into `<directory>/backup` (by the loop of its
own, --loop custom, into `<directory>/checkpoints`), and a job that is started again goes on from there, at the end too:
the backup stays until the saved model has been proved. The model is saved by all to `<directory>/model`, where only the
chief's copy counts; the chief then proves it and writes `<directory>/result.json`. It must never depend on the order in
which the workers end.

Keras is tf_keras, by that name: `fit` of Keras 3 fails under MultiWorkerMirroredStrategy with two or more workers
(keras issue 20585). `tf.keras` would do as well, but only if TF_USE_LEGACY_KERAS=1 was set before the import.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
import tf_keras as keras

from tftraining import data, machine, paths
from tftraining.callbacks import Progress, SaveEvery
from tftraining.checkpoints import State
from tftraining.cluster import Task, task_from_environment
from tftraining.data import Examples
from tftraining.journal import Journal, say
from tftraining.loop import Replica, metrics_of_training
from tftraining.mirrored import Training
from tftraining.options import (
    Defaults,
    UsageError,
    check_packages,
    make_directory,
    make_parser,
    positive,
    run_program,
)
from tftraining.pipeline import Order, as_tensors, epoch_batches
from tftraining.proof import ProofError, prove

DEFAULTS = Defaults(
    10,
    64,
    0.1,
    batch="for each worker; together they take this times their number",
    optimizer="plain gradient descent",
    steps_per_epoch=70,
)
AUTO_SHARD = {policy.name.lower(): policy for policy in tf.data.experimental.AutoShardPolicy if policy.name != "HINT"}
COMMUNICATION = {kind.name.lower(): kind for kind in tf.distribute.experimental.CommunicationImplementation}

Save = Callable[[], None]


@dataclass(frozen=True)
class Places:
    """Where a job keeps what it makes; all its processes see the same directory."""

    directory: str

    @property
    def model(self) -> str:
        """The saved model, of which each worker but the chief writes a temporary copy."""
        return str(Path(self.directory) / "model")

    @property
    def backup(self) -> str:
        """The state of an unfinished training, for BackupAndRestore."""
        return str(Path(self.directory) / "backup")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; SystemExit(2) if they are wrong."""
    parser = make_parser("multi_worker_mnist", __doc__, DEFAULTS)
    add = parser.add_argument_group("this program").add_argument
    add("--loop", choices=("fit", "custom"), default="fit", help="Keras's, or one of its own (fit)")
    add("--save-freq", type=_save_freq, default="epoch", help="how often to back up: 'epoch', or every so many steps")
    add("--save-every", type=positive, help="also save the model every so many epochs, not only at the end")
    add("--auto-shard", choices=sorted(AUTO_SHARD), default="data", help="how the workers share the data (data)")
    add("--communication", choices=sorted(COMMUNICATION), default="auto", help="of the collectives; nccl needs GPUs")
    return parser.parse_args(argv)


def _save_freq(text: str) -> str | int:
    return text if text == "epoch" else positive(text)


def check(options: argparse.Namespace, task: Task, gpus: int) -> None:
    """UsageError for options that are right by themselves but cannot work for this task on this machine."""
    if task.type not in ("chief", "worker"):
        raise UsageError(f"this program has a part for chief and workers, not for a task {task.name}")
    if options.communication == "nccl" and not gpus:
        raise UsageError("--communication nccl needs GPUs, and none is visible: take auto or ring")
    if options.loop == "custom" and options.save_freq != "epoch":
        raise UsageError("--save-freq is for the loop fit: the custom one has a checkpoint after every epoch")
    if options.loop == "custom" and options.precision == "mixed_float16":
        raise UsageError("--precision mixed_float16 is for the loop fit: take mixed_bfloat16")
    if options.loop == "fit" and options.jit and task.workers > 1:
        raise UsageError("--jit with several workers is for the loop custom: XLA cannot wait for other workers")
    if options.auto_shard == "file" and task.workers > 1:
        raise UsageError("--auto-shard file shares out files, and these data sets are in memory: take data or off")


def make_strategy(communication: str) -> tf.distribute.MultiWorkerMirroredStrategy:
    """The strategy for all workers of TF_CONFIG; it waits until every one of them is there."""
    options = tf.distribute.experimental.CommunicationOptions(implementation=COMMUNICATION[communication])
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def make_dataset(examples: Examples, options: argparse.Namespace, task: Task) -> tf.data.Dataset:
    """The training data without end, in batches for all workers together.

    Under the policy `off` each worker draws from all the data, so each has to draw in another order.
    """
    order = order_for(options, task)
    dataset = tf.data.Dataset.from_tensor_slices((examples.images, examples.labels))
    dataset = dataset.shuffle(len(examples), seed=order.seed).repeat().batch(order.batch_size)
    return sharded(dataset, options.auto_shard).prefetch(tf.data.AUTOTUNE)


def make_model(shape: tuple[int, ...], learning_rate: float, jit: bool = False) -> keras.Model:
    """The network of TensorFlow's multi-worker tutorial for images of `shape` (height, width, 1), compiled."""
    model = keras.Sequential(
        [
            keras.layers.Input(shape),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(data.CLASSES),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate),
        # Not just "accuracy": which one that is, Keras finds out at the first step, and a job that was stopped after
        # the last one saves the model without a step.
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=jit,
    )
    return model


def train(options: argparse.Namespace, task: Task, examples: Examples, journal: Journal) -> None:
    """Train to the last epoch and save. All workers do this."""
    strategy = make_strategy(options.communication)
    with strategy.scope():
        model = make_model(examples.images.shape[1:], options.learning_rate, options.jit)

    def save() -> None:
        model.save(paths.write_filepath(Places(options.directory).model, task))
        say(f"saved the model after step {int(model.optimizer.iterations.numpy())}")

    if options.loop == "fit":
        train_by_fit(options, model, make_dataset(examples, options, task), journal, save)
    else:
        train_by_hand(options, task, model, examples, journal, save)
    save()


def train_by_fit(
    options: argparse.Namespace, model: keras.Model, dataset: tf.data.Dataset, journal: Journal, save: Save
) -> None:
    """Train with Keras's own loop."""
    # The backup outlives `fit`: a worker that dies while the model is saved makes all start again, and then only the
    # saving is to be done again.
    backup = keras.callbacks.BackupAndRestore(
        Places(options.directory).backup, save_freq=options.save_freq, delete_checkpoint=False
    )
    saving = [SaveEvery(options.save_every, save)] if options.save_every else []
    model.fit(
        dataset,
        epochs=options.epochs,
        steps_per_epoch=options.steps_per_epoch,
        callbacks=[backup, Progress(journal), *saving],
        verbose=0,
    )


def train_by_hand(
    options: argparse.Namespace, task: Task, model: keras.Model, examples: Examples, journal: Journal, save: Save
) -> None:
    """Train with a loop of one's own, the whole epoch in one tf.function, with a checkpoint after each."""
    replica = Replica(model, model.optimizer, options.batch_size * task.workers, jit=options.jit)
    training = Training(model.distribute_strategy, replica)
    state = State(replica, options.directory, task)
    journal.resume(state.epoch, state.step)
    tensors = as_tensors(examples)
    for epoch in range(state.epoch, options.epochs):
        journal.begin()
        batches = sharded(epoch_batches(tensors, order_for(options, task), epoch), options.auto_shard)
        told = training.train("epoch", batches, options.steps_per_epoch)
        journal.end(epoch + 1, metrics_of_training(told, options.steps_per_epoch))
        state.save(epoch + 1)
        if options.save_every and (epoch + 1) % options.save_every == 0 and epoch + 1 < options.epochs:
            save()


def order_for(options: argparse.Namespace, task: Task) -> Order:
    """The order of the data: the same for all workers where they share them, one for each where they do not."""
    seed = options.seed + (task.index if options.auto_shard == "off" else 0)
    return Order(options.batch_size * task.workers, seed, options.steps_per_epoch)


def sharded(dataset: tf.data.Dataset, policy: str) -> tf.data.Dataset:
    """The data, to be shared out among the workers by this policy."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = AUTO_SHARD[policy]
    return dataset.with_options(options)


def finish(options: argparse.Namespace, task: Task, journal: Journal) -> None:
    """The chief's end: prove the saved model, write the result, give up the backup. ProofError if it is no good."""
    places = Places(options.directory)
    proof = prove(places.model, options.data, options.data_dir)
    say(
        f"loaded the saved model in a single process: test accuracy {proof['accuracy']:.4f},"
        f" and trained it one step more: loss {proof['loss_of_step']:.4f}"
    )
    journal.finish({"accuracy": proof["accuracy"], "loss": proof["loss"], "workers": task.workers})
    for done_with in (Path(places.backup) / "chief", Path(options.directory) / "checkpoints"):
        shutil.rmtree(done_with, ignore_errors=True)


def run(options: argparse.Namespace) -> None:
    """The whole program for one process of the job."""
    task = task_from_environment()
    check_packages(options)
    check(options, task, len(tf.config.list_physical_devices("GPU")))
    machine.prepare(options)
    examples = data.load(options.data, options.data_dir).train
    make_directory(options.directory)
    journal = Journal(options.epochs, options if task.is_chief else None)
    say(f"{task.name}: {task.workers} workers, {len(examples)} images of {options.data}, into {options.directory}")
    train(options, task, examples, journal)
    if task.is_chief:
        finish(options, task, journal)
    elif "TFTRAINING_DIR" not in os.environ:
        paths.remove_own_temporary_directory(options.directory, task)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and proved; 2 with one line for what cannot be done; 1 for a model of no use."""
    options = parse(argv)
    try:
        return run_program("multi_worker_mnist", lambda: run(options))
    except ProofError as error:
        print(f"multi_worker_mnist: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
