"""A person with the cluster role `view` in one namespace, whose tokens come from an exec plugin and end soon."""

import sys
from pathlib import Path

import yaml

from testbed.kube import Kube

NAME = "person"
# Each run notes itself, and gives a token of its own.
PLUGIN = """\
import datetime, json, pathlib, subprocess, sys
runs, seconds, *command = sys.argv[1:]
with pathlib.Path(runs).open("a") as noted:
    noted.write("x")
token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=int(seconds))
status = {"token": token, "expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ")}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def viewer(kube: Kube, namespace: str, directory: Path, seconds: int) -> tuple[Path, Path]:
    """The person's kubeconfig, whose tokens live so long, and a file with one letter for each run of the plugin."""
    where = {"namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    kube.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, **where}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": NAME, **where},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": NAME, **where}],
        },
    )
    runs, path = directory / "runs", directory / "viewer.kubeconfig"
    token = [str(each) for each in kube.command("create", "token", NAME, "--namespace", namespace)]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(runs), str(seconds), *token],
    }
    document = yaml.safe_load(kube.kubeconfig.read_text(encoding="utf-8"))
    document["users"] = [{"name": NAME, "user": {"exec": plugin}}]
    for each in document["contexts"]:
        each["context"] |= {"user": NAME, **where}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path, runs
