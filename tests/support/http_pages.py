"""Reads a page from an HTTP server of this machine, as the tests of the launcher and of the operator do."""

import urllib.error
import urllib.request


def read_page(url: str, seconds: float = 5) -> tuple[int, str]:
    """The status and the text of the answer, also of one that is an error; (0, "") if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
