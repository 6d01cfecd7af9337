"""`python -m tftraining.git_fetch URL SHA DIRECTORY`: the files of one commit, without the program git.

It runs in the init container of a job with spec.code.git, in the operator's image, which has the library dulwich.
tftraining.launch.git_checkout calls it; an image with the program git uses that.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from dulwich.client import HTTPUnauthorized, Urllib3HttpGitClient
from dulwich.config import ConfigDict
from dulwich.errors import GitProtocolError, HangupException, NotGitRepository
from dulwich.index import build_index_from_tree
from dulwich.objects import Commit, ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo
from urllib3.exceptions import HTTPError

SECONDS = 60.0  # without a byte
NO_ACCESS = "the server asks for a name and a password, or refuses them: set spec.code.git.secretName"
NO_REPOSITORY = "the server has no such repository, or hides it from this account"
NO_COMMIT = (
    "the server has closed the connection: it has no such commit, or does not let a commit be fetched by its SHA"
)
INCOMPLETE = "the server has not sent all objects of the commit"
SHA256_DIGITS = 64


class FetchError(Exception):
    """The commit cannot be fetched; the message is for the user."""


def fetch(url: str, revision: str, directory: Path, credentials: Path | None = None) -> None:
    """Write the files of the commit into the empty directory. FetchError, or OSError if they cannot be written."""
    kind = "sha256" if len(revision) == SHA256_DIGITS else "sha1"
    with Repo.init(str(directory), object_format=kind) as repository:
        _fetch_commit(url, revision, repository, credentials)
        try:
            commit = repository[ObjectID(revision.encode())]
            if not isinstance(commit, Commit):
                raise FetchError(f"{revision} is no commit")
            build_index_from_tree(
                str(directory),
                repository.index_path(),
                repository.object_store,
                commit.tree,
                object_format=repository.object_format,
            )
        except KeyError as error:
            raise FetchError(INCOMPLETE) from error
    shutil.rmtree(directory / ".git")


def _fetch_commit(url: str, revision: str, repository: Repo, credentials: Path | None) -> None:
    address = urlsplit(url)
    # Name and password go to this server only, wherever it redirects to.
    client = Urllib3HttpGitClient(
        f"{address.scheme}://{address.netloc}/",
        config=ConfigDict(),
        timeout=SECONDS,
        username=_secret(credentials, "username"),
        password=_secret(credentials, "password"),
        quiet=True,
    )

    def wanted(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
        return [ObjectID(revision.encode())]

    try:
        client.fetch(address.path, repository, wanted, depth=1)
    except HTTPUnauthorized as error:
        raise FetchError(NO_ACCESS) from error
    except NotGitRepository as error:
        raise FetchError(NO_REPOSITORY) from error
    except HangupException as error:
        raise FetchError(NO_COMMIT) from error
    except GitProtocolError as error:
        raise FetchError(_words(error)) from error
    except HTTPError as error:
        raise FetchError(f"the connection to the server has failed: {_words(error)}") from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())


def _secret(credentials: Path | None, name: str) -> str | None:
    return None if credentials is None else (credentials / name).read_text(encoding="utf-8").rstrip("\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the commit; exit code 0, or 1 after one error line."""
    parser = argparse.ArgumentParser(prog="python -m tftraining.git_fetch", allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("revision")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--credentials", type=Path, help="a directory with the files username and password")
    parsed = parser.parse_args(arguments)
    try:
        fetch(parsed.url, parsed.revision, parsed.directory, parsed.credentials)
    except (FetchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # the errors of the library have no class in common
        print(f"the answer of the server cannot be read: {type(error).__name__}: {_words(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
