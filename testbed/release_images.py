"""The images of operator and trainer, by the repository's Dockerfile: for this machine, or for several processors.

    python -m testbed.release_images [--registry HOST/TEAM] [--tag v0.1.0]
    python -m testbed.release_images --platforms linux/amd64,linux/arm64 [--registry HOST/TEAM --push]

Without --platforms any Docker engine builds them for this machine; the private one of the test cluster, which pulls
nothing, on a base of Debian packages. Several platforms need buildx, and QEMU for the foreign ones; the images then
stay in the builder's cache, or are pushed with their bills of materials and their provenance. For each image one line
goes to standard output, which GitHub's workflows take as an output: `operator=HOST/TEAM/tftraining-operator@sha256:…`,
or the tag without a push.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from testbed import engine, private_engine, rootfs
from testbed.docker import Engine
from testbed.pod_images import REPOSITORY, TARGETS
from testbed.release_files import check_tag, versions
from testbed.shell import LabError, say, step

ATTESTED = ("--sbom=true", "--provenance=mode=max")


class Image(NamedTuple):
    """One image of a release."""

    target: str
    repository: str
    tag: str

    @property
    def name(self) -> str:
        """The name with the tag."""
        return f"{self.repository}:{self.tag}"


def images(registry: str, tag: str) -> list[Image]:
    """Both images with the version of the checkout, which the chart asks for. LabError if the tag has another one."""
    version = check_tag(REPOSITORY, tag) if tag else versions(REPOSITORY)["appVersion of Chart.yaml"]
    prefix = f"{registry}/" if registry else ""
    return [Image(target, f"{prefix}tftraining-{target}", version) for target in TARGETS]


def build_here(found: Engine, image: Image) -> str:
    """Build the image for this machine, and return its name."""
    arguments = {}
    if found.private:
        private_engine.refresh_build_settings()
        arguments["BASE_IMAGE"] = rootfs.ensure(found)
    found.build(REPOSITORY, image.target, image.name, arguments)
    return image.name


def build_for(found: Engine, image: Image, platforms: str, push: bool) -> str:
    """Build the image for the platforms with buildx, and push it if asked to; return its name, or its digest."""
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder) / "metadata.json"
        found.docker(*buildx_words(image, platforms, push), "--metadata-file", metadata, REPOSITORY)
        if not push:
            return image.name
        digest = json.loads(metadata.read_text(encoding="utf-8"))["containerimage.digest"]
        return f"{image.repository}@{digest}"


def buildx_words(image: Image, platforms: str, push: bool) -> list[str]:
    """The words of the command for one image, but for its files."""
    kept = ["--push", *ATTESTED] if push else ["--output=type=cacheonly"]
    return ["buildx", "build", "--platform", platforms, "--target", image.target, "--tag", image.name, *kept]


def make(options: argparse.Namespace) -> None:
    """Build both images, and print a line for each."""
    if options.push and not (options.platforms and options.registry):
        raise LabError("--push needs --platforms and --registry")
    with engine.started() as found:
        for image in images(options.registry, options.tag):
            with step(f"building {image.name} for {options.platforms or 'this machine'}"):
                if options.platforms:
                    made = build_for(found, image, options.platforms, options.push)
                else:
                    made = build_here(found, image)
            print(f"{image.target}={made}", flush=True)
    engine.stop_if_unused()


def main() -> int:
    """Build the images; 1 after one line with the error."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.release_images",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--platforms", default="", help="such as linux/amd64,linux/arm64; by default this machine's")
    parser.add_argument("--registry", default="", help="host and organisation, such as ghcr.io/team")
    parser.add_argument("--tag", default="", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--push", action="store_true", help="push the images, with their bills of materials")
    try:
        make(parser.parse_args())
    except LabError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
