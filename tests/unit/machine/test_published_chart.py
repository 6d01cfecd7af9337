"""A published chart names its repository, and what Artifact Hub shows."""

import re
import shutil
from pathlib import Path

import yaml

from testbed.published_chart import FOLDER, ICON, PAGES, Source, absolute, changes, describe
from tests.support.repository import REPOSITORY

SOURCE = Source("https://example.org/team/tftraining", "v0.2.0")
IMAGE = "example.org/team/operator@sha256:" + "0" * 64
NOTES = """### Added

* **Backups in memory** ([the page](docs/memory-backups.md)): the state is copied every
  few steps. A restart resumes there.
* `tftj run` says why.

### Fixed

* A second operator no longer starts.
"""


def published(folder: Path) -> Path:
    chart = Path(shutil.copytree(REPOSITORY / FOLDER, folder / "chart"))
    describe(chart, SOURCE, IMAGE, NOTES)
    return chart


def test_the_chart_names_its_repository_and_an_icon_in_it(tmp_path: Path) -> None:
    content = yaml.safe_load((published(tmp_path) / "Chart.yaml").read_text())
    assert (content["home"], content["sources"]) == (SOURCE.home, [SOURCE.home])
    assert content["icon"] == f"{SOURCE.home}/raw/v0.2.0/{ICON}"
    assert (REPOSITORY / ICON).read_text().startswith("<svg ")
    before = yaml.safe_load((REPOSITORY / FOLDER / "Chart.yaml").read_text())
    assert {name: content[name] for name in before if name != "annotations"} == {
        name: value for name, value in before.items() if name != "annotations"
    }


def test_artifact_hub_gets_changes_images_and_links(tmp_path: Path) -> None:
    found = yaml.safe_load((published(tmp_path) / "Chart.yaml").read_text())["annotations"]
    assert [each["kind"] for each in yaml.safe_load(found["artifacthub.io/changes"])] == ["added", "added", "fixed"]
    assert yaml.safe_load(found["artifacthub.io/images"]) == [{"name": "operator", "image": IMAGE}]
    links = {each["name"]: each["url"] for each in yaml.safe_load(found["artifacthub.io/links"])}
    assert links["Changelog"] == f"{SOURCE.home}/blob/v0.2.0/CHANGELOG.md"
    assert [path for path in PAGES.values() if not (REPOSITORY / path).is_file()] == []
    assert yaml.safe_load(found["artifacthub.io/crds"])[0]["kind"] == "TFTrainingJob"


def test_a_change_is_the_first_sentence_of_its_point() -> None:
    assert [each["description"] for each in changes(NOTES)] == [
        "Backups in memory (the page): the state is copied every few steps.",
        "`tftj run` says why.",
        "A second operator no longer starts.",
    ]


def test_the_links_of_the_readme_are_absolute_and_lead_to_files(tmp_path: Path) -> None:
    text = (published(tmp_path) / "README.md").read_text()
    links = re.findall(r"\]\(([^)]*)\)", text)
    prefix = f"{SOURCE.home}/blob/v0.2.0/"
    assert links and [link for link in links if not link.startswith(prefix)] == []
    paths = [link.removeprefix(prefix).partition("#")[0] for link in links]
    assert [path for path in paths if not (REPOSITORY / path).is_file()] == []


def test_links_to_other_places_and_within_the_page_stay() -> None:
    text = "[a](https://example.org/x) [b](#values) [c](../../docs/scale.md#growth)"
    home = "https://example.org/team/tftraining/blob/v0.2.0"
    assert absolute(text, SOURCE) == f"[a](https://example.org/x) [b](#values) [c]({home}/docs/scale.md#growth)"
