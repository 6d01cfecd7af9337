"""What runs in, or beside, a training process: path helpers, data, callbacks, the cleanup, the example programs.

Importing this package must stay free of cost: it must never import TensorFlow, for the cleanup runs in an
image without it.
"""

from tftraining.report import begin, report

__all__ = ["begin", "report"]
__version__ = "0.1.0"
