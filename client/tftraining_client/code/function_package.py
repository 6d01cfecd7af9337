"""A function with its arguments as the files of a package: the pickle, cloudpickle itself, and the script that runs it.

cloudpickle travels along, so that the image need not have it. What the module of the function defines is pickled by
value, unless the module is installed: the image does not have it.
"""

import functools
import inspect
import pickle
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from tftraining_client.errors import UserError

SCRIPT, PICKLE, PACKAGES = "run_function.py", "function.pkl", "function-packages.txt"
# A requirement, not an option of pip, and no address with a password in it.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r]*")
_PASSWORD = re.compile(r"://[^/\s]*@")
# Before the script's own code, so that the program is forked from an interpreter that has imported TensorFlow.
_IMPORT = "import tensorflow  # noqa: F401  the function has it as a global\n"


def function_files(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], packages: Sequence[str] = ()
) -> dict[str, bytes]:
    """The files of the function, called with these arguments, and of the packages that it needs. UserError names what
    cannot be pickled, and what is no requirement."""
    called = functools.partial(function, *arguments, **named)
    with _own_module_by_value(function):
        pickled = _pickled(called)
        if pickled is None:
            raise UserError(f"{_name(function)} cannot be sent to the job: {_culprit(function, arguments, named)}")
    own = Path(cloudpickle.__file__).parent
    library = {f"cloudpickle/{each.name}": each.read_bytes() for each in sorted(own.glob("*.py"))}
    wanted = {PACKAGES: _requirements(packages)} if packages else {}
    return {SCRIPT: _script(function), PICKLE: pickle.dumps(tuple(sys.version_info[:2])) + pickled, **library, **wanted}


def _requirements(packages: Sequence[str]) -> bytes:
    """A file of requirements for pip."""
    for each in [()] if isinstance(packages, str) else packages:
        if not isinstance(each, str) or not _REQUIREMENT.fullmatch(each):
            raise UserError(
                f"packages: must be a list of requirements such as 'pandas>=2', not {each or packages!r}; options of "
                'pip are variables: env={"PIP_INDEX_URL": …}'
            )
        if _PASSWORD.search(each):
            raise UserError("packages: an address with a name or a password: whoever may read the job would see it")
    return "".join(f"{each}\n" for each in packages).encode()


def _script(function: Callable[..., Any]) -> bytes:
    text = Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
    modules = [each.__name__ for each in _variables(function).values() if isinstance(each, ModuleType)]
    uses_tensorflow = any(name.partition(".")[0] in ("tensorflow", "tf_keras", "keras") for name in modules)
    return (text.replace("import pickle\n", f"import pickle\n{_IMPORT}", 1) if uses_tensorflow else text).encode()


def _pickled(value: Any) -> bytes | None:
    """None for what cannot be pickled: objects raise errors of any class."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception:
        return None


def _culprit(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    candidates = {f"the variable {name}": value for name, value in _variables(function).items()}
    candidates |= {f"argument {number}": value for number, value in enumerate(arguments, start=1)}
    candidates |= {f"the argument {name}": value for name, value in named.items()}
    for name, value in candidates.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            words = " ".join(str(error).split())
            return f"{name} ({type(value).__name__}) cannot be pickled: {words}; make it inside the function"
    return "it cannot be pickled; make open files, locks and connections inside the function"


def _variables(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables outside the function that it uses."""
    plain = _plain(function)
    if not inspect.isfunction(plain):
        return {}
    found = inspect.getclosurevars(plain)
    return {**found.globals, **found.nonlocals}


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside functools.partial and decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    plain: Callable[..., Any] = inspect.unwrap(function)
    return plain


def _name(function: Callable[..., Any]) -> str:
    return f"the function {getattr(_plain(function), '__name__', repr(function))}"


@contextmanager
def _own_module_by_value(function: Callable[..., Any]) -> Iterator[None]:
    """Pickle what the function's module defines by value, if the module is the user's own."""
    module = sys.modules.get(getattr(_plain(function), "__module__", "") or "")
    if module is None or module.__name__ == "__main__" or _is_installed(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return any(Path(file).resolve().is_relative_to(Path(path).resolve()) for path in paths)
