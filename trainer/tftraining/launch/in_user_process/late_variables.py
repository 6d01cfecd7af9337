"""The environment variables that the import of TensorFlow does not read: a program may set them before its import and
still be forked from an interpreter that has imported TensorFlow already.

Pure. Add a name only with a source that says when it is read; every other name counts as read by the import.
tests/processes/launch/test_late_variables.py compares the list with the reads of a real import.
"""

from __future__ import annotations

NAMES = frozenset(
    {
        # TFConfigClusterResolver (tensorflow/python/distribute/cluster_resolver) reads it when queried.
        "TF_CONFIG",
        # tensorflow/core/common_runtime/gpu reads them when a GPU becomes a device of TensorFlow.
        *("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE"),
        # gRPC (doc/environment_variables.md) reads them for each channel, urllib and requests for each request.
        *("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        # Python (Doc/using/cmdline.rst) reads them when an interpreter starts: they affect only the program's children.
        *("PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONWARNINGS"),
        # scikit-learn sets them for Intel's and LLVM's OpenMP (openmp.llvm.org, "Environment Variables"), which
        # TensorFlow, Keras and their imports do not load.
        *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),
        # google/auth and TensorFlow's google_auth_provider.cc read it when they need a token.
        "GOOGLE_APPLICATION_CREDENTIALS",
        # Hugging Face's tokenizers, which neither TensorFlow nor Keras imports, read it.
        "TOKENIZERS_PARALLELISM",
    }
)
PREFIXES = (
    "TFTRAINING_",  # set by the launcher for the program
    "NCCL_",  # NCCL's user guide, "Environment Variables": read when a communicator is created
    # Read by packages of these names, which neither TensorFlow nor Keras imports.
    *("HF_", "MLFLOW_", "TRANSFORMERS_", "WANDB_"),
)


def is_read_later(name: str) -> bool:
    """Whether no code that runs in the import of TensorFlow reads the variable."""
    return name in NAMES or name.startswith(PREFIXES)
