"""The documentation site: its reference is current, its navigation has every page, and zensical builds it strictly."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from prometheus_client import CollectorRegistry, Counter

from testbed.shell import LabError
from testbed.site import patches, reference, sources
from tests.support.repository import REPOSITORY

ZENSICAL = Path(sys.executable).with_name("zensical")
CONFIG = REPOSITORY / "zensical.toml"
PROJECT = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]


REFERENCE = {
    reference.RESOURCE: reference.resource,
    reference.COMMANDS: reference.commands,
    reference.METRICS: reference.metrics,
    patches.PAGE: patches.page,
}


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_the_reference_is_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == REFERENCE[page](), "run: make reference"


def test_a_metric_whose_labels_are_unknown_does_not_reach_the_reference() -> None:
    registry = CollectorRegistry()
    Counter("unseen", "Never counted.", ["reason"], registry=registry)
    with pytest.raises(LabError, match="unseen"):
        list(reference.operator_metrics(registry))


def navigation(items: list[object]) -> list[str]:
    """The pages of the navigation."""
    found: list[str] = []
    for item in items:
        assert isinstance(item, dict)
        for target in item.values():
            found += [target] if isinstance(target, str) else navigation(target)
    return found


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(navigation(PROJECT["nav"])) == sorted(sources.pages(REPOSITORY).values())


def test_the_index_has_every_page_once_and_no_page_has_moved_to_nowhere() -> None:
    docs = REPOSITORY / "docs"
    listed, _, moved = (docs / sources.INDEX).read_text(encoding="utf-8").partition("\n## Moved pages\n")
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", listed) if target.endswith(".md")]
    beside = {"../README.md", "../SECURITY.md", "../CHANGELOG.md"}  # README links them
    assert sorted({*linked, *beside}) == sorted(os.path.relpath(page, docs) for page in sources.pages(REPOSITORY))
    assert len(linked) == len({*linked})
    old = re.findall(r"^\| ([\w-]+\.md) \| \[", moved, re.MULTILINE)
    assert old and not [page for page in old if (docs / page).exists()]


@pytest.mark.parametrize(
    ("link", "changed"),
    [
        ("[a](status.md#metrics)", "[a](status.md#metrics)"),
        ("[a](../README.md#two-commands)", "[a](index.md#two-commands)"),
        ("[a](../charts/tftraining-operator/README.md)", "[a](chart.md)"),
        ("![a](pictures/restart.svg)", "![a](pictures/restart.svg)"),
        ("[a](../examples/minimal.yaml)", "a (`examples/minimal.yaml`)"),
        ("[examples/minimal.yaml](../examples/minimal.yaml)", "`examples/minimal.yaml`"),
        ("[`a`](#b) [c](https://example.org/d.md)", "[`a`](#b) [c](https://example.org/d.md)"),
        ("```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(link: str, changed: str) -> None:
    page = REPOSITORY / "docs" / "status.md"
    assert sources.in_the_site(link, page, REPOSITORY, "") == changed


def test_a_file_that_is_no_page_is_shown_by_the_repository() -> None:
    page = REPOSITORY / "docs" / "status.md"
    shown = sources.in_the_site("[a](../examples/minimal.yaml)", page, REPOSITORY, "https://example.org/main/")
    assert shown == "[a](https://example.org/main/examples/minimal.yaml)"


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := names.get(key))}
        target = names.get("href" if tag == "a" else "src" if tag == "img" else "")
        self.links += [target] if target else []


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site whose sources are in the folder."""
    shutil.copy(CONFIG, folder)
    command = [str(ZENSICAL), "build", "--clean", "--strict", "--config-file", str(folder / CONFIG.name)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def dangling(site: Path) -> list[str]:
    """The links between pages of the site that lead nowhere."""
    parsed = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    wrong = []
    for path, page in parsed.items():
        for link in page.links if path.name != "404.html" else ():
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            place = (path.parent / target).resolve() if target else path
            place = place / "index.html" if place.is_dir() else place
            missing = not place.exists() or (anchor and place in parsed and anchor not in parsed[place].anchors)
            wrong += [f"{path.relative_to(site)}: {link}"] if missing else []
    return wrong


@pytest.mark.slow_fault
def test_the_site_builds_strictly_and_no_link_dangles(tmp_path: Path) -> None:
    sources.make(REPOSITORY, tmp_path / PROJECT["docs_dir"])
    result = built(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    site = tmp_path / PROJECT["site_dir"]
    assert len([*site.rglob("index.html")]) >= len(sources.pages(REPOSITORY))
    assert dangling(site) == []


@pytest.mark.slow_fault
@pytest.mark.parametrize("link", ["missing.md", "status.md#no-such-heading"])
def test_a_broken_link_is_an_error(tmp_path: Path, link: str) -> None:
    sources.make(REPOSITORY, tmp_path / PROJECT["docs_dir"])
    with (tmp_path / PROJECT["docs_dir"] / "support.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[broken]({link})\n")
    assert built(tmp_path).returncode != 0
