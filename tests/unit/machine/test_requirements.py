"""The locked requirements of the images: what each has to bring, and that none names a server."""

from __future__ import annotations

import re

import pytest

from testbed.pod_images import HEAVY, REQUIREMENTS
from tests.support.repository import REPOSITORY

LOCKED = sorted(path.name for path in (REPOSITORY / "requirements").glob("*.txt"))
# What TensorFlow asks for under its extra `and-cuda`, by the libraries that it opens when it looks for GPUs.
CUDA = ("cublas", "cuda-cupti", "cuda-runtime", "cudnn", "cufft", "cusolver", "cusparse", "nccl")


def packages(name: str) -> dict[str, str]:
    """The versions of the packages in a file."""
    text = (REPOSITORY / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==(\S+)", text, re.MULTILINE))


def test_the_image_for_gpus_has_the_libraries_that_tensorflow_opens() -> None:
    found = packages("trainer-gpu.txt")
    assert [each for each in CUDA if f"nvidia-{each}-cu12" not in found] == []
    assert not [each for each in packages("trainer.txt") if each.startswith("nvidia-")]


def test_the_trainers_have_the_same_versions() -> None:
    plain, gpu, cpu = (packages(f"trainer{kind}.txt") for kind in ("", "-gpu", "-cpu"))
    assert plain.items() <= gpu.items()
    assert {name: version for name, version in cpu.items() if name in plain}.items() <= plain.items()
    assert plain["tensorflow"] == cpu["tensorflow-cpu"]


@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_names_no_server_and_has_a_hash_for_each_package(name: str) -> None:
    text = (REPOSITORY / "requirements" / name).read_text(encoding="utf-8")
    assert "://" not in text and "index-url" not in text
    pinned = re.findall(r"^[A-Za-z0-9_.\[\]-]+==.*(?:\n    --hash=sha256:.*)*", text, re.MULTILINE)
    assert pinned and [each for each in pinned if "--hash=sha256:" not in each] == []


def test_the_images_of_the_tests_are_built_again_when_what_they_install_changes() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (\S*requirements\S*|\$\{REQUIREMENTS\}) ", dockerfile, re.MULTILINE)
    assert len(copied) == 2
    assert {each.replace("${REQUIREMENTS}", REQUIREMENTS) for each in copied} <= {*HEAVY}


def test_each_file_of_the_images_is_one_that_make_locks() -> None:
    (extras,) = re.findall(r"for extra in (.*?);", (REPOSITORY / "Makefile").read_text(encoding="utf-8"))
    assert {f"{extra}.txt" for extra in extras.split()} | {"audit.txt", "kfp.txt", "uv.txt"} == set(LOCKED)
    for page in ("Dockerfile", "docs/programs.md"):
        named = re.findall(r"requirements/([a-z-]+\.txt)", (REPOSITORY / page).read_text(encoding="utf-8"))
        assert set(named) <= set(LOCKED) and "trainer-gpu.txt" in named
