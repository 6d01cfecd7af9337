"""What `make images` asks buildx for; the images themselves are built by the cluster's tests, for this machine."""

import argparse

import pytest

from testbed.release_images import Image, buildx_words, images, make
from testbed.shell import LabError

IMAGE = Image("operator", "example.org/team/tftraining-operator", "0.1.0")
BOTH = "linux/amd64,linux/arm64"


def test_a_pushed_image_has_its_bill_of_materials_and_its_provenance() -> None:
    words = buildx_words(IMAGE, BOTH, push=True)
    assert words[:4] == ["buildx", "build", "--platform", BOTH]
    assert {"--push", "--sbom=true", "--provenance=mode=max", "example.org/team/tftraining-operator:0.1.0"} <= {*words}


def test_without_push_nothing_leaves_the_builder() -> None:
    words = buildx_words(IMAGE, BOTH, push=False)
    assert "--push" not in words and "--output=type=cacheonly" in words


def test_the_images_have_the_version_that_the_chart_asks_for() -> None:
    assert [each.name for each in images("", "")] == ["tftraining-operator:0.1.0", "tftraining-trainer:0.1.0"]
    assert images("example.org/team", "v0.1.0")[0] == IMAGE
    with pytest.raises(LabError, match=r"the tag is v0\.2\.0, but pyproject\.toml says 0\.1\.0"):
        images("", "v0.2.0")


@pytest.mark.parametrize(("platforms", "registry"), [("", "example.org/team"), (BOTH, "")])
def test_a_push_without_platforms_or_registry_is_refused(platforms: str, registry: str) -> None:
    options = argparse.Namespace(platforms=platforms, registry=registry, tag="", push=True)
    with pytest.raises(LabError, match="--push needs --platforms and --registry"):
        make(options)
