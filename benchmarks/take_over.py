"""How soon the second operator leads when the first one is gone: after SIGTERM, and after SIGKILL.

`python -m benchmarks.take_over` on a real API server without nodes, with the operator as two processes;
docs/scale.md says what the figures mean. The floor is client-go's election with its defaults, computed and
not measured: it polls a free lease every retry period (2 s, jittered up to 4.4 s), and by default does not release it.
The last line is JSON. It asserts nothing: the figures of a busy machine are noise.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import OPERATOR_NAMESPACE, install_crd, operator_kubeconfig
from tests.support.control_plane.operator_process import OperatorProcess
from tftraining_operator.cluster.lease import RETRY_PERIOD

LEASE = f"{OPERATOR_NAMESPACE}/operator-tftraining-operator"
CLIENT_GO_LEASE, CLIENT_GO_RETRY = 15.0, 2.0  # seconds
CLIENT_GO = {
    "client_go_release_s": [0.0, CLIENT_GO_RETRY * 2.2],
    "client_go_expiry_s": [CLIENT_GO_LEASE - CLIENT_GO_RETRY, CLIENT_GO_LEASE + CLIENT_GO_RETRY * 2.2],
}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="take-overs of each kind")
    arguments = parser.parse_args()
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        install_crd(plane)
        kubeconfig = operator_kubeconfig(plane)
        pair = []
        for name in ("one", "two"):
            own = Path(directory) / name
            own.mkdir()
            operator = OperatorProcess(kubeconfig, own, POD_NAME=name, TFTRAINING_LEADER_ELECTION=LEASE)
            pair.append(stack.enter_context(operator))
        figures: dict[str, object] = {}
        for kind in ("sigterm", "sigkill"):
            times, both = zip(*(take_over(pair, kind) for _ in range(arguments.repeat)), strict=True)
            figures |= {f"{kind}_median_s": round(statistics.median(times), 3), f"{kind}_max_s": round(max(times), 3)}
            figures[f"{kind}_two_leaders"] = sum(both)
    print(json.dumps({**figures, **CLIENT_GO, "load_average": round(os.getloadavg()[0], 1)}))


def take_over(pair: list[OperatorProcess], kind: str) -> tuple[float, bool]:
    """End the leader. Return the seconds until the other one leads, and whether the former leader then still leads;
    start it again as the standby."""
    while not (leading := [each for each in pair if leads(each)]):
        time.sleep(0.1)
    (leader,) = leading
    standby = next(each for each in pair if each is not leader)
    # At a moment of the renewal period that nothing chooses.
    time.sleep(3 + time.monotonic() % RETRY_PERIOD)
    began = time.monotonic()
    if kind == "sigkill":
        leader.kill()
    else:
        os.kill(leader.pid, 15)
    while not leads(standby):
        time.sleep(0.005)
    seconds, both = time.monotonic() - began, kind == "sigterm" and leads(leader)
    print(f"{kind}: {seconds:.2f} s", flush=True)
    leader.kill()
    leader.start()
    return seconds, both


def leads(operator: OperatorProcess) -> bool:
    """Whether it says that it leads."""
    return operator.metric("tftraining_leader") == 1


if __name__ == "__main__":
    main()
