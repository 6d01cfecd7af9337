"""Which files are credentials of the person, and no part of a program. They are known by their names or their content.

An archive of a program is a ConfigMap, which everybody who may look at the namespace can read.
"""

import re
from pathlib import Path

DIRECTORIES = frozenset({".ssh", ".aws", ".azure", ".docker", ".gcloud", ".gnupg", ".kaggle", ".kube"})
NAMES = frozenset(
    {
        *(".boto", ".dockercfg", ".env", ".envrc", ".git-credentials", ".htpasswd", ".netrc", ".npmrc", ".pgpass"),
        *(".pypirc", ".s3cfg", "_netrc", "kaggle.json", "kubeconfig"),
    }
)
_NAME = re.compile(
    r"\.env\.(?!dist$|example$|sample$|template$).*|.*\.(?:kubeconfig|p12|pfx|ppk|jks|keystore|kdbx)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
)
# Files in which a key or a kubeconfig may be. In a source file such text is a part of the program.
_SUFFIXES = frozenset(
    ["", ".cer", ".conf", ".config", ".crt", ".cfg", ".json", ".key", ".pem", ".txt", ".yaml", ".yml"]
)
_HEAD = 1 << 16
_CONTENT = re.compile(
    rb"""^-----BEGIN[ A-Z0-9]*\ PRIVATE\ KEY(?:\ BLOCK)?-----      # PEM, OpenSSH, PGP
    | ^PuTTY-User-Key-File-
    | "private_key"\s*:\s*"-----BEGIN                          # of a Google service account
    | "(?:client_secret|refresh_token)"\s*:\s*"[^"]""",
    re.MULTILINE | re.VERBOSE,
)
_KUBECONFIG = re.compile(rb"""^["']?kind["']?:\s*["']?Config\b|"kind"\s*:\s*"Config\"""", re.MULTILINE)
_USERS = re.compile(rb"""^["']?users["']?:|"users"\s*:""", re.MULTILINE)


def is_secret(path: Path, is_directory: bool) -> bool:
    """Whether the file or directory is a credential. OSError if it cannot be read."""
    if is_directory:
        return path.name in DIRECTORIES or path.name in NAMES
    if path.name in NAMES or path.name in DIRECTORIES or _NAME.fullmatch(path.name):
        return True
    # A name that begins with a dot has no suffix.
    if path.suffix.lower() not in _SUFFIXES or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return _CONTENT.search(head) is not None or bool(_KUBECONFIG.search(head) and _USERS.search(head))
