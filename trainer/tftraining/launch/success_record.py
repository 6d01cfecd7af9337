"""The record that the job has succeeded, in its storage: a gang that is started again after that trains nothing.

On a volume it is a file. A bucket is opened by the TensorFlow of the program's image, in a process of its own that is
there for a moment: the launcher has only the standard library, and TensorFlow would hold hundreds of megabytes. Storage
that is missing, denied or hangs must never fail a job: it costs a limited time and a line in the log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from posixpath import basename, join

from tftraining.launch.config.json_text import parse
from tftraining.launch.failure.result import Result
from tftraining.launch.in_user_process import bucket_object
from tftraining.launch.in_user_process.shared.python_command import PYTHON
from tftraining.launch.process.helpers import HelperError
from tftraining.launch.success_file import FILE, read_success, recorded_success, success_text, write_success
from tftraining.launch.wait_for import in_thread

FILE_SECONDS = 5.0
BUCKET = "gs://"
# For a read or a write. Most of it is the import of TensorFlow, which takes long on a crowded node.
BUCKET_SECONDS = 60.0
RunHelper = Callable[[Sequence[str], Mapping[str, str], float], Awaitable[str]]


class FileRecord:
    """The record in the job's directory on a volume. Without a directory there is none."""

    seconds = FILE_SECONDS  # the most that a read or a write may take
    # A member without a chief looks after so many seconds, then at this interval; a look may delay its next connection.
    first_look, pause, look_seconds = 0.0, 0.0, 2.0
    only_chief = False  # whether only the chief looks before the start

    def __init__(self, directory: Path | None, uid: str) -> None:
        self._directory = directory
        self._uid = uid

    async def read(self) -> Result | None:
        """The success of this job, if it is recorded. May hang with the storage."""
        return await in_thread(lambda: read_success(self._directory, self._uid))

    async def write(self) -> None:
        """Record the success; OSError if that fails. May hang with the storage."""
        if (directory := self._directory) is not None:
            await in_thread(lambda: write_success(directory, self._uid))

    @property
    def place(self) -> str:
        """The directory, for messages."""
        return str(self._directory)


class BucketRecord(FileRecord):
    """The record in a bucket. `run` runs a helper process; `log` logs a line."""

    seconds = BUCKET_SECONDS + 1
    first_look, pause, look_seconds = 10.0, 60.0, 0.0  # the chief's pod may be starting, and a look imports TensorFlow
    only_chief = True

    def __init__(
        self,
        place: str,
        uid: str,
        command: Sequence[str],
        env: Mapping[str, str],
        run: RunHelper,
        log: Callable[[str], None],
    ) -> None:
        super().__init__(None, uid)
        self._place = place
        python = command[0] if PYTHON.match(basename(command[0])) else sys.executable
        self._command = (python, bucket_object.__file__)
        # It needs no GPU, and its messages are of no interest.
        self._env = {**env, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._run = run
        self._log = log

    @property
    def place(self) -> str:
        """The job's directory in the bucket, for messages."""
        return self._place

    async def read(self) -> Result | None:
        """The success of this job, if it is recorded; a bucket that cannot be read is logged."""
        try:
            text = await self._ask("read")
        except OSError as error:
            self._log(
                f"tftraining: cannot read from {self._place} whether the job has succeeded before: {error.strerror}"
            )
            return None
        return recorded_success(text.encode(), self._uid, self._uri) if text is not None else None

    async def write(self) -> None:
        """Record the success; OSError if that fails."""
        await self._ask("write", success_text(self._uid))

    @property
    def _uri(self) -> str:
        return join(self._place, FILE)

    async def _ask(self, action: str, *texts: str) -> str | None:
        """The text of the object; OSError with the problem as `strerror`."""
        try:
            output = await self._run([*self._command, action, self._uri, *texts], self._env, BUCKET_SECONDS)
            answer = parse(output.rpartition("\n")[2])
        except (HelperError, ValueError) as error:
            raise OSError(0, str(error)) from error
        if not isinstance(answer, dict) or "error" in answer:
            raise OSError(0, str(answer.get("error")) if isinstance(answer, dict) else json.dumps(answer))
        text = answer.get("text")
        return text if isinstance(text, str) else None
