"""The archive of a large program goes into the storage of the job that is about to be created, as a file of the job."""

import io
from collections.abc import Callable
from posixpath import join

from tftraining_api.kube.api import Api
from tftraining_client.cluster.job_files import JobFiles, Progress, job_files
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.watching import Watch
from tftraining_client.code.package import Package, mebibytes
from tftraining_client.errors import UserError
from tftraining_client.files.names import Plan, Source

# A submission that has not created its job yet may use an archive of this age.
OLD_SECONDS = 7200.0


async def upload(
    api: Api,
    job: Job,
    package: Package,
    notify: Callable[[str], None],
    progress: Progress,
    watches: Callable[[str, str], tuple[Watch, Watch]],
) -> None:
    """Put the archive where `spec.code.storage` of the job says. `progress` is called with the bytes sent and those of
    the archive; `watches` gives the watches of a pod and of its events. ApiError, or UserError with the cause."""
    spec = job.spec
    if spec is None or spec.storage is None or spec.code is None or spec.code.storage is None:
        raise UserError(f"job {job.name} has no spec.code.storage in a spec.storage: the code cannot be uploaded")
    path = join(spec.storage.mount_path, spec.code.storage.path)
    notify(f"the code ({mebibytes(len(package.data))}) is copied into the storage of the job")
    async with job_files(api, job, notify, watches) as files:
        await put_archive(files, path, package, progress)


async def put_archive(files: JobFiles, path: str, package: Package, progress: Progress) -> None:
    """Put the archive to the path, and remove old ones of the job."""
    await files.prepare_archive(path)
    archive = Plan((), (Source("the code", path, len(package.data)),), ())
    await files.upload(archive, progress, lambda _: io.BytesIO(package.data))
    # The archive of a job that this one replaces must not go before the new one is there.
    await files.prepare_archive(path, OLD_SECONDS)
