"""The common command-line options of the example programs, and their exit codes.

All programs share the names of the options, with defaults of their own. This module must never import TensorFlow or
numpy: programs check their options before these slow imports.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tftraining.cluster import TFConfigError
from tftraining.paths import is_url

MARK = ".tftraining-program"  # a file in a job's directory that names the program that owns it
DATA_SETS = ("digits", "mnist", "fashion_mnist")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
STYLES = ("dataset", "iterator", "epoch")  # of tftraining.lib.custom_loop
SCHEDULES = ("constant", "cosine")  # of tftraining.lib.schedule


class UsageError(ValueError):
    """A request that cannot be fulfilled; the message is one line."""


@dataclass(frozen=True)
class Defaults:
    """The defaults of one program; `batch` and `optimizer` are texts for its --help."""

    epochs: int
    batch_size: int
    learning_rate: float
    batch: str
    optimizer: str
    steps_per_epoch: int | None = None


def make_parser(program: str, description: str | None, defaults: Defaults) -> argparse.ArgumentParser:
    """A parser with the common options; its help shows the first line of `description` (a docstring)."""
    parser = argparse.ArgumentParser(prog=program, description=(description or "").splitlines()[0])
    _add_training(parser.add_argument_group("training"), defaults)
    _add_data(parser.add_argument_group("data"))
    _add_output(parser.add_argument_group("output"), program)
    _add_machine(parser.add_argument_group("machine"))
    return parser


def _add_training(group: argparse._ArgumentGroup, defaults: Defaults) -> None:
    add, steps = group.add_argument, defaults.steps_per_epoch
    add("--epochs", type=positive, default=defaults.epochs, help="number of epochs (default %(default)s)")
    add(
        "--steps-per-epoch",
        type=positive,
        default=steps,
        metavar="STEPS",
        help=f"default {steps or 'one pass over the data'}",
    )
    add(
        "--batch-size",
        type=positive,
        default=defaults.batch_size,
        metavar="IMAGES",
        help=f"batch size {defaults.batch} (default %(default)s)",
    )
    add(
        "--learning-rate",
        type=positive_number,
        default=defaults.learning_rate,
        metavar="RATE",
        help=f"learning rate of {defaults.optimizer} (default %(default)s)",
    )
    add("--seed", type=int, default=1, help="random seed of the weights and the order of the data (default 1)")


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        choices=DATA_SETS,
        default="digits",
        help="data set (default digits, which needs no download)",
    )
    group.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="folder with the gzipped IDX files of mnist or fashion_mnist, instead of a download",
    )


def _add_output(group: argparse._ArgumentGroup, program: str) -> None:
    own = f"training-output/{program}"
    default = os.environ.get("TFTRAINING_DIR", own)
    group.add_argument(
        "--directory",
        type=local_path,
        metavar="FOLDER",
        default=default,
        help=f"directory for checkpoints and the result (default $TFTRAINING_DIR, otherwise {own})",
    )
    group.add_argument("--plot", metavar="FILE.png", help="plot loss and accuracy")
    group.add_argument("--logdir", metavar="FOLDER", help="write logs for TensorBoard, with histograms of the weights")
    group.add_argument(
        "--profile-steps",
        type=_span,
        metavar="10:20",
        help="profile the steps between these two into --logdir; where one tf.function has many steps, all of them",
    )


def _add_machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="mixed_*: 16-bit computations, 32-bit weights"
    )
    group.add_argument("--jit", action="store_true", help="compile with XLA")
    group.add_argument("--memory-growth", action="store_true", help="allocate GPU memory on demand, not all at once")


def add_schedule(group: argparse._ArgumentGroup) -> None:
    """Add the options of the learning rate and of the gradients of a Keras optimizer."""
    group.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="constant",
        help="learning rate over the training: constant, or a cosine down to 0 (constant)",
    )
    group.add_argument(
        "--warmup-steps",
        type=positive,
        default=0,
        metavar="STEPS",
        help="first raise the learning rate from 0 over so many steps (none)",
    )
    group.add_argument(
        "--scale-learning-rate",
        action="store_true",
        help="in proportion to the workers that train, if the gang has fewer than all (linear scaling rule)",
    )
    group.add_argument(
        "--accumulate",
        type=positive,
        default=1,
        metavar="PARTS",
        help="compute the gradients of a batch in so many parts, one after the other, to save memory (1)",
    )


def is_checkpoint(path: str) -> bool:
    """Whether the path is a checkpoint, such as `<directory>/best/weights` of another run."""
    return Path(f"{path}.index").is_file()


def check_weights(weights: str) -> None:
    """UsageError if there are no such weights."""
    if weights not in ("none", "imagenet") and not Path(weights).is_file() and not is_checkpoint(weights):
        raise UsageError(f"no weights file {weights}: choose another, imagenet or none")


def check_accumulation(options: argparse.Namespace) -> None:
    """UsageError if the batch cannot be divided by --accumulate."""
    if options.batch_size % options.accumulate:
        raise UsageError(f"--batch-size {options.batch_size} is not a multiple of --accumulate {options.accumulate}")


def add_devices(group: argparse._ArgumentGroup) -> None:
    """Add the options that choose the devices of one process."""
    group.add_argument(
        "--logical-devices", type=positive, metavar="N", help="split the CPU into N logical devices, and use no GPU"
    )
    group.add_argument(
        "--devices", type=_indexes, metavar="0,2", help="train on these of the GPUs, or of the logical devices (all)"
    )


def _indexes(text: str) -> list[int]:
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text} must be different numbers of devices, such as 0,2")
    return [int(number) for number in numbers]


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise argparse.ArgumentTypeError(f"{text} must be two numbers of steps, the smaller one first, such as 10:20")
    return int(first), int(last)


def positive(text: str) -> int:
    """A number from 1 up."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 1")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be a number above 0")
    return value


