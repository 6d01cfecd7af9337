"""The page on concepts has a picture for each concept, and the pictures name what the custom resource has."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.crd import definition
from tests.support.repository import REPOSITORY
from tftraining_operator.model.launcher_report import SOURCES

PAGE = (REPOSITORY / "docs" / "concepts.md").read_text(encoding="utf-8")
PICTURES = REPOSITORY / "docs" / "pictures"
STATUS = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def shown(section: str) -> list[str]:
    return re.findall(r"^!\[.+\]\(pictures/(.*)\)$", section, re.MULTILINE)


def test_each_concept_has_one_picture_of_its_own() -> None:
    *sections, glossary = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert glossary.startswith("Glossary\n")
    pictures = [shown(section) for section in sections]
    assert len(sections) >= 4 and all(len(names) == 1 for names in pictures)
    names = [name for (name,) in pictures]
    assert len({*names}) == len(names) and all((PICTURES / name).is_file() for name in names)


def words(picture: Path, style: str) -> list[str]:
    """The texts of a picture that have this style."""
    found = ET.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text")
    return [each.text or "" for each in found if style in each.get("class", "").split()]


def test_the_picture_of_the_phases_has_every_phase_once() -> None:
    assert sorted(words(PICTURES / "phases.svg", "phase")) == sorted(STATUS["phase"]["enum"])


def test_the_picture_of_the_backups_has_every_source_once() -> None:
    assert sorted(words(PICTURES / "backups.svg", "word")) == sorted(SOURCES)


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda picture: picture.name)
def test_a_picture_loads_nothing_from_elsewhere(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    loaded = re.findall(r"(?:href|src)=\"([^\"]*)|url\(([^)]*)\)|@import", text)
    assert {name for names in loaded for name in names if not name.startswith("#")} <= {""}
