"""Wait until a TFTrainingJob succeeds, and print its status on the way: the last step of `helm test`.

    python3 helm-test.py NAMESPACE NAME SECONDS

It reads the job with the token of its pod, and exits with 1 if the job fails, or has not succeeded in time.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def read_status(url: str) -> dict[str, object]:
    """The status of the job; empty while the operator has not written one."""
    token = (ACCOUNT / "token").read_text(encoding="utf-8")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        status: dict[str, object] = json.load(answer).get("status") or {}
        return status


def main() -> int:
    """Wait for the end of the job."""
    namespace, name, seconds = sys.argv[1:]
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    url = f"{server}/apis/tftraining.dev/v1/namespaces/{namespace}/tftrainingjobs/{name}"
    end, told, phase = time.monotonic() + int(seconds), "", ""
    while phase not in ("Succeeded", "Failed") and time.monotonic() < end:
        try:
            status = read_status(url)
            phase = str(status.get("phase", "Pending"))
            line = f"{phase}: {status.get('message', 'the operator has not seen the job yet')}"
        except (OSError, urllib.error.HTTPError) as error:
            line = f"cannot read the job: {error}"
        if line != told:
            print(line, flush=True)
        told = line
        time.sleep(1)
    if phase not in ("Succeeded", "Failed"):
        print(f"the job {namespace}/{name} has not ended within {seconds} s", flush=True)
    return int(phase != "Succeeded")


if __name__ == "__main__":
    sys.exit(main())
