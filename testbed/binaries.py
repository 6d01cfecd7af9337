"""The programs of the cluster, built from the pinned Go modules in `go/` and cached.

A program is built again only when its module's files or the build flags change: their hash names its directory.
It must never download a program: what it gives out was compiled here, or lies in KUBEBUILDER_ASSETS.
"""

import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from .shell import Impossible, LabError, cache_dir, lock, run, step

# The minor version of Kubernetes that the tests run: TFTRAINING_KUBERNETES, or the default one.
KUBERNETES_VARIABLE, DEFAULT_MINOR = "TFTRAINING_KUBERNETES", "1.36"
KUBERNETES_VERSIONS = {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3", "1.37": "1.37.2"}


def _chosen(variable: str, default: str, versions: Collection[str]) -> str:
    """The version that the environment variable names, or the default one; LabError if there is no such version."""
    version = os.environ.get(variable) or default
    if version not in versions:
        raise LabError(f"{variable}={version}: choose from {', '.join(versions)}")
    return version


KUBERNETES_MINOR = _chosen(KUBERNETES_VARIABLE, DEFAULT_MINOR, KUBERNETES_VERSIONS)
KUBERNETES_VERSION = KUBERNETES_VERSIONS[KUBERNETES_MINOR]
# Kubernetes' own scheduler places gangs from 1.37 on, where the administrator turns that on: a gate, and an API.
NATIVE_GANGS = int(KUBERNETES_MINOR.partition(".")[2]) >= 37
GANG_GATES = {"GenericWorkload": True} if NATIVE_GANGS else {}
GANG_APIS = {"scheduling.k8s.io/v1beta1": "true"} if NATIVE_GANGS else {}
KUBERNETES = "kubernetes" if KUBERNETES_MINOR == DEFAULT_MINOR else f"kubernetes-{KUBERNETES_MINOR}"
# The version of Kueue that the tests run: TFTRAINING_KUEUE, or the newest one.
KUEUE_VARIABLE, NEWEST_KUEUE = "TFTRAINING_KUEUE", "0.17"
KUEUES = {NEWEST_KUEUE: "kueue", "0.14": "kueue-0.14"}
KUEUE_VERSION = _chosen(KUEUE_VARIABLE, NEWEST_KUEUE, KUEUES)
SOURCES = Path(__file__).parent / "go"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
ASSETS = ("etcd", "kube-apiserver", "kubectl")
# name: (module's folder in go/, package)
PACKAGES = {
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kind": ("kind", "sigs.k8s.io/kind"),
    "helm": ("helm", "helm.sh/helm/v3/cmd/helm"),
    "helm4": ("helm4", "helm.sh/helm/v4/cmd/helm"),
    "coredns": ("coredns", "github.com/coredns/coredns"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "kueue": (KUEUES[KUEUE_VERSION], "sigs.k8s.io/kueue/cmd/kueue"),
    "scheduler-plugins": ("scheduler-plugins", "sigs.k8s.io/scheduler-plugins/cmd/scheduler"),
    "kube-router": ("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    "local-path-provisioner": ("local-path-provisioner", "github.com/rancher/local-path-provisioner"),
    "pause": ("pause", "."),
    "kstatus": ("kstatus", "."),
    "conditions": ("conditions", "."),
    "prometheus-operator": ("prometheus-operator", "github.com/prometheus-operator/prometheus-operator/cmd/operator"),
    "argo-lint": ("argo-lint", "."),
    "katib": ("katib", "."),
    "promql": ("promql", "."),
    "promtool": ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
    "fake-gcs-server": ("fake-gcs-server", "."),
    "registry": ("registry", "."),
    "glua": ("lua", "github.com/yuin/gopher-lua/cmd/glua"),
    # Of these modules only the definitions of their custom resources are read.
    "argo-workflows-crds": ("definitions", "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow"),
    "flux-kustomize-crds": ("definitions", "github.com/fluxcd/kustomize-controller"),
    "flux-source-crds": ("definitions", "github.com/fluxcd/source-controller"),
    "katib-crds": ("definitions", "github.com/kubeflow/katib/pkg/apis/controller"),
    "tfjob-crds": ("definitions", "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"),
    "actionlint": ("actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),
    "ct": ("chart-testing", "github.com/helm/chart-testing/v3/ct"),
} | {
    name: (KUBERNETES, f"k8s.io/kubernetes/cmd/{name}")
    for name in (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
        "kubeadm",
        "kubectl",
    )
}


def _link_flags(version: str) -> str:
    major, minor, _ = version.split(".")
    stamps = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


# Without the service discovery of every cloud, which takes most of promtool's build and which no test needs.
TAGS = {"promtool": "remove_all_sd"}
BUILD_ENV = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}


def _build_words(module: str) -> list[str]:
    """The first words of Go's command for a program of this module. Another Kubernetes changes no other program."""
    version = KUBERNETES_VERSION if module == KUBERNETES else KUBERNETES_VERSIONS[DEFAULT_MINOR]
    tags = ["-tags", TAGS[module]] if module in TAGS else []
    return ["build", "-trimpath", "-buildvcs=false", *tags, "-ldflags", _link_flags(version)]


def key(module: str) -> str:
    """Return a short hash of all that decides what the programs of this module are."""
    digest = hashlib.sha256(repr((_build_words(module), BUILD_ENV)).encode())
    for path in sorted((SOURCES / module).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def ensure(*names: str, pinned: bool = False) -> Path:
    """Return a directory that holds the named programs, after building those that are not cached.

    etcd, kube-apiserver and kubectl come from KUBEBUILDER_ASSETS where that is set, unless `pinned` asks for the
    versions of go.mod. Raises LabError for an unknown name, a missing Go, or a build that fails.
    """
    if unknown := sorted(set(names) - set(PACKAGES)):
        raise LabError(f"unknown program {', '.join(unknown)}: choose from {', '.join(sorted(PACKAGES))}")
    assets = "" if pinned else os.environ.get(ASSETS_VARIABLE, "")
    return _gather({name: _asset(assets, name) or _built(name) for name in names}, assets)


def module_files(name: str) -> Path:
    """Return the directory of the module from which the named program is built, as published: for its manifests.

    LabError if the download fails; go.sum has the checksum.
    """
    folder, package = PACKAGES[name]
    command = [_go(name), "list", "-f", "{{.Module.Dir}}", package]
    return Path(run(command, cwd=SOURCES / folder, env=os.environ | BUILD_ENV).strip())


def _asset(folder: str, name: str) -> Path | None:
    """Return the program in `folder` (KUBEBUILDER_ASSETS), if that is set and this program belongs there."""
    if not folder or name not in ASSETS:
        return None
    path = Path(folder).resolve() / name
    if path.exists():
        return path
    if name == "kubectl":  # many asset folders lack it
        return None
    raise LabError(f"{ASSETS_VARIABLE} is {folder}, which lacks {name}: unset the variable, or add the program")


def _built(name: str) -> Path:
    """Return the cached program, built first if it is missing."""
    module, package = PACKAGES[name]
    target = cache_dir() / "programs" / f"{module}-{key(module)}" / name
    if not target.exists():
        with lock(f"build-{module}"):
            if not target.exists():
                _build(SOURCES / module, package, target)
    return target


def _build(folder: Path, package: str, target: Path) -> None:
    """Compile one package to `target`, which appears only when it is complete."""
    go = _go(target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with step(f"building {target.name} with Go (minutes the first time, then cached)"):
        run([go, *_build_words(folder.name), "-o", partial, package], cwd=folder, env=os.environ | BUILD_ENV)
    partial.replace(target)


def _go(name: str) -> str:
    if go := shutil.which("go"):
        return go
    raise Impossible(f"Go is not on the PATH, and {name} must be built: install Go 1.26 or later")


def _gather(chosen: dict[str, Path], assets: str) -> Path:
    """Return a directory of links to the chosen programs; the same pins and assets give the same directory."""
    pins = [key(module) for module in sorted({module for module, _ in PACKAGES.values()})]
    origin = repr((pins, assets))
    folder = cache_dir() / "bin" / hashlib.sha256(origin.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in chosen.items():
        link = folder / name
        if not (link.is_symlink() and link.readlink() == path and link.exists()):
            partial = folder / f".{name}.{os.getpid()}"
            partial.symlink_to(path)
            partial.replace(link)
    return folder
