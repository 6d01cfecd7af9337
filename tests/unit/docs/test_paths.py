"""What the pages name is there: files, links with their headings, modules of the launcher, targets of make.

A path is a word that begins with a top-level folder of the repository, in a command as well as in a sentence. Shorter
ones, such as `plan/conditions.py`, are looked for below the packages.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support.repository import REPOSITORY

# The changelog tells of files as they were.
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "charts").rglob("*.md")),
    *sorted((REPOSITORY / "tests").rglob("*.md")),
    *sorted((REPOSITORY / "testbed").rglob("*.md")),
]
FOLDERS = [
    "api",
    "operator",
    "trainer",
    "client",
    "testbed",
    "tests",
    "docs",
    "benchmarks",
    "charts",
    "crds",
    "examples",
    "requirements",
    ".ci",
]
PACKAGES = (
    "api/tftraining_api",
    "operator/tftraining_operator",
    "trainer/tftraining",
    "client/tftraining_client",
    "tests",
)
LAUNCHER = REPOSITORY / "trainer" / "tftraining" / "launch"

PATH = re.compile(rf"(?<![\w./~>-])((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*)")
SHORT = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
MODULE = re.compile(r"python -m ((?:benchmarks|testbed|tests|tftraining\w*)(?:\.\w+)+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def paths(page: Path) -> set[str]:
    return {path.rstrip(".") for path in PATH.findall(LINK.sub("]", text_of(page)))}


def exists(path: str) -> bool:
    return any(REPOSITORY.glob(path)) if "*" in path else (REPOSITORY / path).exists()


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def on_each_page(find: Callable[[Path], Iterable[str]]) -> list[str]:
    """What is found on the pages, each behind the name of its page."""
    return [f"{page.relative_to(REPOSITORY)}: {each}" for page in PAGES for each in sorted(set(find(page)))]


def test_a_path_leads_to_a_file() -> None:
    assert on_each_page(lambda page: (path for path in paths(page) if not exists(path))) == []


def test_a_shorter_path_leads_to_a_file_of_a_package() -> None:
    places = [REPOSITORY / package for package in PACKAGES]

    def missing(page: Path) -> list[str]:
        named = {name for name in SHORT.findall(text_of(page)) if "/" in name and name.split("/")[0] not in FOLDERS}
        return [name for name in named if not any((place / name).exists() for place in places)]

    assert on_each_page(missing) == []


def test_a_module_that_a_page_runs_is_there() -> None:
    roots = [REPOSITORY, *(REPOSITORY / package.split("/")[0] for package in PACKAGES)]

    def is_there(name: str) -> bool:
        found = [root / name.replace(".", "/") for root in roots]
        return any(each.is_dir() or each.with_suffix(".py").is_file() for each in found)

    assert on_each_page(lambda page: (name for name in MODULE.findall(text_of(page)) if not is_there(name))) == []


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(text_of(page)):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                yield link


def test_a_link_leads_to_a_page_and_its_heading() -> None:
    assert on_each_page(broken_links) == []


def test_a_target_of_make_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(REPOSITORY / "Makefile"), re.MULTILINE))
    assert {"demo", "test"} <= targets
    commands = re.compile(r"(?:^|`)make ([a-z-]+)\b", re.MULTILINE)
    assert on_each_page(lambda page: set(commands.findall(text_of(page))) - targets) == []


def test_the_architecture_follows_a_job_through_all_packages() -> None:
    named = paths(REPOSITORY / "docs" / "architecture.md")
    files = [path for path in named if path.endswith(".py")]
    assert len(files) > 50
    assert [each for each in PACKAGES[:4] if not any(path.startswith(f"{each}/") for path in files)] == []


def test_the_architecture_names_all_modules_of_the_launcher() -> None:
    _, _, rest = text_of(REPOSITORY / "docs" / "architecture.md").partition("\n| modules | concern |")
    cells = [row.split("|")[1] for row in rest.split("\n\n")[0].splitlines()[2:]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    modules = {path.stem for path in LAUNCHER.rglob("*.py")} - {"__init__", "sitecustomize"}
    assert sorted(named - modules) == []
    assert sorted(modules - named) == []
