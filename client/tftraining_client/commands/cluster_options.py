"""The options of every command that speaks to a cluster, and the name of a job, as kubectl takes them."""

import functools
import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

REQUESTS = 6  # from this level on kubectl tells requests
# As kubectl takes them, with the group and without; names.py has them, and is not imported for the help.
KINDS = [f"{kind}{group}" for kind in ("tftrainingjob", "tftrainingjobs") for group in ("", ".tftraining.dev")]


@dataclass(frozen=True)
class Cluster:
    """What the command was given of them."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None
    level: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Cluster":
        """The options among the parameters of a command."""
        found = {name: given.get(name) for name in SHARED}
        return cls(**{**found, "as_groups": tuple(found["as_groups"] or ())})  # type: ignore[arg-type]

    @property
    def connecting(self) -> dict[str, Any]:
        """The arguments of AsyncClient."""
        fields = {"as": self.as_user, "as-groups": list(self.as_groups), "as-uid": self.as_uid}
        return {
            "namespace": self.namespace,
            "context": self.context,
            "kubeconfig": self.kubeconfig,
            "impersonate": {name: value for name, value in fields.items() if value},
        }

    @property
    def scope(self) -> str:
        """The options for the command line of another command about the same cluster."""
        given = [("--namespace", self.namespace), ("--context", self.context), ("--kubeconfig", self.kubeconfig)]
        given += [("--as", self.as_user), *(("--as-group", each) for each in self.as_groups), ("--as-uid", self.as_uid)]
        return "".join(f" {name} {shlex.quote(value)}" for name, value in given if value)


def plain_name(given: str) -> str:
    """The name alone of `tftrainingjob.tftraining.dev/digits`, which `-o name` prints."""
    kind, slash, name = given.partition("/")
    return name if slash and kind.lower() in KINDS else given


def complete_namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """The namespaces, for the shell."""
    from tftraining_client.commands import completion  # noqa: PLC0415  only for the shell

    return completion.namespaces(Cluster.of(context.params).connecting, incomplete)


def complete_contexts(context: typer.Context, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig, for the shell."""
    from tftraining_client.commands import completion  # noqa: PLC0415  only for the shell

    return completion.contexts(context.params.get("kubeconfig"), incomplete)


def _shared(  # noqa: PLR0913, PLR0917  a parameter is an option
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help="namespace (default: that of the context)",
            autocompletion=complete_namespaces,
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="CONTEXT", help="context of the kubeconfig", autocompletion=complete_contexts
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option("--kubeconfig", metavar="FILE", help="kubeconfig (default: KUBECONFIG, ~/.kube/config)"),
    ] = None,
    as_user: Annotated[str | None, typer.Option("--as", metavar="USER", help="user to impersonate")] = None,
    as_groups: Annotated[
        list[str] | None, typer.Option("--as-group", metavar="GROUP", help="group to impersonate; repeatable")
    ] = None,
    as_uid: Annotated[str | None, typer.Option("--as-uid", metavar="UID", help="UID to impersonate")] = None,
    level: Annotated[
        int | None, typer.Option("--v", "-v", metavar="LEVEL", help="from 6 on (-v alone): tell each request")
    ] = None,
) -> None: ...


SHARED = inspect.signature(_shared).parameters


def with_cluster(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command with these options in place of its parameter `cluster`."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.name != "cluster"]

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        mine = {name: value for name, value in given.items() if name not in SHARED}
        return function(**mine, cluster=Cluster.of(given))

    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *SHARED.values())]
    command.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in shown}
    return command
