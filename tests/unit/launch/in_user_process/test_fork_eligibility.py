"""Whether a program can be forked from a warm interpreter, decided from its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tftraining.launch.in_user_process.fork_eligibility import (
    ModuleSource,
    UnparsableSource,
    find_effects,
    reason_for_plain_start,
)
from tftraining.launch.in_user_process.shared.python_command import Invocation, imports_sitecustomize, parse_invocation


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("python train.py --epochs 3", Invocation("python", (), False, "train.py", ("--epochs", "3"))),
        ("/opt/venv/bin/python3.12 -u a/b.py", Invocation("/opt/venv/bin/python3.12", ("-u",), False, "a/b.py", ())),
        ("python3 -m package.train -m x", Invocation("python3", (), True, "package.train", ("-m", "x"))),
        ("python", "python without a script"),
        ("python -c pass", "python -c"),
        ("python -", "python -"),
        ("python -O train.py", "python -O"),
        ("python -m", "python -m"),
        ("python -um train", "python -um"),
        ("sh -c python", "sh is not Python"),
        ("pythonw train.py", "pythonw is not Python"),
        ("./train", "train is not Python"),
    ],
)
def test_a_command_is_parsed_into_an_invocation_or_a_reason(command: str, wanted: Invocation | str) -> None:
    assert parse_invocation(command.split()) == wanted


def reason(text: str, modules: Mapping[str, str] | None = None) -> str:
    modules = modules or {}

    def find(name: str, level: int) -> Sequence[ModuleSource]:
        return [ModuleSource(modules[name], find)] if name in modules else []

    return reason_for_plain_start([ModuleSource(text, find)])


@pytest.mark.parametrize(
    "statement",
    [
        "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'",
        "os.environ['TF_A'] = x = '2'",
        "os.environ.setdefault('KERAS_BACKEND', 'jax')",
        "os.environ.update(XLA_FLAGS='-x')",
        "os.environ.update({'CUDA_VISIBLE_DEVICES': '0'})",
        "os.environ |= {'TF_A': '1'}",
        "os.environ.update(dict(TF_A='1'))",
        "os.environ.update(dict(settings, WANDB_MODE='offline'))",
        "os.environ.pop('TF_A', None)",
        "del os.environ['TF_A']",
        "os.putenv('TF_A', '1')",
        "os.unsetenv('TF_A')",
        "environ['TF_A'] = '1'",
        "os.environb[b'TF_A'] = b'1'",
        "os.environ[name] = '1'",
        "os.environ[f'TF_{x}'] = '1'",
        "os.environ.update(settings)",
        "os.environ.update({**settings})",
        "os.environ.update(**settings)",
        "os.environ.clear()",
        "os.environ = {}",
        "dotenv.load_dotenv()",
        "if x:\n    os.environ['TF_A'] = '1'",
        "def f():\n    os.environ['TF_A'] = '1'\nf()",
        "lambda: os.environ.setdefault('TF_A', '1')",
        "os.environ['HOME'] = '/'",  # ~/.keras/keras.json
        "os.environ['HDF5_USE_FILE_LOCKING'] = 'FALSE'",
        "os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = 'python'",
        "os.environ['OPENBLAS_NUM_THREADS'] = '1'",
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "env = os.environ\nenv['TF_A'] = '1'",
        "env: Mapping = os.environ\nenv.update(TF_A='1')",
        "self.env = os.environ\nself.env['TF_A'] = '1'",
        "(env := os.environ)['TF_A'] = '1'",
        "if env := os.environ:\n    env['TF_A'] = '1'",
        "env = os.environ\nenv |= {'TF_A': '1'}",
        "from os import environ as env\nenv['TF_A'] = '1'",
        "from os import environb as env\nenv[b'TF_A'] = b'1'",
        "def f(x, env=os.environ):\n    env['TF_A'] = '1'\nf(1)",
        "def f(x, *, env=os.environ):\n    env['TF_A'] = '1'\nf(1)",
        "os.environ['TF_A'], x = '1', 2",
        "for os.environ['TF_A'] in '1':\n    pass",
    ],
)
def test_setting_a_variable_before_the_import_needs_a_plain_start(statement: str) -> None:
    assert reason(f"import os\n{statement}\nimport tensorflow as tf")
    assert reason(f"import os\n{statement}\n")
    assert not reason(f"import tensorflow as tf\nimport os\n{statement}\n")


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['WANDB_MODE'] = 'offline'\nos.environ.setdefault('PYTHONHASHSEED', '0')",
        "import os\nos.environ['TF_CONFIG'] = '{}'",
        "import os\nos.environ.update(dict(WANDB_MODE='offline'))",
        "import os\nos.environ.update(HTTP_PROXY='a', HTTPS_PROXY='a', NO_PROXY='b')",
        "import os\nos.environ.update(http_proxy='a', https_proxy='a', no_proxy='b', no_grpc_proxy='b')",
        "import os\nos.environ.update(TF_FORCE_GPU_ALLOW_GROWTH='true', NCCL_DEBUG='INFO', HF_HOME='/models')",
        "import os\nos.environ.update(GOOGLE_APPLICATION_CREDENTIALS='/key', TOKENIZERS_PARALLELISM='false')",
        "import os\nenv = os.environ\nx = env['TF_A']; y = env.get('TF_A'); z = dict({**env}, TF_A='1')",
        "import os\nenv = os.environ.copy()\nenv['TF_A'] = '1'",
        "import os\nx = os.environ['TF_A']; y = os.environ.get('TF_A'); os.getenv('TF_A'); 'TF_A' in os.environ",
        "settings['TF_A'] = 1; d.update(TF_A=1); d.setdefault('TF_A', 1)",
        "'''os.environ['TF_A'] = 1'''\n# os.environ['TF_A'] = 1",
    ],
)
def test_harmless_statements_need_no_plain_start(text: str) -> None:
    assert reason(text) == ""


def test_an_import_that_may_not_happen_does_not_count() -> None:
    late = "import os\nos.environ['TF_A'] = '1'\n"
    assert reason("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tensorflow\n" + late)
    assert reason("def f():\n    import tensorflow\n" + late)
    assert reason("try:\n    x\nexcept E:\n    import tensorflow\n" + late)
    assert not reason("try:\n    import tensorflow\nexcept ImportError:\n    raise\n" + late)
    assert not reason("if __name__ == '__main__':\n    from tensorflow import keras\n" + late)


def test_the_programs_own_modules_are_examined() -> None:
    settings = {"settings": "import os\nos.environ['TF_A'] = '1'", "settings.more": ""}
    assert reason("import settings", settings) == "it sets TF_A before importing TensorFlow"
    assert reason("import json\nfrom settings import more\nimport tensorflow", settings)
    assert not reason("import tensorflow\nimport settings", settings)
    assert not reason("import model\nimport settings", {**settings, "model": "import tf_keras"})
    assert reason("def f():\n    import model\nimport settings", {**settings, "model": "import tf_keras"})


def test_more_than_300_modules_need_a_plain_start() -> None:
    assert "too many" in reason("import a", {"a": "import b", "b": "import a"})


@pytest.mark.parametrize(("modules", "too_many"), [(299, False), (300, True)])
def test_three_hundred_modules_are_examined(modules: int, too_many: bool) -> None:
    """The program's first one is among them."""
    names = [f"m{number}" for number in range(modules)]
    told = reason("\n".join(f"import {name}" for name in names), dict.fromkeys(names, ""))
    assert ("too many" in told) == too_many


def test_source_that_cannot_be_parsed_raises() -> None:
    with pytest.raises(UnparsableSource):
        find_effects("this is no Python")


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ("python train.py", True),
        ("/opt/venv/bin/python3.12 -u train.py -I", True),
        ("python -m train -E", True),
        ("python -uc pass -S", True),
        ("python -W ignore -X utf8 train.py", True),
        ("python -Wignore -Xutf8 -B -OO train.py", True),
        ("python -X -I train.py", True),
        ("python --check-hash-based-pycs never train.py", True),
        ("python -", True),
        ("python", True),
        ("python -I train.py", False),
        ("python -u -E train.py", False),
        ("python -uS train.py", False),
        ("python -W ignore -I train.py", False),
        ("python --check-hash-based-pycs never -I train.py", False),
        ("bash -c python", False),
        ("env python train.py", False),
        ("./train.py", False),
        ("python-config train.py", False),
        ("$(PYTHON) train.py", False),
        ("", False),
    ],
)
def test_python_options_that_disable_sitecustomize(command: str, does: bool) -> None:
    assert imports_sitecustomize(command.split()) == does
