"""The program of a job without an image of its own: a directory becomes an archive, and the archive `spec.code`.

    package = pack(Path("."))
    job, config_map = with_package(job, package)

Nothing here talks to a cluster.
"""

from tftraining_client.code.package import Package, pack, pack_files
from tftraining_client.code.submission import LIMIT, parse_git, with_git, with_package

__all__ = ["LIMIT", "Package", "pack", "pack_files", "parse_git", "with_git", "with_package"]
