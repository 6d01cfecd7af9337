"""The sources of the documentation site: the pages of docs/ and those beside it in one directory.

    python -m testbed.site.sources [--into build/site-sources]

A link between pages is changed to the page's place in the site. A link to any other file of the repository becomes the
path of that file, because the site does not have it; with --source-url it stays a link.
"""

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
# Pages outside of docs/, by their names in the site.
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
    "charts/tftraining-operator/README.md": "chart.md",
}
INDEX = "README.md"  # of docs/, for who reads it without the site: there the navigation takes its place
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def pages(checkout: Path) -> dict[Path, str]:
    """Each page of the repository that the site has, with its name there."""
    found = {path: path.name for path in sorted((checkout / "docs").glob("*.md")) if path.name != INDEX}
    found |= {path: f"proposal-{path.name}" for path in sorted((checkout / "docs" / "proposals").glob("*.md"))}
    return found | {checkout / path: name for path, name in BESIDE.items()}


def in_the_site(text: str, page: Path, checkout: Path, source_url: str) -> str:
    """The text of a page with links that hold in the site. Blocks of code are left as they are."""
    names = pages(checkout)

    def changed(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if "://" in target or not target:
            return link[0]
        path = Path(os.path.normpath(page.parent / target))
        if path in names:
            return f"{link['image']}[{link['text']}]({names[path]}{hash_}{anchor})"
        if path.is_relative_to(checkout / "docs" / "pictures"):
            return f"{link['image']}[{link['text']}]({path.relative_to(checkout / 'docs').as_posix()})"
        place = path.relative_to(checkout).as_posix()
        if source_url:
            return f"[{link['text']}]({source_url.rstrip('/')}/{place})"
        return f"`{place}`" if place in link["text"] else f"{link['text']} (`{place}`)"

    # Only blocks of code are left out: a link may have code as its text.
    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(changed, part) for part in parts)


def make(checkout: Path, into: Path, source_url: str = "") -> None:
    """Write the sources into the directory, which becomes empty first."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(checkout / "docs" / "pictures", into / "pictures")
    for page, name in pages(checkout).items():
        text = in_the_site(page.read_text(encoding="utf-8"), page, checkout, source_url)
        (into / name).write_text(text, encoding="utf-8")


def main() -> int:
    """Write the sources."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.site.sources",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--into", type=Path, default=CHECKOUT / "build" / "site-sources", help="the directory")
    parser.add_argument("--source-url", default="", help="where the files of the repository are shown")
    options = parser.parse_args()
    make(CHECKOUT, options.into, options.source_url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