def local_path(text: str) -> str:
    """A path on this machine or in a mounted volume."""
    if is_url(text):
        raise argparse.ArgumentTypeError(
            f"{text} is a URL: this program needs a mounted directory (programs for a bucket: docs/storage.md)"
        )
    return text


def check_packages(options: argparse.Namespace) -> None:
    """UsageError if an option needs a missing package or option; checked before the training, not at its end."""
    if options.profile_steps and not options.logdir:
        raise UsageError("--profile-steps needs --logdir, the folder for the profile")
    for given, package, option in ((options.plot, "matplotlib", "--plot"), (options.logdir, "tensorboard", "--logdir")):
        if given and find_spec(package) is None:
            raise UsageError(f"{option} needs the package {package}: pip install {package}")


def make_directory(program: str, options: argparse.Namespace, *deciding: str) -> None:
    """Create the job's directory if it is missing, and mark it with the program that owns it.

    `deciding` are the names of the options that change the saved state. UsageError if the directory is not writable, or
    holds the work of another program or of other values of these options: TensorFlow would silently restore the parts
    that match and initialize the rest.
    """
    folder = Path(options.directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the directory {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write to the directory {folder}")
    # A round trip through JSON turns tuples into lists, as in the mark.
    own = json.loads(json.dumps({"program": program, **{name: getattr(options, name) for name in deciding}}))
    there = _read_mark(folder / MARK)
    if there is None:
        write_atomically(folder / MARK, json.dumps(own) + "\n")
    elif different := [name for name in own if name in there and there[name] != own[name]]:
        raise UsageError(f"{folder} holds the work of {_words(there, different)}: choose another --directory")


def _read_mark(path: Path) -> dict[str, object] | None:
    """The content of the mark; None if it is missing (as from an earlier version) or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _words(mark: dict[str, object], different: list[str]) -> str:
    if "program" in different:
        return str(mark["program"])
    given = " ".join(f"--{name.replace('_', '-')} {_shown(mark[name])}" for name in different)
    return f"{mark.get('program')} with {given}"


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`, so that a reader sees either the whole new or the whole old content."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)


def check_early(
    program: str, options: argparse.Namespace, check: Callable[[argparse.Namespace], object] = lambda options: None
) -> None:
    """Exit as run_program would if `check` finds a request that cannot be fulfilled."""
    if code := run_program(program, options, check):
        sys.exit(code)


def run_program(program: str, options: argparse.Namespace, run: Callable[[argparse.Namespace], object]) -> int:
    """The exit code of a program: 0 if `run` returns; 2, with one line, for a request that cannot be fulfilled."""
    try:
        check_packages(options)
        run(options)
    except (UsageError, TFConfigError) as error:
        print(f"{program}: {error}", file=sys.stderr, flush=True)
        return 2
    return 0
