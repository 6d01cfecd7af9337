"""Code that runs in or beside a training process: path helpers, data, callbacks, the cleanup, example programs.

Importing this package must stay cheap and must never import TensorFlow: the cleanup runs in an image without
TensorFlow.
"""

from tftraining.cluster import scaled
from tftraining.memory_backup import MemoryBackup
from tftraining.moving_statistics import average_moving_statistics
from tftraining.report import begin, report

__all__ = ["MemoryBackup", "average_moving_statistics", "begin", "report", "scaled"]
__version__ = "0.1.0"
