"""TFJobs of the shapes in Kubeflow's and Arena's documentation."""

from pathlib import Path
from typing import Any

import yaml

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
# The images of these files are their own program.
ENTRYPOINTS = {"entrypoint": ("python", "/app/main.py")}


def tfjob(name: str) -> dict[str, Any]:
    """The TFJob in the file of that name."""
    documents = yaml.safe_load_all((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
    first: dict[str, Any] = next(iter(documents))
    found: dict[str, Any] = first["items"][0] if first["kind"] == "List" else first
    return found
