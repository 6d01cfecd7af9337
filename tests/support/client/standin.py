"""A stand-in for a training program: epochs of steps, a backup after each epoch, a model, and no TensorFlow.

    python standin.py EPOCHS STEP_SECONDS [--fail N | --raise N | --children | --deaf | --late]

Its worker 1 leaves a temporary save directory behind, as a killed TensorFlow does; with --late it is done long after
the chief. With --raise it raises a ValueError in that epoch.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import tftraining

STEPS = 5


def main() -> int:
    epochs, seconds, *rest = sys.argv[1:]
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    directory = Path(os.environ["TFTRAINING_DIR"])
    backup = directory / f"backup-{task['type']}-{task['index']}"
    done = int(backup.read_text()) if backup.exists() else 0
    print(f"process {os.getpid()}", flush=True)
    print(f"begins after epoch {done}", file=sys.stderr, flush=True)
    if "--deaf" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--children" in rest:
        print(f"process {subprocess.Popen(['sleep', '1000'], start_new_session=True).pid}", flush=True)
    for epoch in range(done + 1, int(epochs) + 1):
        for step in range(1, STEPS + 1):
            if "--raise" in rest and task["index"] and (epoch, step) == (int(rest[rest.index("--raise") + 1]), STEPS):
                raise ValueError("boom")
            time.sleep(float(seconds))
            metrics = {"accuracy": epoch / int(epochs), "loss": 1 / epoch}
            tftraining.report(step=(epoch - 1) * STEPS + step, epoch=epoch, epochs=int(epochs), metrics=metrics)
        backup.write_text(str(epoch))
        if "--fail" in rest and epoch >= 2:
            print("no more of this", file=sys.stderr, flush=True)
            return int(rest[rest.index("--fail") + 1])
    time.sleep(0.4)  # a model takes its time to be saved; the last progress is seen meanwhile, mostly
    if "--late" in rest and task["index"]:
        time.sleep(3.0)
        print("done at last", file=sys.stderr, flush=True)
    if task["index"] == 0:
        (directory / "model").mkdir(exist_ok=True)
        (directory / "model" / "saved_model.pb").touch()
    else:
        (directory / f"workertemp_{task['index']}").mkdir(exist_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
