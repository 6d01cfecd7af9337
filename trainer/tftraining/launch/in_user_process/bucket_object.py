"""`python bucket_object.py read URI` and `write URI TEXT`: one small object of a bucket, opened by TensorFlow.

The launcher runs this by the Python of the program, for only that one has TensorFlow. The last line of the output is
JSON: `{"text": …}`, null for an object that does not exist, or `{"error": …}`.
"""

from __future__ import annotations

import json
import sys

LIMIT = 4096  # bytes of an object that are read


def run(action: str, uri: str, text: str = "") -> dict[str, str | None]:
    """Read the object, or write the text to it. What cannot be done becomes an `error`, for people."""
    try:
        import tensorflow as tf  # noqa: PLC0415  may not be there
    except ImportError as error:
        return {"error": str(error)}
    try:
        with tf.io.gfile.GFile(uri, "w" if action == "write" else "r") as file:
            return {"text": file.write(text) if action == "write" else file.read(LIMIT)}
    except tf.errors.NotFoundError as error:
        return {"text": None} if action == "read" else {"error": _line(error)}
    except tf.errors.OpError as error:
        return {"error": _line(error)}


def _line(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", error)).split())


if __name__ == "__main__":
    del sys.path[0]  # the directory of this file: its modules must not hide those that TensorFlow imports
    print(json.dumps(run(*sys.argv[1:])), flush=True)
