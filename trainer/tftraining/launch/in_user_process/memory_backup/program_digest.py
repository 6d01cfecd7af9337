"""A digest of the program that runs in this process: another version of it must not restore a copy of the state."""

from __future__ import annotations

import hashlib
import os
import sys

_GENERATED = "__autograph_generated_file"  # another name in each process


def program_digest() -> str:
    """A digest of the sources of the program's own modules, and the versions of TensorFlow and Keras."""
    digest = hashlib.sha256()
    for name in ("tensorflow", "tf_keras", "keras"):
        digest.update(str(getattr(sys.modules.get(name), "__version__", "")).encode())
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # in_user_process
    standard = os.path.dirname(os.__file__) + os.sep
    paths = {os.path.abspath(path) for each in list(sys.modules.values()) if (path := getattr(each, "__file__", None))}
    for path in sorted(paths):
        ours = path.startswith((own, standard)) or "-packages" in path
        if not ours and path.endswith(".py") and not os.path.basename(path).startswith(_GENERATED):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()
