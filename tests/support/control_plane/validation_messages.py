"""What `tftj` says to a manifest, beside what the API server says: the same problems in the same words.

Left out of the comparison: their order, what kubectl puts in front, the nearest field that `tftj` proposes, and the
lines about the scale subresource (they begin with a dot), which only repeat that a number is no number. Where a rule is
broken, `tftj` and Kubernetes 1.34 tell the type (`Invalid value: "object": must …`), later versions the value of a
scalar: with those neither is compared.
Kubernetes 1.36 tells of a number that is too large, or none, once more, in place of the rules that it did not check.
"""

import re
from typing import Any

import pytest

from testbed.binaries import KUBERNETES_MINOR
from tests.support.control_plane.manifests import Manifest
from tftraining_client.validation import InvalidManifest, validate

NEAREST = re.compile("; did you mean .*[?]$")  # what tftj adds
NEWER = re.compile("Checked value must be of type |some validation rules were not checked")
VALUE = re.compile(r'(?<=Invalid value: )("([^"\\]|\\.)*"|-?[\d.]+|true|false): (?!\S+ in body )')
# Shapes that no rule speaks of: wrong types, nulls, and several problems at once.
SHAPES: dict[str, dict[str, Any]] = {
    "spec a string": {"spec": "x"},
    "role a list": {"spec.replicaSpecs.worker": []},
    "replicas a string": {"spec.replicaSpecs.worker.replicas": "2"},
    "flag a string": {"spec.launcher.warmStart": "yes"},
    "command a string": {"spec.template.spec.containers.0.command": "python x.py"},
    "numbers in the command": {"spec.template.spec.containers.0.command": ["python", 3, True]},
    "env a map": {"spec.template.spec.containers.0.env": {"A": "1"}},
    "env with no name": {"spec.template.spec.containers.0.env": [{"value": "1"}]},
    "container null": {"spec.template.spec.containers.0": None},
    "template null": {"spec.template": None},
    "mode a number": {"spec.restartPolicy.mode": 3},
    "long command": {"spec.template.spec.containers.0.command": ["x" * 65537]},
    "many variables": {"spec.template.spec.containers.0.env": [{"name": f"A{i}"} for i in range(513)]},
    "name in capitals": {"metadata.name": "Digits"},
    "metadata misspelt": {"metadata.lables": {}},
    "two unknown fields": {"spec.foo": 1, "spec.bar": {"a": 1}},
    "two bounds and a rule": {"spec.restartPolicy.maxRestarts": -1, "spec.replicaSpecs.worker.replicas": 0},
    "an enum, and a rule that is not asked": {"spec.successPolicy": "x", "spec.minReplicas": 4},
    "duplicates and rules": {"spec.storage.saveDirs": ["a", "a", "../x"], "spec.storage.directory": "/a"},
}


def local_problems(manifest: Manifest) -> list[str]:
    """The problems that are found without a cluster."""
    with pytest.raises(InvalidManifest) as rejection:
        validate(manifest)
    return problems(str(rejection.value))


def problems(message: str) -> list[str]:
    """The problems that a message tells of, sorted."""
    text = NEAREST.sub("", message[message.index("TFTrainingJob ") :])
    lines = text.replace("is invalid: \n", "is invalid: ").replace("is invalid: ", "is invalid:\n").splitlines()
    if KUBERNETES_MINOR != "1.34":
        lines = [_in_older_words(line) for line in lines if not NEWER.search(line)]
    return sorted(line.removeprefix("* ") for line in lines if not line.startswith("* ."))


def _in_older_words(line: str) -> str:
    """A line of a later Kubernetes without the value, and with the types of JSON."""
    return VALUE.sub("", line).replace('"float64"', '"number"').replace("of type int32: ", "of type integer: ")
