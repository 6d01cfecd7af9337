"""The chart in an OCI registry: pushed as the release does it, and pulled again by its version and by its digest."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml

from testbed import binaries, chart_registry, release_files
from testbed.shell import LabError, run
from tests.support.ports import free_port
from tests.support.registry import served
from tests.support.repository import REPOSITORY

DIGEST = "sha256:" + "0" * 64
VERSION = "0.1.0"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of an empty registry on this machine, without TLS."""
    with served() as port:
        yield f"localhost:{port}/team"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of a release whose image has a digest."""
    folder = tmp_path_factory.mktemp("release")
    release_files.make_chart(REPOSITORY, folder, release_files.Release(image=f"example.org/operator@{DIGEST}"), "")
    (package,) = folder.glob("*.tgz")
    return package


@pytest.fixture(scope="module")
def pushed(package: Path, registry: str) -> str:
    """The name that is told to cosign."""
    return chart_registry.push(package, registry, plain_http=True)


def test_the_digest_that_is_told_is_the_one_of_the_registry(pushed: str, registry: str) -> None:
    name, digest = pushed.split("@")
    host, _, path = name.partition("/")
    assert name == f"{registry}/charts/tftraining-operator"
    accepted = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    with urlopen(Request(f"http://{host}/v2/{path}/manifests/{VERSION}", headers=accepted)) as answer:
        manifest = json.load(answer)
        assert answer.headers["Docker-Content-Digest"] == digest
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"


@pytest.mark.parametrize("program", ["helm", pytest.param("helm4", marks=pytest.mark.slow_fault)])
def test_what_is_pulled_is_what_was_pushed(program: str, pushed: str, package: Path, tmp_path: Path) -> None:
    helm = binaries.ensure(program) / program
    environment = os.environ | {"HOME": str(tmp_path)}
    name = f"oci://{pushed.partition('@')[0]}"
    run([helm, "pull", name, "--version", VERSION, "--plain-http", "--destination", tmp_path], env=environment)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
    rendered = run(
        [helm, "template", "tftraining", f"oci://{pushed}", "--plain-http", "--kube-version", "1.34"], env=environment
    )
    (deployment,) = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"example.org/operator@{DIGEST}"


def test_a_push_that_fails_is_told(package: Path) -> None:
    with pytest.raises(LabError, match="helm push: "):
        chart_registry.push(package, f"localhost:{free_port()}/team", plain_http=True)
