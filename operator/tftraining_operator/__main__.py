"""Run the operator: `python -m tftraining_operator`. Settings come from the environment (see the chart)."""

import logging
import sys

import kopf

from tftraining_operator.handlers import registry
from tftraining_operator.runtime import read_settings


def main() -> int:
    """Run until SIGTERM; 1 if it could not start."""
    try:
        settings = read_settings()
    except ValueError as error:
        print(f"tftraining-operator: {error}", file=sys.stderr)
        return 1
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.root.level))
    kopf.run(registry=registry, standalone=True, clusterwide=not settings.namespaces, namespaces=settings.namespaces)
    return 0


if __name__ == "__main__":
    sys.exit(main())
