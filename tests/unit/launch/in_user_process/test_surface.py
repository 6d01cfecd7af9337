"""A surface of TensorFlow or Keras is recognized only if all that a feature touches is as declared."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

from tftraining.launch.in_user_process.surface import Part, Surface


def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return call


class Base:
    def __init__(self) -> None:
        self._epoch = 0


class Handler(Base):
    count = 3

    @decorated
    def epochs(self, first: int, *, last: int = 0) -> list[int]:
        return [each + self._epoch for each in range(first, last)]

    @property
    def epoch(self) -> int:
        return self._epoch

    def anything(self, *args: Any) -> None: ...


MODULES = {"k3.data": types.SimpleNamespace(Handler=Handler)}


@pytest.mark.parametrize(
    ("part", "missing"),
    [
        (Part("k3.data", "Handler.epochs", "self first last"), ""),
        (Part("{package}.data", "Handler.epochs", "self first last", "_epoch"), ""),
        (Part("k3.data", "Handler", uses="_epoch"), ""),
        (Part("k3.data", "Handler.epoch", uses="_epoch"), ""),
        (Part("k3.data", "Handler.anything"), ""),
        (Part("k3.data", "Handler.count"), ""),
        (Part("k3.gone", "Handler.epochs"), "the module k3.gone is not loaded"),
        (Part("k3.data", "Other.epochs"), "k3.data has no Other.epochs"),
        (Part("k3.data", "Handler.gone"), "k3.data has no Handler.gone"),
        (Part("k3.data", "Handler.epochs", "self first"), "Handler.epochs of k3.data does not take (self, first)"),
        (
            Part("k3.data", "Handler.epochs", "self last first"),
            "Handler.epochs of k3.data does not take (self, last, first)",
        ),
        (Part("k3.data", "Handler.anything", "self args"), "Handler.anything of k3.data does not take (self, args)"),
        (Part("k3.data", "Handler.count", "self"), "Handler.count of k3.data does not take (self)"),
        (Part("k3.data", "Handler.epochs", uses="_epoch _step"), "Handler.epochs of k3.data does not use _step"),
        (Part("k3.data", "Handler", uses="_step"), "Handler of k3.data does not use _step"),
    ],
)
def test_a_part_is_as_declared_or_named(part: Part, missing: str) -> None:
    assert Surface("no copies", (Part("k3.data", "Handler"), part)).missing(MODULES, package="k3") == missing


def test_an_unknown_surface_is_told_in_one_line_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    surface = Surface("no copies in this test", (Part("k3.data", "Handler.gone"), Part("k3.data", "Handler.too")))
    assert [surface.holds(MODULES) for _ in range(2)] == [False, False]
    assert capsys.readouterr().err == "tftraining: no copies in this test: k3.data has no Handler.gone\n"
    assert Surface("no copies in this test", surface.parts[:0]).holds(MODULES)


def test_a_strange_class_is_an_unknown_surface() -> None:
    class Strange:
        def __getattr__(self, name: str) -> Any:
            raise ValueError(name)

    surface = Surface("nothing", (Part("strange", "method"),))
    assert surface.missing({"strange": Strange()}) == "ValueError: method"
