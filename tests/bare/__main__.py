"""The command line: `python3.11 -m tests.bare COMMAND…`."""

import sys

from .cli import main

sys.exit(main(sys.argv[1:]))
