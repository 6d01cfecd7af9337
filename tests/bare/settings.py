"""What a bare Debian takes over from the machine that it is made on: how packages are reached, and nothing else.

Package sources, proxies, certificate authorities, and the settings of apt, pip, uv and Go. It must never take over a
program, nor a setting that a machine with nothing on it does not have.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLES = re.compile(
    r"(PIP|UV)_\w+|GO(?!ROOT$|BIN$|TMPDIR$|ARCH$|OS$)[A-Z]+|(HTTP|HTTPS|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO|TFTRAINING_NODE_IMAGE|TERM",
    re.IGNORECASE,
)
# Directories that are written to; all others that a variable names are only read.
WRITTEN = re.compile(r"\w+_CACHE_DIR|GOPATH|GOCACHE|GOMODCACHE")
NETWORK = ("/etc/resolv.conf", "/etc/hosts")
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates")
PACKAGE_SOURCES = (
    *("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/auth.conf.d"),
    *("/etc/apt/keyrings", "/etc/apt/trusted.gpg.d", "/usr/share/keyrings"),
)
SYSTEM_SETTINGS = ("/etc/pip.conf", "/etc/uv/uv.toml", "/etc/xdg/pip/pip.conf")
PERSONAL_SETTINGS = (".netrc", ".pip/pip.conf", ".config/pip/pip.conf", ".config/uv/uv.toml", ".config/go/env")
# The rest of apt's settings names programs that a bare Debian does not have.
APT_SETTINGS = re.compile(r"Acquire::(https?::(?!Proxy-Auto-Detect|ProxyAutoDetect)|Retries |Check-|ForceIP)\S* ?.*")


@dataclass(frozen=True)
class Settings:
    """The variables, the files and directories to copy, and the directories to make visible, at the same paths."""

    variables: Mapping[str, str]
    copied: tuple[Path, ...]
    read: tuple[Path, ...]
    written: tuple[Path, ...]


def collect(environment: Mapping[str, str], home: Path, same_debian: bool) -> Settings:
    """Return what is to be taken over, as far as it is on this machine.

    The package sources of another release than the bare Debian's (`same_debian`) would bring packages that do not fit.
    """
    variables = {name: value for name, value in environment.items() if VARIABLES.fullmatch(name)}
    named = {name: Path(value) for name, value in variables.items() if value.startswith("/")}
    fixed = [*NETWORK, *CERTIFICATES, *SYSTEM_SETTINGS, *(PACKAGE_SOURCES if same_debian else ())]
    copied = [*map(Path, fixed), *(home / name for name in PERSONAL_SETTINGS)]
    return Settings(
        {name: value for name, value in variables.items() if name not in named or named[name].exists()},
        _there([*copied, *(path for path in named.values() if path.is_file())], Path.exists),
        _there((path for name, path in named.items() if not WRITTEN.fullmatch(name)), Path.is_dir),
        _there((path for name, path in named.items() if WRITTEN.fullmatch(name)), Path.is_dir),
    )


def _there(paths: Iterable[Path], exists: Callable[[Path], bool]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for path in paths if exists(path)))


def apt(dump: str) -> str:
    """Return what `apt-config dump` says of how packages are fetched, as a file for apt.conf.d."""
    return "".join(f"{line}\n" for line in dump.splitlines() if APT_SETTINGS.fullmatch(line))


def is_suite(os_release: Mapping[str, str], suite: str) -> bool:
    """Say whether these values of /etc/os-release are those of this release of Debian."""
    return (os_release.get("ID"), os_release.get("VERSION_CODENAME")) == ("debian", suite)


def cache_home() -> Path:
    """Return the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
