"""The last section of docs/keras3.md: what the launcher's hooks change in TensorFlow and Keras, from what they declare.

A module of the hooks declares each Surface that it touches (in_user_process/surface.py), and its docstring says why.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tftraining.launch import in_user_process
from tftraining.launch.in_user_process.surface import Part, Surface

PAGE = Path(__file__).parents[2] / "docs" / "keras3.md"
PACKAGES = {"package": "tf_keras.src", "module": "tf_keras.src.callbacks"}
MADE = "<!-- From here on made by `make reference`. -->\n"
HEAD = """
## What is changed in TensorFlow and Keras

A program needs no change for the launcher: its hooks extend methods of TensorFlow and Keras in the process that trains.
Each hook declares the modules, classes, methods, parameters and attributes that it touches. They are checked before
anything is changed. All changes of a feature are made, or none: a version in which something has another name is left
alone and trains as it would without the launcher, and one line of its log says what is lost and what is missing. A new
version of TensorFlow costs at worst a feature. `tests/processes/launch/test_guards.py` trains with copies of tf_keras
and Keras in which names are changed. The sections above have the reasons of the patches `keras3`.

`tf_keras` stands for Keras 2 under each of its names. A method without parameters here may have any.
"""


def page() -> str:
    """The page: its sections written by hand, then the one made from the code."""
    by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MADE)
    return by_hand + MADE + HEAD + "".join(map(_section, declaring()))


def declaring() -> Iterator[tuple[ModuleType, list[Surface]]]:
    """The modules of the hooks that declare a surface."""
    for found in pkgutil.walk_packages(in_user_process.__path__, f"{in_user_process.__name__}."):
        if not found.name.endswith((".zygote", ".sitecustomize")):  # they run when they are imported
            module = importlib.import_module(found.name)
            surfaces = [each for value in vars(module).values() for each in _surfaces(value)]
            if surfaces:
                yield module, surfaces


def _surfaces(value: Any) -> list[Surface]:
    values = value.values() if isinstance(value, dict) else [value]
    return [each for each in values if isinstance(each, Surface)]


def _section(declared: tuple[ModuleType, list[Surface]]) -> str:
    module, surfaces = declared
    name = module.__name__.removeprefix(f"{in_user_process.__name__}.")
    why = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    lost = dict.fromkeys(each.lost for each in surfaces)
    tables = [
        f"\nIn an unknown version: {text}.\n\n| class or method | of | what it must use |\n|---|---|---|\n"
        + "".join(dict.fromkeys(_row(part) for each in surfaces if each.lost == text for part in each.parts))
        for text in lost
    ]
    return f"\n### {name}\n\n{why}\n" + "".join(tables)


def _row(part: Part) -> str:
    takes = "" if part.takes is None else f"({', '.join(part.takes.split())})"
    uses = ", ".join(f"`{each}`" for each in part.uses.split())
    return f"| `{part.path}{takes}` | `{part.module.format(**PACKAGES)}` | {uses} |\n"
