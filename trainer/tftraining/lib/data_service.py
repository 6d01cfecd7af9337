"""tf.data service: servers that prepare the input of a training, so that its workers only train.

    python -m tftraining.lib.data_service dispatcher --port 5050
    python -m tftraining.lib.data_service worker --dispatcher HOST:5050

A dispatcher gives the parts of the data to its workers, and each worker of the training takes the next batch that one
of them has prepared. So each example is used by one worker of the training only. The servers read the same files, by
the same paths, as the training. They have no authentication: only the pods of the training should reach them.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from tftraining.lib.options import UsageError

# Seconds for the dispatcher's start, also on another node; TensorFlow itself would wait for ever, without a word.
PATIENCE, TOLD_AFTER = 600.0, 10.0


def served(dataset: Any, address: str, job: str, patience: float = PATIENCE) -> Any:
    """The elements of `dataset` as the servers of the dispatcher at `address` prepare them.

    All workers with the same `job` share the elements, so no other training may have the same name, as long as the
    dispatcher runs. UsageError if nothing listens at `address`.
    """
    import tensorflow as tf  # noqa: PLC0415  not for --help

    wait_for(address, patience)
    service = tf.data.experimental.service
    # The files are divided among the servers as these ask for more. An example is used once at most: those that a lost
    # server has read and not handed out are left out of that pass.
    mode = service.ShardingPolicy.DYNAMIC
    return dataset.apply(service.distribute(mode, f"grpc://{address}", job_name=job))


def wait_for(address: str, patience: float) -> None:
    """Wait until something listens at `address`, HOST:PORT. UsageError if nothing does in `patience` seconds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--data-service {address}: give the dispatcher's host and port, such as data-service:5050")
    began, told = time.monotonic(), False
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            return
        except OSError as error:
            waited = time.monotonic() - began
            if waited > patience:
                raise UsageError(f"--data-service {address}: no dispatcher listens there ({error})") from error
            if waited > TOLD_AFTER and not told:
                print(f"waiting for the dispatcher of tf.data service at {address} ({error})", flush=True)
                told = True
            time.sleep(1)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = argparse.ArgumentParser(prog="tftraining.lib.data_service", description=(__doc__ or "").splitlines()[0])
    servers = parser.add_subparsers(dest="server", required=True)
    dispatcher = servers.add_parser("dispatcher", help="divide the data among the workers")
    dispatcher.add_argument("--port", type=int, default=5050, help="port to listen on (5050)")
    dispatcher.add_argument("--work-dir", help="folder for a journal, from which a restarted dispatcher goes on")
    worker = servers.add_parser("worker", help="prepare the data")
    worker.add_argument("--dispatcher", required=True, metavar="HOST:PORT", help="address of the dispatcher")
    worker.add_argument("--host", default="localhost", help="name or IP by which the training reaches this server")
    worker.add_argument("--port", type=int, default=0, help="port to listen on (any)")
    return parser.parse_args(argv)


def start(options: argparse.Namespace) -> Any:
    """Start the server."""
    import tensorflow as tf  # noqa: PLC0415

    service = tf.data.experimental.service
    if options.server == "dispatcher":
        work_dir = options.work_dir
        config = service.DispatcherConfig(options.port, work_dir=work_dir, fault_tolerant_mode=work_dir is not None)
        return service.DispatchServer(config)
    # TensorFlow writes the port that it listens on for %port%.
    own = f"{options.host}:{options.port or '%port%'}"
    return service.WorkerServer(service.WorkerConfig(options.dispatcher, worker_address=own, port=options.port))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process."""
    options = parse(argv)
    server = start(options)
    print(f"{options.server} of tf.data service: ready", flush=True)
    server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
