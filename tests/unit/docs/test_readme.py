"""What README shows of the own program is what examples/own-program.yaml has, and its pictures are there."""

import re
from typing import Any

import yaml

from tests.support.repository import REPOSITORY
from tests.unit.client.test_validation import merged

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONFIG_MAP, JOB = yaml.safe_load_all((REPOSITORY / "examples" / "own-program.yaml").read_text(encoding="utf-8"))


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return str(found)


def lines(text: str) -> list[str]:
    """The lines that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def side(*signs: str) -> str:
    """One side of the difference."""
    return "\n".join(line[1:] for line in block("diff").splitlines() if line[:1] in ("", *signs))


def test_the_program_after_is_the_one_in_the_example() -> None:
    assert lines(side(" ", "+")) == lines(CONFIG_MAP["data"]["train.py"])


def test_the_program_before_is_a_program() -> None:
    before = side(" ", "-")
    compile(before, "before.py", "exec")
    assert "TFTRAINING" not in before and "strategy" not in before


def test_the_job_is_the_one_in_the_example() -> None:
    shown: dict[str, Any] = yaml.safe_load(block("yaml"))
    (container,) = shown["spec"]["template"]["spec"]["containers"]
    (whole,) = JOB["spec"]["template"]["spec"]["containers"]
    shown["spec"]["template"]["spec"]["containers"] = [merged(whole, container)]
    assert merged(JOB, shown) == JOB
    assert shown["spec"].keys() == JOB["spec"].keys()


def test_the_pictures() -> None:
    pictures = [REPOSITORY / name for name in re.findall(r"^!\[.*\]\((.*)\)$", README, re.MULTILINE)]
    assert [picture.name for picture in pictures] == ["restart.svg", "demo.svg", "dashboard.png"]
    assert all(picture.is_file() for picture in pictures)


def test_the_recording_is_of_a_training_that_was_killed_and_resumed() -> None:
    text = (REPOSITORY / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    assert "SIGKILL for the program of worker-1 (--kill worker-1@epoch=3)" in text
    where = r"(epoch 2|memory at step \d+)"
    assert re.search(rf"worker-1 was killed \(SIGKILL\), resumed from {where}, \d+\.\d s without training", text)
    assert "Succeeded in" in text
