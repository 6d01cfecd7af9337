"""A release whose parts do not agree is refused, and its chart and notes are those of its version."""

from pathlib import Path

import pytest
import yaml

from testbed.release_files import chart_of, check_tag, notes, versions
from testbed.shell import LabError
from tests.support.repository import REPOSITORY

CHANGELOG = """# Changelog

## Unreleased

## 0.2.0 - 2026-12-01

### Added

* Something.

## 0.1.0

## 0.1.0-rc.1

* The first.
"""
DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_all_parts_of_the_checkout_have_one_version() -> None:
    assert len({*versions(REPOSITORY).values()}) == 1


def test_a_tag_of_another_version_is_refused_and_all_parts_are_named() -> None:
    with pytest.raises(LabError, match=r"the tag is v99\.0\.0, but pyproject\.toml says .* appVersion of Chart\.yaml"):
        check_tag(REPOSITORY, "v99.0.0")
    (version,) = {*versions(REPOSITORY).values()}
    assert check_tag(REPOSITORY, f"v{version}") == version


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n* Something.\n"
    assert notes(CHANGELOG, "0.1.0-rc.1") == "* The first.\n"


@pytest.mark.parametrize(("version", "words"), [("0.1.0", "is empty"), ("0.1", "no section 0.1:"), ("1.2.0", "no sec")])
def test_a_version_without_notes_is_refused(version: str, words: str) -> None:
    with pytest.raises(LabError, match=words):
        notes(CHANGELOG, version)


def test_the_chart_of_a_release_names_the_image_by_its_digest(tmp_path: Path) -> None:
    chart = chart_of(REPOSITORY, f"example.org/team/operator@{DIGEST}", tmp_path)
    image = yaml.safe_load((chart / "values.yaml").read_text())["image"]
    assert (image["repository"], image["digest"], image["tag"]) == ("example.org/team/operator", DIGEST, "")
    others = {path.relative_to(chart) for path in chart.rglob("*") if path.is_file()} - {Path("values.yaml")}
    source = REPOSITORY / "charts" / "tftraining-operator"
    assert all((chart / name).read_bytes() == (source / name).read_bytes() for name in others)


def test_an_image_without_a_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="must be REPOSITORY@sha256"):
        chart_of(REPOSITORY, "example.org/team/operator:1", tmp_path)
