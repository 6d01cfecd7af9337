"""Which commands of a shell are told to fail in a restart, in the same container."""

import pytest

from tftraining_client.tfjob.repeatability import unrepeatable


def told(script: str, *options: str) -> list[str]:
    return [words for words, _ in unrepeatable(["/bin/sh", *(options or ("-c",)), script])]


@pytest.mark.parametrize(
    "command",
    [
        "mkdir $TMPDIR/src",
        "mkdir -m 700 a",
        "git clone https://x/y.git",
        "ln -s a b",
        "cp -r /data .",
        "tar -x --keep-old-files -f a.tar",
        "mv a b",
        "unzip a.zip",
        "unzip -q a.zip",
        "sudo mkdir a",
        "A=1 mkdir a",
    ],
)
def test_a_command_that_cannot_run_twice_is_told(command: str) -> None:
    assert told(f"{command} && python train.py") == [command]


@pytest.mark.parametrize(
    "script",
    [
        "mkdir -p a && python train.py",
        "mkdir -pv a && python train.py",
        "ln -sfn a b && python train.py",
        "cp -rf a b && python train.py",
        "cp a b && python train.py",
        "tar -xf a.tar && python train.py",
        "unzip -oq a.zip && python train.py",
        "git -C src pull && python train.py",
        "mkdir a || true; python train.py",
        "mkdir a; python train.py",  # its failure changes nothing
        "[ -d src ] || git clone x src && python train.py",
        "test ! -d src && git clone x src; python train.py",
        "if [ ! -d src ]; then git clone x src; fi && python train.py",
        "python mkdir.py && echo 'mkdir a && b'",
        "echo mkdir a && python train.py",
        "python 'unbalanced && mkdir a",
        "",
    ],
)
def test_nothing_else_is_told(script: str) -> None:
    assert told(script) == []


def test_with_the_option_e_every_failure_ends_the_script() -> None:
    assert told("mkdir a; python train.py", "-ec") == ["mkdir a"]
    assert told("mkdir a; python train.py", "-e", "-c") == ["mkdir a"]
    assert told("set -ex\nmkdir a\nln -s b c\npython train.py") == ["mkdir a", "ln -s b c"]
    assert told("mkdir a\n mkdir b \\\n c && \\\n python train.py") == ["mkdir b c"]


def test_only_the_script_of_a_shell_is_read() -> None:
    assert unrepeatable(["python", "-c", "mkdir a && b"]) == []
    assert unrepeatable(["sh", "start.sh", "mkdir"]) == []
    assert unrepeatable(["bash", "-c"]) == []
    assert unrepeatable([]) == []
    assert unrepeatable(["bash", "-lc"], ["mkdir a && b"]) == [("mkdir a", "mkdir -p")]
