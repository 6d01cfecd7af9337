"""The options of `tftj`, on typer. Each command imports what it needs when it runs, so that `tftj --help` is fast.

A function of a command returns the work, which `__main__` does after typer: typer has exit codes of its own for a
broken pipe and Ctrl-C.
"""

# ruff: noqa: PLC0415, PLR0913, PLR0917  a parameter is an option
import copy
import math
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from tftraining_client.commands.cluster_options import REQUESTS, Cluster, plain_name, with_cluster
from tftraining_client.errors import UserError

EPILOG = "Exit codes: 0 done, 1 the job failed or ended otherwise, 2 wrong input or a missing right, 3 no API server, "
EPILOG += "124 timeout, 130 Ctrl-C, 141 broken pipe."

STATES = ("succeeded", "failed", "finished", "running", "suspended", "epoch=")

# The groups of the help, with an example for each command.
GROUPS = {
    "Write and start a job": {
        "init": "tftj init 'train.py --epochs 10' --workers 4 > job.yaml",
        "run": "tftj run job.yaml --workers 2",
        "submit": "tftj submit job.yaml --code . --watch",
        "convert": "tftj convert tfjob.yaml > job.yaml",
    },
    "Look at jobs": {
        "list": "tftj list --all-namespaces",
        "status": "tftj status digits --watch",
        "logs": "tftj logs digits --follow --role worker --index 1",
        "wait": "tftj wait digits --for epoch=3 --timeout 2h",
        "explain": "tftj explain digits",
        "plot": "tftj plot digits --metric loss",
        "top": "tftj top digits",
        "tensorboard": "tftj tensorboard digits",
        "dashboard": "tftj dashboard --namespace team",
    },
    "Files of jobs": {
        "cp": "tftj cp digits:models ./models",
        "ls": "tftj ls digits:models",
    },
    "Change jobs": {
        "suspend": "tftj suspend digits",
        "resume": "tftj resume digits",
        "restart": "tftj restart digits",
        "scale": "tftj scale digits --replicas 4",
        "delete": "tftj delete digits",
    },
    "Set up": {
        "doctor": "tftj doctor --namespace team",
        "completion": "source <(tftj completion bash)",
    },
}
EXAMPLES = {name: text for group in GROUPS.values() for name, text in group.items()}


class _Grouped(TyperGroup):
    """The commands in the groups of the help, each with its whole description."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].help) for name in names if name in self.commands])


app = typer.Typer(
    name="tftj",
    cls=_Grouped,
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _command(name: str, words: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command with its description and its example."""
    return app.command(name, help=words, epilog=f"Example: {EXAMPLES[name]}", **options)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tftj {version('tftraining')}")
        raise typer.Exit


