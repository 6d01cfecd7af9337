"""Arguments of the lab's command line, and what each command prints.

Results go to standard output, progress and errors to standard error. It must never do work of its own.
"""

import argparse
import subprocess
import sys
from contextlib import ExitStack

from . import binaries, cluster, next_steps, release
from .shell import Impossible, LabError, say


def _up(options: argparse.Namespace) -> None:
    started = cluster.up(options.monitor_grace_seconds)
    if options.operator:
        release.keep(started.kube, started.images[0], *release.OFF_THE_WORKERS)
        started.kube.kubectl("apply", "-f", str(next_steps.STORAGE))
    programs = binaries.ensure("kubectl", "helm")
    say(f"the cluster is up; shared directory: {started.shared}; images: {', '.join(started.images)}")
    has = "the operator, and the claim `training` in the namespace default" if options.operator else "no operator"
    say(f"installed: {has}; next steps, in this directory:")
    # Only this line goes to stdout, for `eval "$(make -s cluster-up)"`: the other commands must not run in a script.
    print(next_steps.export(programs, started.kube.kubeconfig), flush=True)
    print("\n".join(next_steps.commands(options.operator)), file=sys.stderr)


def _down(_: argparse.Namespace) -> None:
    say(f"removing the cluster {cluster.name()} and its storage, with the models and backups in it")
    removed = cluster.down()
    print(
        "\n".join(f"removed {each}" for each in removed) or f"nothing to remove: there is no cluster {cluster.name()}"
    )


def _during(options: argparse.Namespace) -> int:
    """Run a command while the cluster is up. Without a cluster the command runs too, and its tests report that."""
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster.session())
        except Impossible as error:
            say(f"no cluster: {error}")
        return subprocess.run(options.words, check=False).returncode


def _images(_: argparse.Namespace) -> None:
    if not cluster.is_up():
        raise LabError("the cluster is not running: start it with `make cluster-up`")
    print("\n".join(cluster.up().images))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each carries the function that runs it as `run`."""
    top = argparse.ArgumentParser(prog="python -m testbed", description="A Kubernetes cluster for tests.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    start = commands.add_parser("up", help="start the cluster or update its images, and leave it running")
    start.add_argument(
        "--monitor-grace-seconds",
        type=int,
        default=cluster.MONITOR_GRACE_SECONDS,
        help="seconds without a heartbeat until a node is NotReady (default: %(default)s; of Kubernetes: 50)",
    )
    start.add_argument(
        "--operator",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="install the operator, and storage for the examples in the namespace default (default: yes)",
    )
    start.set_defaults(run=_up)
    during = commands.add_parser("during", help="run a command while the cluster is running")
    during.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    during.set_defaults(run=_during)
    stop = commands.add_parser("down", help="remove the cluster and everything that it created, except the caches")
    stop.set_defaults(run=_down)
    state = commands.add_parser("status", help="print the state of the cluster")
    state.set_defaults(run=lambda _: print(cluster.status()))
    images = commands.add_parser("images", help="build the operator and trainer images, load them, print their names")
    images.set_defaults(run=_images)
    programs = commands.add_parser("binaries", help="build programs of the cluster and print their directory")
    programs.add_argument("name", nargs="+", choices=sorted(binaries.PACKAGES), metavar="NAME")
    programs.set_defaults(run=lambda options: print(binaries.ensure(*options.name)))
    return top


def main(arguments: list[str]) -> int:
    """Run one command; return its exit status, or 1 after one line with the error."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except LabError as error:
        say(f"error: {error}")
        return 1
