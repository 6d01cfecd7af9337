"""What a published chart tells Artifact Hub and its readers, and the chart in the checkout cannot know.

The address of the repository and the tag are those of the release, so that a fork publishes its own: the chart's home,
sources and icon, the images, links and changes of Artifact Hub, and absolute links in the README. It changes a copy of
the chart, never the checkout.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = "charts/tftraining-operator"
ICON = "docs/pictures/icon.svg"
PAGES = {
    "Documentation": "README.md",
    "Custom resource": "docs/reference-resource.md",
    "Operations": "docs/operations.md",
    "Changelog": "CHANGELOG.md",
}
KINDS = {"added", "changed", "deprecated", "removed", "fixed", "security"}
LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


class Source(NamedTuple):
    """Where the release is: the repository's address, such as https://github.com/team/tftraining, and the tag."""

    home: str
    tag: str

    def page(self, path: str) -> str:
        """The address of a file as a page."""
        return f"{self.home}/blob/{self.tag}/{path}"

    def file(self, path: str) -> str:
        """The address of a file's content."""
        return f"{self.home}/raw/{self.tag}/{path}"


def describe(chart: Path, source: Source, image: str, notes: str) -> None:
    """Complete Chart.yaml and the README of the copy `chart`. `notes` is the changelog of the version, or empty."""
    path = chart / "Chart.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content |= {"home": source.home, "sources": [source.home], "icon": source.file(ICON)}
    content["annotations"] |= {
        name: dumped(value) for name, value in annotations(source, image, notes).items() if value
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
    readme = chart / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), source), encoding="utf-8")


def annotations(source: Source, image: str, notes: str) -> dict[str, list[dict[str, str]]]:
    """The annotations of Artifact Hub that differ from release to release."""
    return {
        "artifacthub.io/changes": changes(notes),
        "artifacthub.io/images": [{"name": "operator", "image": image}] if image else [],
        "artifacthub.io/links": [{"name": name, "url": source.page(path)} for name, path in PAGES.items()],
    }


def dumped(value: Any) -> str:
    """The value of an annotation: a string of YAML."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))


def changes(notes: str) -> list[dict[str, str]]:
    """The first sentence of each point of a changelog, with the kind that its heading names."""
    found = []
    for section in re.split(r"^### ", notes, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        kind = title.strip().lower() if title.strip().lower() in KINDS else "changed"
        points = re.split(r"^\* ", text, flags=re.MULTILINE)[1:]
        found += [{"kind": kind, "description": _first_sentence(point)} for point in points]
    return found


def _first_sentence(point: str) -> str:
    words = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", point).replace("**", "").split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", words)[0]


def absolute(readme: str, source: Source) -> str:
    """The README with the addresses of its relative links, which Artifact Hub cannot follow."""

    def address(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(FOLDER, link["path"]))
        return f"]({source.page(path)}{link['anchor'] or ''})"

    return LINK.sub(address, readme)
