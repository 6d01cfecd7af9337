"""`tftj init`: its manifest is valid, and `tftj run` runs it at once."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tftraining_client.__main__ import main
from tftraining_client.validation import check_templates, validate

# Each worker waits for the other: the job ends with its chief, and what the others would still print is lost.
PROGRAM = """
import os, sys, time
place = os.environ["TFTRAINING_DIR"]
print("in", os.path.basename(place), *sys.argv[1:], flush=True)
open(f"{place}/{os.getpid()}.worker", "w").close()
while sum(name.endswith(".worker") for name in os.listdir(place)) < 2:
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current directory, with a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My_train.py").write_text(PROGRAM)
    return tmp_path


def tftj(*words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tftraining_client", *words], capture_output=True, text=True, check=False, **streams
    )


def test_the_manifest_runs_here_at_once() -> None:
    made = tftj("init", "My_train.py --epochs 3")
    # A warm start imports TensorFlow, which this program does not need.
    done = tftj("run", "-", "--set", "spec.launcher.warmStart=false", input=made.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("in my-train --epochs 3") == 2, "of two workers"
    assert "#   tftj submit job.yaml --code .\n" in made.stdout and made.stderr == ""


def test_options_are_in_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workers", "3", "--image", "me/tf:1", "--claim", "data", "--gpus", "2", "--name", "big"]
    assert main(["init", "python -m package.train", *options]) == 0
    text = capsys.readouterr().out
    job = yaml.safe_load(text)
    assert check_templates(validate(job)) == [] and job["metadata"]["name"] == "big"
    assert job["spec"]["replicaSpecs"] == {"worker": {"replicas": 3}}
    assert job["spec"]["storage"] == {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}
    assert job["spec"]["template"]["spec"]["containers"] == [
        {
            "name": "tensorflow",
            "image": "me/tf:1",
            "command": ["python", "-m", "package.train"],
            "resources": {"limits": {"nvidia.com/gpu": 2}},
        }
    ]
    assert "--code" not in text, "the image has the program"


def answered(*answers: str) -> subprocess.CompletedProcess[str]:
    """The command with a person at the terminal, who answers so; the image is given."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(theirs) as terminal:
        keyboard.write("".join(f"{each}\n" for each in answers).encode())
        return tftj("init", "--image", "mine", stdin=terminal)


def test_a_person_at_a_terminal_is_asked() -> None:
    done = answered("My_train.py", "", "-", "1")
    assert done.stderr.count("]: ") == 3 and "image" not in done.stderr
    spec = yaml.safe_load(done.stdout)["spec"]
    assert spec["replicaSpecs"]["worker"]["replicas"] == 2 and "storage" not in spec
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("mine", {"limits": {"nvidia.com/gpu": 1}})


def test_an_answer_that_is_no_number_is_refused() -> None:
    done = answered("My_train.py", "two")
    assert (done.returncode, done.stdout) == (2, "") and "workers: two is no number" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "init takes PROGRAM"),
        (["none.py"], "none.py: no such file below this directory"),
        (["../outside.py"], "../outside.py: no such file below this directory"),
        (["'"], "No closing quotation"),
        ([""], "the program is empty"),
        (["My_train.py", "--name", "Big"], "a lowercase RFC 1123 subdomain"),
    ],
)
def test_what_cannot_run_is_refused(
    words: list[str], said: str, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.parent / "outside.py").touch()
    monkeypatch.setattr("sys.stdin", open(os.devnull, encoding="utf-8"))  # noqa: PTH123, SIM115  closed by the fixture
    assert main(["init", *words]) == 2
    found = capsys.readouterr()
    assert said in found.err and found.out == ""
    sys.stdin.close()
