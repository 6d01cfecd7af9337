"""Verify a saved model: a single process loads it, measures it on the test data, and trains it one step.

    python -m tftraining.lib.verify_model --model DIRECTORY --data digits

This is a separate program, because a user of the model has neither the strategy, which still ties the training process
to its peers, nor the GPU memory, all of which that process may hold. The program must never write to the model. The
last line of its output is JSON: {"accuracy", "loss", "loss_of_step"}.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tftraining.lib import data
from tftraining.lib.options import DATA_SETS

TIMEOUT = 600  # seconds; loading and one step take a few


class VerificationError(Exception):
    """The saved model could not be loaded, measured or trained."""


def verify(model: str, name: str, directory: str | None) -> dict[str, float]:
    """Run this module on the saved `model` in a process without TF_CONFIG and GPUs; its measurements.

    VerificationError if the process fails.
    """
    command = [sys.executable, "-m", "tftraining.lib.verify_model", "--model", model, "--data", name]
    command += ["--data-dir", directory] if directory is not None else []
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
        measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, IndexError, ValueError) as error:
        raise VerificationError(f"a single process cannot use the saved model {model}: {error}") from error
    return measured


def main(argv: Sequence[str] | None = None) -> int:
    """Load the model, measure it, train it one step, print the measurements."""
    parser = argparse.ArgumentParser(
        prog="tftraining.lib.verify_model", description="Load a saved model and train it one step."
    )
    parser.add_argument("--model", required=True, help="saved model: a directory, or a .keras file of Keras 3")
    parser.add_argument("--data", choices=DATA_SETS, default="digits")
    parser.add_argument("--data-dir", help="folder with the gzipped IDX files")
    arguments = parser.parse_args(argv)
    examples = data.load(arguments.data, arguments.data_dir)

    # Check the arguments before this slow import.
    keras = importlib.import_module("keras" if arguments.model.endswith(".keras") else "tf_keras")
    model = keras.models.load_model(arguments.model)
    loss, accuracy = model.evaluate(examples.test.images, examples.test.labels, batch_size=256, verbose=0)
    step = model.train_on_batch(examples.train.images[:64], examples.train.labels[:64], return_dict=True)
    print(json.dumps({"accuracy": float(accuracy), "loss": float(loss), "loss_of_step": float(step["loss"])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
