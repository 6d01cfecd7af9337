"""What Keras 3 costs a gang beside tf_keras: the steps a second of two workers, and the restart of a killed program.

`python -m benchmarks.keras3_speed` keeps a gang of each Keras under launchers, and lets them train in turns of a
second, the order of each pair changing, so that what else the machine does hits both. `steps_ratio` is the median of
the pairs', Keras 3 by tf_keras, with a bootstrap's interval of 95 %; `cpu_ratio`, which a busy machine disturbs less,
is that of the steps a CPU second of the programs. The restart is benchmarks.recovery's, of the example
`multi_worker_mnist` with `--keras 3` and without, in turns too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.overhead import PROGRAM, Training, children, interval, launcher_environments
from benchmarks.process_usage import cpu_seconds
from benchmarks.recovery import CHIEF, WORKER, kills, manifest, running

WORKERS = 2
SEGMENT_SECONDS = 1.0
PROBE_STEPS = 200
FEWEST = 4  # pairs
KERAS = ("tf_keras", "keras")
OPTIONS = {"tf_keras": "legacy", "keras": "3"}  # of the example


class Gang:
    """The workers of one training, each with its launcher."""

    def __init__(self, keras: str, place: Path) -> None:
        place.mkdir()
        command = [sys.executable, "-m", "tftraining.launch", "--", sys.executable, str(PROGRAM), keras]
        self.members = [Training(command, each) for each in launcher_environments(place, WORKERS)]

    def hear(self) -> list[str]:
        """The next line of each member."""
        return [each.hear() for each in self.members]

    def train(self, steps: int) -> tuple[float, float]:
        """Train one segment; its steps per second, and per CPU second of the programs."""
        before = self._cpu()
        for each in self.members:
            each.begin(steps)
        speed = min(map(float, self.hear()))
        return speed, steps / (self._cpu() - before)

    def _cpu(self) -> float:
        return sum(cpu_seconds(pid) for each in self.members for pid in children(each.process.pid))

    def end(self) -> None:
        """Wait until all members have ended; kill those that do not."""
        for each in self.members:
            each.stop()
        for each in self.members:
            each.end()


@contextlib.contextmanager
def gangs() -> Iterator[list[Gang]]:
    """A gang of each Keras that is ready to train."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = []
        for keras in KERAS:
            both.append(Gang(keras, place / keras))
            stack.callback(both[-1].end)
        for gang in both:
            gang.hear()
        yield both


def speeds(seconds: float) -> dict[str, Any]:
    """The figures of the steps."""
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    with gangs() as (legacy, own):
        steps = max(PROBE_STEPS, int(min(each.train(PROBE_STEPS)[0] for each in (legacy, own)) * SEGMENT_SECONDS))
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(pairs) < FEWEST:
            turns = (legacy, own) if len(pairs) % 2 else (own, legacy)
            told = {id(turn): turn.train(steps) for turn in turns}
            pairs.append((told[id(legacy)], told[id(own)]))
    ratios = [keras3[0] / tf_keras[0] for tf_keras, keras3 in pairs]
    return {
        "steps_ratio": statistics.median(ratios),
        "steps_ratio_interval": interval(ratios),
        "cpu_ratio": statistics.median(keras3[1] / tf_keras[1] for tf_keras, keras3 in pairs),
        "tf_keras_steps_per_second": statistics.median(tf_keras[0] for tf_keras, _ in pairs),
        "keras3_steps_per_second": statistics.median(keras3[0] for _, keras3 in pairs),
        "pairs": len(pairs),
    }


async def restarts(count: int) -> dict[str, Any]:
    """The medians of so many kills of a worker and as many of the chief, of each Keras."""
    draw = random.Random(1)
    found: dict[str, list[float]] = {keras: [] for keras in KERAS}
    turns = (*itertools.product((WORKER,), KERAS), *itertools.product((CHIEF,), reversed(KERAS)))
    for victim, keras in turns:
        option = OPTIONS[keras]
        print(f"{keras}:", flush=True)
        async with running(manifest(40, True, "--keras", option)) as gang:
            found[keras] += await kills(gang, victim, count, draw)
    medians = [statistics.median(found[keras]) for keras in KERAS]
    return {
        "tf_keras_restart_s": medians[0],
        "keras3_restart_s": medians[1],
        "keras3_restart_worst_s": max(found["keras"]),
        "restart_ratio": medians[1] / medians[0],
    }


def rounded(figure: Any) -> Any:
    """A figure, or several, with three digits."""
    return [rounded(each) for each in figure] if isinstance(figure, tuple) else round(figure, 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="keras3_speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="seconds of alternating training (60)")
    parser.add_argument("--kills", type=int, default=5, help="kills of a worker and of the chief, of each Keras (5)")
    options = parser.parse_args()
    figures = speeds(options.seconds) if options.seconds else {}
    if options.kills:
        figures |= asyncio.run(restarts(options.kills))
    figures["load_average"] = os.getloadavg()[0]
    print(json.dumps({name: rounded(value) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
