"""What a launcher notices of its program at each heartbeat: it hangs, has failed but for a thread, or sees no GPU.

It must never end a program that has not failed.
"""

from __future__ import annotations

from tftraining.launch.config.settings import Settings
from tftraining.launch.gang.aftermath import only_serves
from tftraining.launch.process.main_thread_end import MainThreadEnd
from tftraining.launch.process.process_state import StuckDetector
from tftraining.launch.process.program import Program
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous.protocol import Frame


class ProgramWatch:
    """The watch over the program of one member, in all rounds."""

    def __init__(self, settings: Settings, program: Program) -> None:
        self._settings = settings
        self._program = program
        self._stuck_detector = StuckDetector()
        self._sees_no_gpu = False  # TensorFlow sees none of the GPUs that the container requests
        self.begin_round()

    def begin_round(self) -> None:
        """Watch a program that is about to start."""
        self._main_thread_end = MainThreadEnd(self._settings.policy.termination_grace_seconds)

    def look(self, snapshot: Snapshot, now: float, *, is_running: bool) -> Frame:
        """Look at the program: the fields of a heartbeat."""
        stuck = self._stuck_detector.stuck_seconds(self._program.pid, now)
        self._check_gpus()
        if is_running:
            self._check_main_thread(snapshot, now)
        return {"stuck": stuck, "noGpu": self._sees_no_gpu, "lingers": self._main_thread_end.lingers}

    def _check_main_thread(self, snapshot: Snapshot, now: float) -> None:
        """End a program that has failed, but for a thread that keeps it alive; a program that only serves others may
        do so on."""
        gang, lingered = self._settings.gang, self._main_thread_end.lingers
        over = self._main_thread_end.is_over(snapshot, now) and not only_serves(gang.me, gang, snapshot)
        if over and self._program.pid is not None:
            self._program.log("tftraining: the program has failed, and its process does not end: ending it")
            self._program.end_as_its_main_thread(snapshot.main_exit or 1)
        elif self._main_thread_end.lingers and not lingered:
            how = "failed" if snapshot.main_exit else "finished"
            self._program.log(f"tftraining: the program has {how}; a thread of it still runs")

    def _check_gpus(self) -> None:
        """Check whether TensorFlow sees none of the GPUs that the container requests. The previous round's answer
        counts until this round's program reports."""
        requested, seen = self._settings.gpus, self._program.gpu_count
        if not requested or seen is None:
            return
        if not seen and not self._sees_no_gpu:
            self._program.log(
                f"tftraining: NoGPU: the container requests GPUs ({requested}), but TensorFlow sees none and trains on "
                "the CPU: install NVIDIA's CUDA libraries in the image"
            )
        self._sees_no_gpu = not seen
