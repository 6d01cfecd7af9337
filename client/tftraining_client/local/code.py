"""The program of `tftj run --code DIR`, or of a ConfigMap in the job's file: the same archive as in a cluster, unpacked
for this run. A change of the directory while the job runs has no effect, not even after a restart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tftraining.launch.unpack import CodeError, unpack
from tftraining_api.manifests.code import KEY
from tftraining_api.model.spec import Code
from tftraining_client.config_maps import ConfigMaps
from tftraining_client.errors import UserError
from tftraining_client.validation.structure import Json

IGNORED = (
    "spec.code is not in this file, so the program is taken from the current directory: name another with --code DIR"
)


@dataclass(frozen=True)
class Archive:
    """The program of the job with its digest."""

    data: bytes
    digest: str


def with_code(
    manifest: Json, config_maps: ConfigMaps, directory: str, notify: Callable[[str], None]
) -> tuple[Json, ConfigMaps]:
    """The job and the ConfigMaps with the program of a directory, of any size."""
    from tftraining_client.code import left_out, pack, summary, with_package  # noqa: PLC0415  only for --code

    package = pack(directory)
    for text in (summary(package), *left_out(package)):
        notify(text)
    job, config_map = with_package(manifest, package)
    return job, {**config_maps, config_map["metadata"]["name"]: {KEY: package.data}}


def archive_of(code: Code | None, config_maps: ConfigMaps) -> Archive | None:
    """The program, if the job has one from a ConfigMap of the file."""
    if code is None or code.config_map is None or code.digest is None:
        return None
    data = config_maps.get(code.config_map.name, {}).get(KEY)
    return None if data is None else Archive(data, code.digest)


def write(archive: Archive, directory: Path) -> None:
    """Unpack the program; UserError if the archive is wrong."""
    file = directory.with_suffix(".tar.gz")
    file.write_bytes(archive.data)
    try:
        unpack(file, archive.digest, directory)
    except CodeError as error:
        raise UserError(f"spec.code: {error}") from error
    finally:
        file.unlink()