@app.callback()
def _tftj(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and end.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Train TensorFlow on Kubernetes: submit, follow and control TFTrainingJobs."""


Work = Callable[[], int]


def complete_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """The names of the jobs that begin so, for the shell; none if the cluster does not answer."""
    from tftraining_client.commands import completion

    return completion.job_names(Cluster.of(context.params).connecting, incomplete)


def complete_states(incomplete: str) -> list[str]:
    """The states for which `wait` can wait, for the shell."""
    return [each for each in STATES if each.startswith(incomplete)]


def plain_names(given: list[str] | None) -> list[str]:
    """The names alone."""
    return [plain_name(each) for each in given or ()]


JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="name of the job", autocompletion=complete_jobs, callback=plain_name)
]
Manifest = Annotated[str | None, typer.Argument(metavar="FILE", help="manifest; - for standard input")]
Filename = Annotated[str | None, typer.Option("--filename", "-f", metavar="FILE", help="the same, as kubectl takes it")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="the jobs of all namespaces")]
OutputFormat = Annotated[
    Literal["json", "yaml", "name", "wide"] | None, typer.Option("--output", "-o", help="output format")
]
ObjectFormat = Annotated[Literal["json", "yaml", "name"] | None, typer.Option("--output", "-o", help="output format")]
ReportFormat = Annotated[Literal["json", "yaml"] | None, typer.Option("--output", "-o", help="output format")]


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="set a field, such as spec.minReplicas=1; repeatable"),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="environment variable of every replica; repeatable"),
]
JobOfFile = Annotated[str | None, typer.Option("--job", metavar="NAME", help="the job, if the file has several")]
OtherName = Annotated[str | None, typer.Option("--name", metavar="NAME", help="name in place of the file's")]


@_command("run", "Run a job on this machine, without a cluster.")
def _run_locally(
    file: Manifest = None,
    filename: Filename = None,
    workdir: Annotated[
        str | None,
        typer.Option("--workdir", metavar="DIR", help="directory in place of spec.storage (default: training)"),
    ] = None,
    job: JobOfFile = None,
    name: OtherName = None,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="number of workers")] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", metavar="DIR", help="directory with the program, copied for the run, as with submit"),
    ] = None,
    settings: Settings = None,
    env: Variables = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(
            "--kill",
            metavar="MEMBER@WHEN",
            help="kill a member: worker-1@epoch=2, @step=N or @seconds=S; pod/worker-1@…; repeatable",
        ),
    ] = None,
) -> Work:
    from tftraining_client.local import run
    from tftraining_client.manifest import only_file
    from tftraining_client.overrides import Overrides

    path = only_file(file, filename, "run")
    overrides = Overrides(name, workers, tuple(settings or ()), tuple(env or ()))
    return lambda: run.run(path, job, overrides, workdir=workdir, directory=code, kills=kill or [])


@_command("init", "Print the manifest of a program; on a terminal and without PROGRAM, from a few questions.")
def _init(
    program: Annotated[
        str | None, typer.Argument(metavar="PROGRAM", help="file of this directory, with its arguments, or a command")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="name of the job")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, metavar="N", help="number of workers")] = None,
    image: Annotated[str | None, typer.Option("--image", metavar="IMAGE", help="image with TensorFlow")] = None,
    claim: Annotated[
        str | None,
        typer.Option("--claim", metavar="NAME", help="PersistentVolumeClaim of the backups and results; - for none"),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, metavar="N", help="GPUs of each worker")] = None,
) -> Work:
    from tftraining_client.commands import init

    return lambda: init.init(init.Wanted(program, name, workers, image, claim, gpus))


@_command("list", "List the jobs of a namespace.")
@with_cluster
def _list(
    all_namespaces: AllNamespaces = False,
    selector: Annotated[str, typer.Option("--selector", "-l", metavar="LABELS", help="label selector")] = "",
    output: OutputFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import listing

    return _on_cluster(lambda client: listing.list_jobs(client, all_namespaces, selector, output), cluster)


@_command("submit", "Create a job from a file, with the ConfigMaps beside it.")
@with_cluster
def _submit(
    file: Manifest = None,
    filename: Filename = None,
    job: JobOfFile = None,
    name: OtherName = None,
    workers: Annotated[int | None, typer.Option("--workers", min=0, metavar="N", help="number of workers")] = None,
    settings: Settings = None,
    env: Variables = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="follow the job until it has ended")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="only let the API server check the job; -o yaml prints it for kubectl apply"),
    ] = False,
    code: Annotated[
        str | None, typer.Option("--code", metavar="DIR", help="directory with the program, for an image without it")
    ] = None,
    git: Annotated[str | None, typer.Option("--git", metavar="URL@SHA", help="commit with the program")] = None,
    git_secret: Annotated[
        str | None, typer.Option("--git-secret", metavar="NAME", help="Secret of a private repository")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="delete the job of the name first; the new one resumes from its backup")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="with --replace: begin anew, in another directory of the storage")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="replace a job that has not ended without asking")] = False,
    output: ObjectFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    if watch and (dry_run or output):
        raise UserError("--watch follows a job that is created: use it without --dry-run and --output")
    if (fresh or yes) and not replace:
        raise UserError(
            f"{'--fresh' if fresh else '--yes'} is for a job that takes the place of another: add --replace"
        )
    from tftraining_client.commands import submit
    from tftraining_client.manifest import only_file
    from tftraining_client.overrides import Overrides

    path = only_file(file, filename, "submit")
    program, replacement = submit.ProgramOptions(code, git, git_secret), submit.Replacement(replace, fresh, yes)
    overrides = Overrides(name, workers, tuple(settings or ()), tuple(env or ()))
    return _on_cluster(
        lambda client: submit.submit(client, path, job, program, overrides, replacement, watch, dry_run, output),
        cluster,
    )


@_command("status", "Show a job with its pods, progress, last restart and events.")
@with_cluster
def _status(
    job: JobName,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="follow until the job has ended")] = False,
    output: OutputFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import status

    return _on_cluster(lambda client: status.show(client, job, watch, output), cluster)


@_command("logs", "Print the merged logs of a job's replicas.")
@with_cluster
def _logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="follow until the job has ended, over restarts and new pods")
    ] = False,
    role: Annotated[
        Literal["chief", "worker", "ps", "evaluator"] | None, typer.Option("--role", help="only replicas of the role")
    ] = None,
    index: Annotated[int | None, typer.Option("--index", min=0, help="only the replica of the index")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="only pods of the attempt")] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="the previous containers of the pods")] = False,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="only the last lines of each replica")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DURATION", help="only lines of the last 90s, 10m or 2h")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="the time before each line")] = False,
    container: Annotated[
        str,
        typer.Option("--container", "-c", metavar="NAME", help="another container of the pods, or an init container"),
    ] = "tensorflow",
    *,
    cluster: Cluster,
) -> Work:
    if follow and previous:
        raise UserError("--previous shows containers that have ended: use it without --follow")
    from tftraining_client.commands import logs

    options: dict[str, Any] = {"role": role or "", "index": index, "attempt": attempt, "tail": tail}
    options |= {"container": container, "since": None if since is None else whole_seconds(since)}
    return _on_cluster(
        lambda client: logs.print_logs(client, job, follow=follow, timestamps=timestamps, previous=previous, **options),
        cluster,
    )


@_command("wait", "Wait until a job has succeeded or failed, or has reached an epoch.")
@with_cluster
def _wait(
    job: JobName,
    state: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="STATE",
            help="succeeded, failed, finished, running, suspended or epoch=N",
            autocompletion=complete_states,
        ),
    ] = "succeeded",
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="such as 90s, 10m or 2h; exit code 124 then")
    ] = None,
    output: ObjectFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import changes

    seconds = parse_duration(timeout) if timeout is not None else None
    return _on_cluster(lambda client: changes.wait(client, job, state, seconds, output), cluster)


@_command("suspend", "Suspend a job: its pods are deleted, its backups stay.")
@with_cluster
def _suspend(job: JobName, output: ObjectFormat = None, *, cluster: Cluster) -> Work:
    from tftraining_client.commands import changes

    return _on_cluster(lambda client: changes.suspend(client, job, output), cluster)


@_command("resume", "Resume a suspended job from its last backup.")
@with_cluster
def _resume(job: JobName, output: ObjectFormat = None, *, cluster: Cluster) -> Work:
    from tftraining_client.commands import changes

    return _on_cluster(lambda client: changes.resume(client, job, output), cluster)


@_command("restart", "Restart a job in new pods from its last backup, free of charge.")
@with_cluster
def _restart(job: JobName, output: ObjectFormat = None, *, cluster: Cluster) -> Work:
    from tftraining_client.commands import changes

    return _on_cluster(lambda client: changes.restart(client, job, output), cluster)


@_command("scale", "Change the number of workers; the job restarts from its last backup.")
@with_cluster
def _scale(
    job: JobName,
    replicas: Annotated[int, typer.Option("--replicas", min=0, help="number of workers")],
    output: ObjectFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import changes

    return _on_cluster(lambda client: changes.scale(client, job, replicas, output), cluster)


@_command("delete", "Delete jobs and their pods; files in the storage stay.")
@with_cluster
def _delete(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="names", autocompletion=complete_jobs, callback=plain_names),
    ] = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="LABELS", help="the jobs with these labels")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="all jobs of the namespace")] = False,
    filename: Annotated[
        str | None, typer.Option("--filename", "-f", metavar="FILE", help="the jobs of a file; its ConfigMaps stay")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="wait until the job is gone")] = True,
    output: Annotated[Literal["name"] | None, typer.Option("--output", "-o", help="output format")] = None,
    *,
    cluster: Cluster,
) -> Work:
    if sum(map(bool, (jobs, selector, every, filename))) != 1:
        raise UserError("delete takes the names of jobs, or one of -l, --all and -f; see tftj delete --help")
    from tftraining_client.commands import changes

    meant = changes.Meant(tuple(jobs or ()), selector, filename)
    return _on_cluster(lambda client: changes.delete(client, meant, wait, output), cluster)


@_command("explain", "Say why a job failed or does not train, and what to try.")
@with_cluster
def _explain(job: JobName, output: ReportFormat = None, *, cluster: Cluster) -> Work:
    from tftraining_client.commands import explain

    return _on_cluster(lambda client: explain.explain(client, job, output), cluster)


@_command("plot", "Plot the metrics of a job over its steps, with the restarts marked.")
@with_cluster
def _plot(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="name of the job, or the path of its directory (./training)",
            autocompletion=complete_jobs,
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="with -o: the file to write (default: JOB.html, - for the output)"),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", metavar="NAME", help="only this metric; repeatable")
    ] = None,
    output: Annotated[
        Literal["png", "html", "json"] | None,
        typer.Option("--output", "-o", help="a file in place of the plot in the terminal"),
    ] = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import plot

    options = metric or [], output, file
    if plot.is_path(job):
        return lambda: plot.plot_directory(job, *options)
    return _on_cluster(lambda client: plot.plot_job(client, job, *options), cluster)


@_command("cp", "Copy files into a job's storage, or out of it.")
@with_cluster
def _cp(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="JOB:PATH, as digits:models/final.keras, or a path of this machine")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="the other one of the two")],
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import files

    return _on_cluster(lambda client: files.copy(client, source, target), cluster)


@_command("ls", "List files in the storage of a job.")
@with_cluster
def _ls(
    place: Annotated[
        str,
        typer.Argument(
            metavar="JOB[:PATH]",
            help="a path in the job's directory, or one that its programs see (/training/data)",
            autocompletion=complete_jobs,
        ),
    ],
    output: ReportFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import files

    return _on_cluster(lambda client: files.list_files(client, place, output), cluster)


@_command("tensorboard", "Serve TensorBoard over a job's storage on a port of this machine, until Ctrl-C.")
@with_cluster
def _tensorboard(
    job: JobName,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="port of this machine; 0: any free one")] = 6006,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="image with TensorBoard; default: the job's")
    ] = "",
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands import tensorboard

    return _on_cluster(lambda client: tensorboard.show(client, job, port, image), cluster)


@_command("top", "Show what each pod of a job, or of all jobs, uses, beside its requests and limits.")
@with_cluster
def _top(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="name of the job (default: all jobs)", autocompletion=complete_jobs),
    ] = None,
    all_namespaces: AllNamespaces = False,
    output: OutputFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    if job is not None and all_namespaces:
        raise UserError(
            "--all-namespaces shows all jobs: use it without the name of a job, or --namespace with the name"
        )
    from tftraining_client.commands import top

    return _on_cluster(lambda client: top.show(client, job, all_namespaces, output), cluster)


@_command("convert", "Convert a TFJob of Kubeflow or Arena; a note for each difference is on standard error.")
@with_cluster
def _convert(
    file: Manifest = None,
    filename: Filename = None,
    from_cluster: Annotated[
        str | None, typer.Option("--from-cluster", metavar="NAME", help="a TFJob of the cluster instead of a file")
    ] = None,
    entrypoint: Annotated[
        str | None,
        typer.Option("--entrypoint", metavar="COMMAND", help="that of the image, for containers without a command"),
    ] = None,
    gang_scheduler: Annotated[
        Literal["volcano", "coscheduling"] | None,
        typer.Option("--gang-scheduler", help="the scheduler of PodGroups that the cluster runs"),
    ] = None,
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="PATH", help="the mount path of the volume for the results")
    ] = None,
    output: ObjectFormat = None,
    *,
    cluster: Cluster,
) -> Work:
    if (file is None and filename is None) == (from_cluster is None):
        raise UserError("convert takes a file, or --from-cluster NAME; see tftj convert --help")
    from tftraining_client.commands import convert
    from tftraining_client.manifest import only_file

    choices = convert.choices_of(entrypoint, gang_scheduler, storage)
    if from_cluster is None:
        path = only_file(file, filename, "convert")
        return lambda: convert.convert_file(path, choices, output)
    name = str(from_cluster)
    return _on_cluster(lambda client: convert.convert_from_cluster(client, name, choices, output), cluster)


@_command("doctor", "Check context, definition, operator and rights, each with the fix.")
@with_cluster
def _doctor(output: ReportFormat = None, *, cluster: Cluster) -> Work:
    from tftraining_client.commands import doctor

    return _on_cluster(lambda client: doctor.examine(client, output), cluster)


@_command("dashboard", "Show jobs, curves, pods, events and logs in the browser, read-only.")
@with_cluster
def _dashboard(
    all_namespaces: AllNamespaces = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="port on 127.0.0.1 (default: a free one)")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser", help="open the browser; other users of this machine may see its arguments")
    ] = False,
    *,
    cluster: Cluster,
) -> Work:
    from tftraining_client.commands.dashboard import command

    return _on_cluster(lambda client: command.show(client, all_namespaces, port, browser), cluster)


@_command("completion", "Print the completion script of a shell: source <(tftj completion bash).")
def _completion(
    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], typer.Argument(help="the shell")],
) -> Work:
    from tftraining_client.commands import completion

    return lambda: completion.print_script(shell)


def only(every: typer.Typer, argv: Sequence[str]) -> typer.Typer:
    """The commands with no other one than the first argument names: typer reads the options of each, 1 ms a command."""
    named = [each for each in every.registered_commands if argv and each.name == argv[0]]
    if not named:
        return every
    found = copy.copy(every)
    found.registered_commands = named
    return found


def whole_seconds(text: str) -> int:
    """The whole seconds of `--since`, of which the API server wants at least one."""
    return max(1, math.ceil(parse_duration(text, "--since")))


def parse_duration(text: str, option: str = "--timeout") -> float:
    """The seconds of `90`, `90s`, `10m`, `2h` or `1h30m`; UserError for anything else."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or found is None:
        raise UserError(f"{option} {text}: must be a duration such as 90s, 10m or 2h")
    hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _on_cluster(command: Callable[[Any], Coroutine[None, None, int]], cluster: Cluster) -> Work:
    """A command with a client, which is closed at the end."""
    import asyncio

    from tftraining_client.cluster.async_client import AsyncClient
    from tftraining_client.commands.output import note, set_scope

    set_scope(cluster.scope)

    async def connected() -> int:
        told = note if (cluster.level or 0) >= REQUESTS else None
        async with AsyncClient(**cluster.connecting, notify=note, requests=told) as client:
            return await command(client)

    return lambda: asyncio.run(connected())
