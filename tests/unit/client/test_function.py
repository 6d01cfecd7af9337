"""A function as the program of a job: what travels, what cannot, and the Python that it needs."""

import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tftraining_client import UserError, distributed, from_function
from tftraining_client.code import pack_files
from tftraining_client.code.function_package import function_files
from tftraining_client.code.package import files_of
from tftraining_client.function import Options, job_manifest

BASE = 40
LOCK = threading.Lock()


def helper(number: int) -> int:
    return BASE + number


def train(number: int, *, text: str = "") -> None:
    print(helper(number), text)


def waits() -> None:
    with LOCK:
        pass


def run(files: dict[str, bytes], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the script as a pod does: without the tests, and without cloudpickle of its own."""
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    command = [sys.executable, "-S", "run_function.py"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_function_runs_where_neither_its_module_nor_cloudpickle_is(tmp_path: Path) -> None:
    done = run(function_files(train, (2,), {"text": "epochs"}), tmp_path)
    assert (done.stdout, done.stderr) == ("42 epochs\n", "")
    partial = run(function_files(functools.partial(train, text="more"), (3,), {}), tmp_path)
    assert (partial.stdout, partial.stderr) == ("43 more\n", "")


def test_another_python_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    files = function_files(train, (2,), {})
    monkeypatch.undo()
    done = run(files, tmp_path)
    have = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"ImportError: the function was pickled by Python 3.9, but the image has Python {have}" in done.stderr


async def coroutine() -> None: ...


def generator() -> Any:
    yield


@pytest.mark.parametrize("nothing", [coroutine, generator, functools.partial(generator)])
def test_a_function_whose_call_runs_nothing_is_refused(nothing: Any) -> None:
    with pytest.raises(UserError, match="a coroutine or a generator: a call of it runs nothing"):
        from_function(nothing)


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    with pytest.raises(UserError, match=r"^train\(number: int.*cannot be called so: missing a required argument"):
        from_function(train)
    with pytest.raises(UserError, match="too many positional arguments"):
        from_function(train, 1, 2)


def test_a_pod_template_is_merged_into_that_of_the_function() -> None:
    gpus = {"name": "tensorflow", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod = {"nodeSelector": {"gpu": "a"}, "containers": [gpus, {"name": "side", "image": "x"}]}
    spec = job_manifest("a", Options(spec={"template": {"spec": pod}, "replicaSpecs": {"ps": {}}}))["spec"]
    own, side = spec["template"]["spec"]["containers"]
    assert own["command"] == ["python", "run_function.py"] and own["resources"] == gpus["resources"]
    assert side == {"name": "side", "image": "x"} and spec["template"]["spec"]["nodeSelector"] == {"gpu": "a"}
    assert spec["replicaSpecs"] == {"worker": {"replicas": 2}, "ps": {}}


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(UserError, match=r"the function waits cannot be sent .*: the variable LOCK \(lock\) cannot be"):
        from_function(waits)
    with pytest.raises(UserError, match=r"argument 2 \(lock\) cannot be pickled.*make it inside the function"):
        from_function(train, 1, LOCK)
    local = threading.Lock()

    def inner() -> None:
        with local:
            pass

    with pytest.raises(UserError, match=r"the variable local \(lock\)"):
        from_function(inner)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(UserError, match="unknown option worker: the options are workers, storage"):
        distributed(worker=3)
    with pytest.raises(UserError, match='must be "cluster" or "local"'):
        from_function(train, 1, where="there")
    with pytest.raises(UserError, match=r"call submit\(\) first"):
        from_function(train, 1, where="local").wait()


def test_the_job_of_a_function() -> None:
    manifest = job_manifest("train", Options(workers=3, storage="claim", spec={"minReplicas": 2}))
    spec: dict[str, Any] = manifest["spec"]
    assert spec["replicaSpecs"] == {"worker": {"replicas": 3}} and spec["minReplicas"] == 2
    assert spec["storage"] == {"volume": {"persistentVolumeClaim": {"claimName": "claim"}}}
    assert from_function(train, 1).name.startswith("train-") and from_function(train, 1, name="mine").name == "mine"


def test_a_function_that_uses_tensorflow_is_forked_from_a_warm_interpreter() -> None:
    script = function_files(train, (), {})["run_function.py"].decode()
    assert "tensorflow" not in script.replace("tftraining_client", "")
    namespace: dict[str, Any] = {"tf": type(sys)("tensorflow")}
    exec("def fit(): tf.constant(1)", namespace)
    warm = function_files(namespace["fit"], (), {})["run_function.py"].decode()
    assert "\nimport tensorflow " in warm


def test_files_travel_beside_the_function() -> None:
    assert files_of(pack_files({"a/b.py": b"1", "c": b"2"})) == {"a/b.py": b"1", "c": b"2"}
