"""`python -m tests.support.trainer.bucket_training SERVER FOLDER OPTIONS`: two launchers train, with a bucket.

One program is killed. Then the gang is started again, as after a loss of its pods, and the cleanup of the operator runs
as in its pod. What was seen is printed as JSON. The
settings of the launchers are those of the operator: no directory, TFTRAINING_DIR a URI. OPTIONS are added, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.launchers.gang import LocalGang
from tests.support.simulated_cluster.builders import a_job
from tests.support.trainer.bucket import BUCKET, bucket_of_this_process, objects
from tftraining_api.manifests.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_api.manifests.storage import job_directory, mounted_directory

PATIENCE = 120.0
EPOCHS = 8
PROGRAM = Path(__file__).with_name("bucket_program.py")


def main(server: str, given: str, options: str) -> None:
    job, spec = a_job().bucket(uri=f"gs://{BUCKET}/team").parsed()
    assert spec.storage is not None
    folder = Path(given)
    place = os.environ["TFTRAINING_DIR"] = job_directory(job, spec.storage)
    inside = place.removeprefix(f"gs://{BUCKET}/") + "/"
    settings = {"directory": mounted_directory(job, spec.storage), "warmStart": True, **json.loads(options)}
    with bucket_of_this_process(Path(server), folder), LocalGang(folder, {"worker": 2}, **settings) as gang:
        gang.command = [sys.executable, str(PROGRAM), str(EPOCHS)]
        gang.start()
        gang.wait_for(lambda: "epoch 4 begins" in gang.log("worker-1"), PATIENCE)
        gang.kill_program("worker-1")
        stored = objects(f"{inside}backup/", folder)
        codes = gang.wait(PATIENCE)
        trained = objects(inside, folder)
        epochs = {name: _epochs(gang.log(name)) for name in gang.names}
        gang.start()
        again = {"codes": gang.wait(PATIENCE), "epochs": {name: _epochs(gang.log(name)) for name in gang.names}}
        again["reasons"] = {name: gang.message(name)["reason"] for name in gang.names}
        manifest = cleanup_pod(job, spec, CleanupTask(spec.storage, (1,), "", 1))
        _, *arguments = manifest["spec"]["containers"][0]["command"]
        result = folder / "cleanup.json"
        command = [sys.executable, *arguments, f"--termination-log={result}"]
        cleanup = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        seen = {
            "backup": stored,
            "codes": codes,
            "epochs": epochs,
            "again": again,
            "trained": trained,
            "cleanup": [cleanup.returncode, json.loads(result.read_text())],
            "cleaned": objects(inside, folder),
            "log": gang.log("worker-0"),
        }
    print(json.dumps(seen))


def _epochs(log: str) -> list[int]:
    return [int(each) for each in re.findall(r"epoch (\d+) begins", log)]


if __name__ == "__main__":
    main(*sys.argv[1:])
