"""The `__main__.py` of an installed launcher: starts it, or reports that this Python is too old.

It must use only syntax that every Python version can parse.
"""

import json
import os
import sys

MESSAGE = (
    "the launcher needs Python 3.9 or later, but the image has %d.%d: "
    "use an image with a newer Python, or set spec.restartPolicy.mode: Recreate" % sys.version_info[:2]
)


def refuse():  # type: ignore[no-untyped-def]
    """Exit with a Failed verdict for the operator, because no restart helps."""
    sys.stderr.write("tftraining: " + MESSAGE + "\n")
    path = json.loads(os.environ.get("TFTRAINING_LAUNCHER", "{}")).get("terminationMessage")
    if path:
        told = {"verdict": "Failed", "reason": "NoPython", "message": MESSAGE}
        nothing = {"member": None, "exitCode": None, "signal": None, "ledger": {}}  # type: ignore[var-annotated]
        with open(path, "w") as file:
            file.write("tftraining/1 " + json.dumps(dict(told, **nothing)) + "\n")
    sys.exit(1)


if __name__ == "__main__":
    if sys.version_info < (3, 9):
        refuse()
    from tftraining.launch.__main__ import run

    run()
