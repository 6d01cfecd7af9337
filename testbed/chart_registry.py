"""Push the chart of a release to an OCI registry, and tell its digest.

    python -m testbed.chart_registry HOST/TEAM [--from dist] [--plain-http]

The one line on standard output, `HOST/TEAM/charts/tftraining-operator@sha256:…`, is what cosign signs. Helm takes the
credentials of `docker login`.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from testbed import binaries
from testbed.release_files import CHART, CHECKOUT
from testbed.shell import LabError, say


def push(package: Path, registry: str, *, plain_http: bool = False) -> str:
    """Push the package, and return its name with the digest; LabError with Helm's message when it fails."""
    helm = binaries.ensure("helm") / "helm"
    insecure = ["--plain-http"] if plain_http else []
    words: list[str | Path] = [helm, "push", package, f"oci://{registry}/charts", *insecure]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr  # Helm tells the digest on either
    found = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", told, re.MULTILINE)
    if done.returncode or not found:
        raise LabError(f"helm push: {told.strip()}")
    return f"{registry}/charts/{CHART.name}@{found[1]}"


def main() -> int:
    """Push the one chart of the directory; 1 after one line with the error."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.chart_registry",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("registry", help="host and organisation, such as ghcr.io/team")
    parser.add_argument("--from", dest="folder", type=Path, default=CHECKOUT / "dist", help="where the chart is (dist)")
    parser.add_argument("--plain-http", action="store_true", help="for a registry without TLS")
    options = parser.parse_args()
    packages = sorted(options.folder.glob(f"{CHART.name}-*.tgz"))
    try:
        if len(packages) != 1:
            raise LabError(f"{options.folder} has {len(packages)} charts, not one: run `make release-files` first")
        print(push(packages[0], options.registry, plain_http=options.plain_http))
    except LabError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
