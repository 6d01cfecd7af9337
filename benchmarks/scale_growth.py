"""How the operator's work grows from 100 to 1,000 to 5,000 jobs: a table, and a picture.

`python -m benchmarks.scale_growth` runs `benchmarks.scale jobs` for each number of jobs, in a cluster of its own, and
takes a quarter of an hour. `--lines FILE` reads the last lines of earlier runs instead. *Growth* is the figure per job
relative to the smallest number of jobs, so 1 is linear, and less is better than linear. The last line is JSON.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

JOBS = (100, 1000, 5000)
FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "CPU of the creation, s": lambda found: found["creation"]["cpu_s"],
    "requests of the creation": lambda found: sum(found["creation"]["requests"].values()),
    "memory at its peak, above idle, MiB": lambda found: found["peak_mib"] - found["idle_mib"],
    "CPU while all train, cores": lambda found: found["calm"]["cpu_cores"],
    "writes while all train, per s": lambda found: found["calm"]["writes_per_s"],
}


def run(jobs: int, workers: int) -> dict[str, Any]:
    """The figures of one size, from a process of its own."""
    options = [f"--jobs={jobs}", f"--workers={workers}", "--settle=15", "--calm=30"]
    command = [sys.executable, "-m", "benchmarks.scale", "jobs", *options]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def table(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each figure: the figure of each size, and its growth per job."""
    rows = []
    for name, figure in FIGURES.items():
        values = [figure(found) for found in runs]
        each = [value / found["jobs"] for value, found in zip(values, runs, strict=True)]
        growth = each[-1] / each[0] if each[0] else float("nan")
        rows.append([name, *(f"{value:,.2f}".rstrip("0").rstrip(".") for value in values), f"{growth:.2f}"])
    return rows


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw each figure over the number of jobs, with the line that growth in proportion would follow."""
    figure, axes = pyplot.subplots(1, len(FIGURES), figsize=(4 * len(FIGURES), 3.4), layout="constrained")
    jobs = [found["jobs"] for found in runs]
    for axis, (name, value) in zip(axes, FIGURES.items(), strict=True):
        values = [value(found) for found in runs]
        axis.plot(jobs, values, "o-", label="measured")
        axis.plot(
            jobs, [values[0] * each / jobs[0] for each in jobs], "--", color="grey", label="in proportion to 100 jobs"
        )
        axis.set(title=name, xlabel="jobs", ylim=(0, max(values) * 1.3 or 1.0))
    axes[0].legend()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main() -> None:
    """Measure or read, draw, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="workers of each job (default 1)")
    parser.add_argument("--lines", type=Path, help="a file with the last lines of runs of benchmarks.scale jobs")
    parser.add_argument("--picture", type=Path, help="write the picture to this file")
    asked = parser.parse_args()
    if asked.lines:
        runs = [json.loads(line) for line in asked.lines.read_text(encoding="utf-8").splitlines()]
    else:
        runs = [run(jobs, asked.workers) for jobs in JOBS]
    print("| figure |" + "".join(f" {found['jobs']:,} jobs |" for found in runs) + " growth |")
    print("|---|" + "---|" * (len(runs) + 1))
    for row in table(runs):
        print("| " + " | ".join(row) + " |")
    if asked.picture:
        draw(runs, asked.picture)
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
