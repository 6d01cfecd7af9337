"""The client for programs without an event loop, and for notebooks, whose own loop is running already."""

import builtins
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tftraining_api.model.names import CONTAINER
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.loop_thread import LoopThread
from tftraining_client.cluster.models import Event, Job, JobChange, LogLine, Pod
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.cluster.submission import Submission
from tftraining_client.history import History

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Client:
    """The jobs of a cluster, as AsyncClient has them; the requests run in a thread of their own.

    `with Client() as client:` closes the connections at the end; otherwise call `close`.
    """

    def __init__(
        self,
        *,
        context: str | None = None,
        kubeconfig: str | None = None,
        namespace: str | None = None,
        notify: Callable[[str], None] = logger.warning,
        impersonate: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = AsyncClient(
            context=context, kubeconfig=kubeconfig, namespace=namespace, notify=notify, impersonate=impersonate
        )
        self._thread = LoopThread(self._client.close)
        # Called once: by `close`, with the client, or at the end of Python.
        self._end = weakref.finalize(self, self._thread.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. The client cannot be used afterwards."""
        self._end()

    def submit(  # noqa: PLR0913  the options of `tftj submit`
        self,
        manifest: Mapping[str, Any] | str | Path | Submission,
        *,
        job: str | None = None,
        dry_run: bool = False,
        code: str | Path | None = None,
        git: str | None = None,
        git_secret: str | None = None,
        replaces: Job | None = None,
        progress: Callable[[int, int], None] = lambda sent, size: None,
    ) -> Job:
        """Create a job from a manifest, or from a file, with the ConfigMaps beside it; `code` is a directory with the
        program, `git` a commit (URL@SHA). `replaces` is the job of the same name whose place the new one takes.
        `progress` is called while a large program is uploaded."""
        program: dict[str, Any] = {"code": code, "git": git, "git_secret": git_secret, "progress": progress}
        return self._call(self._client.submit(manifest, job=job, dry_run=dry_run, replaces=replaces, **program))

    def get(self, name: str) -> Job:
        """The job; JobNotFound with the nearest names if there is none."""
        return self._call(self._client.get(name))

    def list(self, *, all_namespaces: bool = False, selector: str = "") -> builtins.list[Job]:
        """The jobs of the namespace, or of all."""
        return self._call(self._client.list(all_namespaces=all_namespaces, selector=selector))

    def watch(self, name: str | None = None, *, all_namespaces: bool = False) -> Iterator[JobChange]:
        """The present jobs as ADDED, and each change after that, without end."""
        return self._iterate(self._client.watch(name, all_namespaces=all_namespaces))

    def wait(self, name: str, until: str = "succeeded", timeout: float | None = None) -> Job:
        """Wait for a state; raises JobFailed with reason and log tail if the job fails instead."""
        return self._call(self._client.wait(name, until, timeout))

    def logs(  # noqa: PLR0913  the options of `tftj logs`
        self,
        name: str,
        *,
        follow: bool = False,
        role: str = "",
        index: int | None = None,
        attempt: int | None = None,
        previous: bool = False,
        tail: int | None = None,
        since: int | None = None,
        container: str = CONTAINER,
    ) -> Iterator[LogLine]:
        """The lines of all replicas; with `follow` until the job has ended, with `since` those of the last seconds."""
        wanted: dict[str, Any] = {"role": role, "index": index, "attempt": attempt, "previous": previous}
        wanted |= {"tail": tail, "since": since, "container": container}
        return self._iterate(self._client.logs(name, follow=follow, **wanted))

    def suspend(self, name: str) -> Job:
        """Delete the job's pods; the backups stay."""
        return self._call(self._client.suspend(name))

    def resume(self, name: str) -> Job:
        """Let a suspended job continue from its last backup."""
        return self._call(self._client.resume(name))

    def restart(self, name: str) -> Job:
        """Restart the gang in new pods from its last backup, free of charge."""
        return self._call(self._client.restart(name))

    def scale(self, name: str, replicas: int) -> None:
        """Change the number of workers."""
        self._call(self._client.scale(name, replicas))

    def delete(self, name: str, *, wait: bool = False) -> None:
        """Delete the job and its pods. With `wait`, return when the job and its pods are gone."""
        self._call(self._client.delete(name, wait=wait))

    def pods(self, name: str | None = None, *, all_namespaces: bool = False) -> tuple[Pod, ...]:
        """The pods of the job, without a name those of all jobs."""
        return self._call(self._client.pods(name, all_namespaces=all_namespaces))

    def events(self, name: str) -> tuple[Event, ...]:
        """The events about the job, the oldest first."""
        return self._call(self._client.events(name))

    def tensorboard(self, name: str, *, port: int = 0, image: str = "") -> Iterator[str]:
        """The address of TensorBoard over the job's storage, which is served until the generator is closed."""
        return self._iterate(self._client.tensorboard(name, port=port, image=image))

    def snapshot(self, name: str) -> Snapshot:
        """The job with its pods and events as they are now."""
        return self._call(self._client.snapshot(name))

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """The job with its pods and events: as they are now, and after each change."""
        return self._iterate(self._client.snapshots(name))

    def history(self, name: str, *, namespace: str | None = None) -> History:
        """The curves of the job's metrics, and its restarts."""
        return self._call(self._client.history(name, namespace=namespace))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work)

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        self._thread.open(items)
        try:
            while (item := self._call(following())) is not end:
                yield item
        finally:
            self._thread.close_generator(items)
