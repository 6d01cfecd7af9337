"""The program of a job without an image of its own: a directory becomes an archive, and the archive `spec.code`.

    package = pack(Path("."))
    job, config_map = with_package(job, package)

Nothing here talks to a cluster.
"""

from tftraining_client.code.package import Package, left_out, pack, pack_files, summary
from tftraining_client.code.submission import LIMIT, is_large, parse_git, with_git, with_package, with_upload

__all__ = [
    "LIMIT",
    "Package",
    "is_large",
    "left_out",
    "pack",
    "pack_files",
    "parse_git",
    "summary",
    "with_git",
    "with_package",
    "with_upload",
]
