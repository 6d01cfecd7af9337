"""Whether this process trains without the other members that its TF_CONFIG names.

Such a program has no strategy of that cluster: each member trains a model of its own, and all of them write the same
files as the chief. It must never accuse a program that may talk to the others in a way that nobody here sees.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

# Libraries that connect processes, or train, without TensorFlow's connections.
OTHER_WAYS = frozenset({"horovod", "byteps", "mpi4py", "torch", "jax", "ray"})
SERVER_MODULE = "tensorflow.python.training.server_lib"


class Peers:
    """The other members of the gang, by the TF_CONFIG with which the program was started."""

    def __init__(self, tf_config: str) -> None:
        self._exist = names_trainer(tf_config)
        self._joined = False
        self.is_watched = False  # TensorFlow's connections are seen

    def join(self, server_def: Any) -> None:
        """Note that this process connects to the tasks that TensorFlow's ServerDef names; not to its own alone."""
        try:
            self._joined = self._joined or sum(len(job.tasks) for job in server_def.cluster.job) > 1
        except Exception:
            self._joined = True  # of another form: nobody knows

    def are_left_out(self) -> bool:
        """Whether this process, which makes steps, has never joined them."""
        alone = self._exist and self.is_watched and not self._joined
        return alone and OTHER_WAYS.isdisjoint(sys.modules) and not _has_server()


def names_trainer(tf_config: str) -> bool:
    """Whether this TF_CONFIG is that of a chief or worker beside other ones."""
    try:
        config = json.loads(tf_config)
        count = sum(len(config["cluster"].get(role, ())) for role in ("chief", "worker"))
        return count > 1 and config["task"]["type"] in ("chief", "worker")
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def names_parameter_server(tf_config: str) -> bool:
    """Whether this TF_CONFIG, which `names_trainer`, has parameter servers."""
    return bool(json.loads(tf_config)["cluster"].get("ps"))


def _has_server() -> bool:
    """Whether a tf.distribute.Server exists. The search takes a tenth of a second, once in a process that is alone."""
    kind = getattr(sys.modules.get(SERVER_MODULE), "Server", None)
    return kind is not None and any(type(each) is kind for each in gc.get_objects())
