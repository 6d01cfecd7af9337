"""A function as the program of a job: what travels, what cannot, and the Python that it needs."""

import functools
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.unpack import unpack
from tftraining_client import UserError, distributed, from_function
from tftraining_client.code import Package, pack, pack_files
from tftraining_client.code.function_package import PACKAGES, function_files
from tftraining_client.code.package import write_files
from tftraining_client.function_job import Options, job_manifest

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
    command = [sys.executable, *([] if PACKAGES in files else ["-S"]), "run_function.py"]
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


def unpacked(package: Package, directory: Path) -> Path:
    archive = directory.with_suffix(".tar.gz")
    archive.write_bytes(package.data)
    unpack(archive, package.digest, directory)
    return directory


def test_a_directory_travels_beside_the_function_with_its_links_and_executables(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "prepare.sh").write_text("true")
    (own / "prepare.sh").chmod(0o755)
    (own / "link").symlink_to("prepare.sh")
    (own / "all").symlink_to(".")
    package = pack_files({"a/b.py": b"1", "function.pkl": b"2"}, pack(own))
    # On the way of a cluster, and on that of this machine.
    write_files(package, tmp_path / "local")
    for place in (unpacked(package, tmp_path / "pod"), unpacked(pack(tmp_path / "local"), tmp_path / "again")):
        assert os.access(place / "prepare.sh", os.X_OK) and not os.access(place / "a" / "b.py", os.X_OK)
        assert (place / "link").readlink() == Path("prepare.sh") and (place / "all" / "link").read_text() == "true"
        assert (place / "function.pkl").read_bytes() == b"2"


def wheel(directory: Path, name: str, version: str, text: str) -> None:
    """A wheel with one module."""
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as file:
        info = f"{name}-{version}.dist-info"
        file.writestr(f"{name}.py", text)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def uses_package() -> None:
    import tiny_wheel  # type: ignore[import-not-found]  # noqa: PLC0415

    print(tiny_wheel.VALUE, subprocess.check_output([sys.executable, "-c", "import tiny_wheel as t; print(t.VALUE)"]))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip takes wheels from this directory only; the programs have a directory for temporary files of their own."""
    (tmp_path / "tmp").mkdir()
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index"), "TMPDIR": str(tmp_path / "tmp")}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    wheel(tmp_path / "index", "tiny_wheel", "1.0", "VALUE = 7")
    wheel(tmp_path / "index", "pyyaml", "0.1", "")
    return tmp_path / "index"


def test_packages_are_installed_once_a_container_also_by_workers_that_start_at_once(
    index: Path, tmp_path: Path
) -> None:
    files = function_files(uses_package, (), {}, ["tiny_wheel>=1", "pyyaml"])
    places = [tmp_path / "one", tmp_path / "other"]
    for each in places:
        each.mkdir()
    with ThreadPoolExecutor() as threads:
        both = list(threads.map(functools.partial(run, files), places))
    assert [each.stdout for each in both] == ["7 b'7\\n'\n"] * 2, [each.stderr for each in both]
    assert any("installing the packages of the function: tiny_wheel>=1, pyyaml" in each.stderr for each in both)
    # What the image has is not installed beside it.
    (installed,) = (tmp_path / "tmp").iterdir()
    assert list(installed.glob("**/tiny_wheel.py")) and not list(installed.glob("**/pyyaml*"))
    shutil.rmtree(index)
    again = run(files, tmp_path)
    assert (again.stdout, again.stderr) == (both[0].stdout, "")


@pytest.mark.slow_fault
def test_packages_that_cannot_be_had_are_named_in_one_line(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(function_files(uses_package, (), {}, ["pyyaml==0.1"]), tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "RuntimeError: the packages of the function cannot be installed (pyyaml==0.1): Cannot install"
    )
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.delenv("PIP_NO_INDEX")
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}.items():
        monkeypatch.setenv(name, value)
    done = run(function_files(uses_package, (), {}, ["not-there"]), tmp_path)
    assert "(not-there): the pod has no way to the index: set env PIP_INDEX_URL" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "packages", ["pandas", ["--index-url https://x"], ["a\nb"], ["a @ https://me:p4ss@host/a.whl"]]
)
def test_what_is_no_requirement_is_refused(packages: Any) -> None:
    with pytest.raises(UserError, match="packages: ") as refused:
        from_function(train, 1, packages=packages)
    assert "p4ss" not in str(refused.value)


def container(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = job_manifest("a", Options(**options))["spec"]["template"]["spec"]["containers"][0]
    return found


def test_resources_and_variables_are_those_of_the_container() -> None:
    key = {"secretKeyRef": {"name": "wandb", "key": "token"}}
    asked = container(resources={"nvidia.com/gpu": 1, "cpu": 2.5}, env={"DEBUG": "$(HOME)", "WANDB_API_KEY": key})
    assert asked["resources"] == {"limits": {"nvidia.com/gpu": "1", "cpu": "2.5"}}
    assert asked["env"] == [
        {"name": "DEBUG", "value": "$$(HOME)"},
        {"name": "WANDB_API_KEY", "valueFrom": key},
    ]
    # As Kubernetes has them, and with a template beside them, which comes last.
    pod = {
        "containers": [
            {"name": "tensorflow", "resources": {"limits": {"cpu": "8"}}, "env": [{"name": "B", "value": "2"}]}
        ]
    }
    both = container(resources={"requests": {"cpu": "1"}}, env={"A": "1", "B": "1"}, spec={"template": {"spec": pod}})
    assert both["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "8"}}
    assert both["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert "env" not in container() and "resources" not in container()


def test_a_secret_is_no_plain_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "password"):
        with pytest.raises(UserError, match=f"env: {name} looks like a secret.*secretKeyRef") as refused:
            container(env={name: "p4ss"})
        assert "p4ss" not in str(refused.value)
        assert container(env={name: "p4ss"}, where="local")["env"] == [{"name": name, "value": "p4ss"}]
    with pytest.raises(UserError, match="env: the value of N must be a text"):
        container(env={"N": 1})
    # A job of this machine inherits the variables of its caller.
    key = {"secretKeyRef": {"name": "wandb", "key": "token"}}
    monkeypatch.setenv("HF_TOKEN", "mine")
    assert "env" not in container(env={"HF_TOKEN": key}, where="local")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="set the variable HF_TOKEN here"):
        container(env={"HF_TOKEN": key}, where="local")
