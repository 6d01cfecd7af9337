"""Which variables of the environment nothing reads while TensorFlow is imported: a program may set them before its
import and still be forked from an interpreter that has imported TensorFlow already.

Pure. A name belongs here only with a source that says when it is read; what is not here counts as read by the import.
tests/processes/launch_child/test_read_later.py holds the list against what a real import reads.
"""

from __future__ import annotations

NAMES = frozenset(
    {
        # TFConfigClusterResolver (tensorflow/python/distribute/cluster_resolver) reads it when it is asked.
        "TF_CONFIG",
        # tensorflow/core/common_runtime/gpu reads them when a GPU becomes a device of TensorFlow.
        *("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE"),
        # gRPC (doc/environment_variables.md) reads them with each channel, urllib and requests with each request.
        *("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        # Python (Doc/using/cmdline.rst) reads them when an interpreter starts: they are for the program's children.
        *("PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONWARNINGS"),
        # scikit-learn sets them for Intel's and LLVM's OpenMP (openmp.llvm.org, "Environment Variables"), which
        # TensorFlow, Keras and what they import do not load.
        *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),
        # google/auth, and TensorFlow's google_auth_provider.cc, read it when they need a token.
        "GOOGLE_APPLICATION_CREDENTIALS",
        # Hugging Face's tokenizers, which neither TensorFlow nor Keras imports, read it.
        "TOKENIZERS_PARALLELISM",
    }
)
PREFIXES = (
    "TFTRAINING_",  # the launcher's, for the program
    "NCCL_",  # NCCL's user guide, "Environment Variables": read when a communicator is made
    # Read by packages of these names, which neither TensorFlow nor Keras imports.
    *("HF_", "MLFLOW_", "TRANSFORMERS_", "WANDB_"),
)


def read_later(name: str) -> bool:
    """Whether the variable of this name is read by nothing that importing TensorFlow executes."""
    return name in NAMES or name.startswith(PREFIXES)
