"""The files of a release: wheel, sdist, chart, install.yaml, notes of the changes, and their checksums.

    python -m testbed.release_files [--tag v0.1.0] [--operator-image REPOSITORY@sha256:…] [--home https://…]
                                    [--sboms build/sbom] [--into dist]

With a tag, the versions of the Python package, the chart and the changelog must be those of the tag. With an image, the
chart and install.yaml name the image by its digest. With the repository's address, the chart has what Artifact Hub
shows (published_chart.py). The release workflow runs this module, and so can anybody: it needs no registry and
publishes nothing.
"""

import argparse
import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import yaml

from testbed import binaries
from testbed.published_chart import Source, describe
from testbed.shell import LabError, run, say

CHECKOUT = Path(__file__).parents[1]
CHART = Path("charts") / "tftraining-operator"
INSTALL_NAMESPACE = "tftraining-system"
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", "api", "operator", "trainer", "client")
IMAGE = re.compile(r"(?P<repository>[^@\s]+)@(?P<digest>sha256:[0-9a-f]{64})")


def versions(checkout: Path) -> dict[str, str]:
    """The version that each part of the checkout has, by the part's name."""
    chart = yaml.safe_load((checkout / CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "pyproject.toml": project["version"],
        "version of Chart.yaml": chart["version"],
        "appVersion of Chart.yaml": str(chart["appVersion"]),
    }


def notes(changelog: str, version: str) -> str:
    """The section of the changelog on this version. LabError if there is none, or if it is empty."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        if re.match(rf"\[?{re.escape(version)}\]?(\s|$)", title):
            if not text.strip():
                raise LabError(f"the section {version} of CHANGELOG.md is empty")
            return text.strip() + "\n"
    raise LabError(f"CHANGELOG.md has no section {version}: rename the section Unreleased")


def check_tag(checkout: Path, tag: str) -> str:
    """The version of a tag such as v0.1.0; LabError if a part of the checkout has another one."""
    version = tag.removeprefix("v")
    if other := {name: found for name, found in versions(checkout).items() if found != version}:
        told = ", ".join(f"{name} says {found}" for name, found in other.items())
        raise LabError(f"the tag is {tag}, but {told}")
    return version


class Release(NamedTuple):
    """What a release is made for; without an option the files are those of the checkout."""

    tag: str = ""
    image: str = ""  # of the operator, by its digest
    home: str = ""  # the address of the repository
    sboms: Path | None = None  # a directory of bills of materials


def chart_of(checkout: Path, image: str, folder: Path) -> Path:
    """A copy of the chart in `folder`, whose default image is `image` unless that is empty."""
    copy = Path(shutil.copytree(checkout / CHART, folder / CHART.name))
    if not image:
        return copy
    found = IMAGE.fullmatch(image)
    if found is None:
        raise LabError(f"--operator-image must be REPOSITORY@sha256:…, not {image!r}")
    values = copy / "values.yaml"
    text = values.read_text(encoding="utf-8")
    for name in ("repository", "digest"):
        text, count = re.subn(rf"(?m)^  {name}: .*$", f"  {name}: {found[name]}", text)
        if count != 1:
            raise LabError(f"values.yaml has {count} lines `{name}:`, not one")
    values.write_text(text, encoding="utf-8")
    return copy


def make(checkout: Path, into: Path, release: Release) -> list[Path]:
    """Make all files of the release in the directory `into`, which becomes empty first; returns their paths."""
    version = check_tag(checkout, release.tag) if release.tag else ""
    changes = notes((checkout / "CHANGELOG.md").read_text(encoding="utf-8"), version) if version else ""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    if version:
        (into / "notes.md").write_text(changes, encoding="utf-8")
    _build_packages(checkout, into)
    make_chart(checkout, into, release, changes)
    for path in sorted(release.sboms.glob("*.json")) if release.sboms else []:
        shutil.copy2(path, into)
    files = sorted(into.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (into / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return [*files, into / "SHA256SUMS"]


def make_chart(checkout: Path, into: Path, release: Release, changes: str) -> None:
    """Make the chart's package and install.yaml in the directory `into`."""
    helm = str(binaries.ensure("helm") / "helm")
    with tempfile.TemporaryDirectory() as folder:
        chart = chart_of(checkout, release.image, Path(folder))
        if release.home:
            describe(chart, Source(release.home, release.tag or "main"), release.image, changes)
        run([helm, "package", str(chart), "--destination", str(into)])
        flags = ["--namespace", INSTALL_NAMESPACE, "--kube-version", binaries.KUBERNETES_VERSION, "--skip-tests"]
        (into / "install.yaml").write_text(_install(run([helm, "template", "tftraining", str(chart), *flags])))


def _build_packages(checkout: Path, into: Path) -> None:
    """Build the sdist, and from it the wheel, in a copy of the sources: setuptools leaves files behind."""
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory() as folder:
        for name in PACKAGED:
            source, copy = checkout / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
            else:
                shutil.copy2(source, copy)
        run([uv, "build", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(into.resolve()), folder])
    (into / ".gitignore").unlink(missing_ok=True)  # of uv


def _install(rendered: str) -> str:
    """The manifests of the chart for `kubectl apply --server-side`, with their namespace."""
    # Without a field of its own the API server changes the namespace when it is applied for the second time.
    metadata = {"name": INSTALL_NAMESPACE, "labels": {"app.kubernetes.io/name": CHART.name}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return f"{yaml.safe_dump(namespace)}{rendered if rendered.startswith('---') else '---' + chr(10) + rendered}"


def main() -> int:
    """Make the files and list them; 1 after one line with the error."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.release_files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tag", default="", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--operator-image", default="", help="REPOSITORY@sha256:… of the operator")
    parser.add_argument("--home", default="", help="the address of the repository, which the chart then names")
    parser.add_argument("--sboms", type=Path, help="a directory of bills of materials (build/sbom of `make audit`)")
    parser.add_argument("--into", type=Path, default=CHECKOUT / "dist", help="the directory of the files (dist)")
    options = parser.parse_args()
    try:
        release = Release(options.tag, options.operator_image, options.home, options.sboms)
        files = make(CHECKOUT, options.into, release)
    except LabError as error:
        say(f"error: {error}")
        return 1
    print(*files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
