"""What `kubectl apply` rejects: one small change to a good manifest, the field that is named, the words that follow.

Another tier can walk the same tables. They must never be made from the schema that they test.
"""

from dataclasses import dataclass
from typing import Any

from tests.support.control_plane.manifests import REMOVED, WITHOUT_LAUNCHERS, template

TENSORFLOW = "spec.template.spec.containers.0"
TRAINS = [{"name": "tensorflow", "command": ["train"]}]
STORAGE = "spec.storage"
BACKUP = "spec.launcher.memoryBackup"
FIXED = "cannot be changed while the job runs: suspend the job"
PARTLY = "can be changed while the job runs: for the rest suspend the job"


@dataclass(frozen=True)
class Bad:
    """A change to the full manifest, and the answer that it gets."""

    name: str
    changes: dict[str, Any]
    field: str
    words: str


def bad(name: str, path: str, value: Any, words: str, field: str = "") -> Bad:
    """Return a rejection of one changed field, which the message names unless `field` is named instead."""
    return Bad(name, {path: value}, field or path, words)


def _uri(uri: str) -> dict[str, Any]:
    """The changes that put a bucket in place of the volume."""
    return {f"{STORAGE}.volume": REMOVED, f"{STORAGE}.mountPath": REMOVED, f"{STORAGE}.uri": uri}


def _durations() -> list[Bad]:
    """Every duration, with its least value."""
    least = {
        "launcher.terminationGraceSeconds": 0,
        "launcher.memberTimeoutSeconds": 1,
        "runPolicy.activeDeadlineSeconds": 1,
        "runPolicy.startDeadlineSeconds": 1,
        "runPolicy.stallTimeoutSeconds": 1,
        "runPolicy.ttlSecondsAfterFinished": 0,
        "runPolicy.evaluatorGraceSeconds": 0,
        "runPolicy.nodeLostSeconds": 1,
    }
    rows = []
    for path, value in least.items():
        words = f"should be greater than or equal to {value}"
        rows.append(bad(f"{path} too small", f"spec.{path}", value - 1, words))
        rows.append(bad(f"{path} too large", f"spec.{path}", 2**31, "should be less than or equal to 2147483647"))
    return rows


def _enums() -> list[Bad]:
    fields = [
        "restartPolicy.mode",
        "restartPolicy.scope",
        "restartPolicy.budgetReset",
        "restartPolicy.rules.1.action",
        "restartPolicy.rules.1.role",
        "launcher.memoryBackup.mode",
        "launcher.memoryBackup.exactness",
        "runPolicy.cleanPodPolicy",
        "runPolicy.scheduling.podGroup.apiVersion",
        "runPolicy.scheduling.gang",
        "successPolicy",
    ]
    return [
        bad(f"{path} unknown", f"spec.{path}", "Sometimes", "supported values:", f"spec.{path}".replace(".1.", "[1]."))
        for path in fields
    ]


def _misspelt() -> list[Bad]:
    """Unknown fields, which kubectl's strict validation finds at every level but the pod templates."""
    paths = [
        "replicaSpec",
        "replicaSpecs.workers",
        "replicaSpecs.worker.replica",
        "storage.path",
        "storage.volume.persistantVolumeClaim",
        "storage.volume.configMap",
        "restartPolicy.maxRestart",
        "launcher.grace",
        "launcher.memoryBackup.size",
        "runPolicy.suspended",
        "runPolicy.scheduling.podgroup",
        "runPolicy.scheduling.podGroup.timeout",
    ]
    return [bad(f"misspelt {path}", f"spec.{path}", {}, "unknown field") for path in paths]


NAMES = [
    bad(
        "name starts with a digit",
        "metadata.name",
        "7digits",
        "metadata.name must start with a letter",
        "TFTrainingJob",
    ),
    bad("name with a dot", "metadata.name", "digits.v2", "(no dots)", "TFTrainingJob"),
    bad("name too long", "metadata.name", "d" * 52, "metadata.name must have at most 51 characters", "TFTrainingJob"),
]

ROLES = [
    bad("no roles", "spec.replicaSpecs", REMOVED, "Required value"),
    Bad(
        "neither worker nor chief",
        {"spec.replicaSpecs.worker": REMOVED, "spec.replicaSpecs.chief": REMOVED, "spec.minReplicas": REMOVED},
        "spec.replicaSpecs",
        "needs at least a worker or a chief",
    ),
    bad("no template at all", "spec.template", REMOVED, "a role has no pod template: set spec.template"),
    bad("two chiefs", "spec.replicaSpecs.chief.replicas", 2, "TensorFlow allows at most one replica"),
    bad(
        "two evaluators",
        "spec.replicaSpecs.evaluator.replicas",
        2,
        "TensorFlow allows at most one replica",
    ),
    bad("no worker", "spec.replicaSpecs.worker.replicas", 0, "should be greater than or equal to 1"),
    bad("too many workers", "spec.replicaSpecs.worker.replicas", 10001, "should be less than or equal to 10000"),
    bad("half a worker", "spec.replicaSpecs.worker.replicas", 1.5, "must be of type integer"),
    bad("port 0", "spec.replicaSpecs.ps.port", 0, "should be greater than or equal to 1"),
    bad("port 65536", "spec.replicaSpecs.ps.port", 65536, "should be less than or equal to 65535"),
    bad("minReplicas 0", "spec.minReplicas", 0, "should be greater than or equal to 1"),
    bad("minReplicas above replicas", "spec.minReplicas", 4, "must not exceed spec.replicaSpecs.worker.replicas"),
    Bad(
        "minReplicas with no worker",
        {"spec.replicaSpecs.worker": REMOVED},
        "spec.minReplicas",
        "must not exceed spec.replicaSpecs.worker.replicas",
    ),
]

TEMPLATES = [
    bad("no spec in the template", "spec.template", {"metadata": {}}, "Required value", "spec.template.spec"),
    bad("no containers", "spec.template.spec.containers", [], "should have at least 1 items"),
    bad("a volume without its dash", "spec.template.spec.volumes", {"name": "data"}, "unknown field"),
    bad("a mount without its dash", f"{TENSORFLOW}.volumeMounts", {"mountPath": "/x"}, "unknown field", "volumeMounts"),
    bad(
        "two paths", f"{TENSORFLOW}.volumeMounts", [{"mountPath": ["/a", "/b"]}], "must be of type string", "mountPath"
    ),
    bad("resources in a word", f"{TENSORFLOW}.resources", "2 cpu", "must be of type object", "resources"),
    bad(
        "limits as a list", f"{TENSORFLOW}.resources", {"limits": ["cpu"]}, "must be of type object", "resources.limits"
    ),
    bad("security in a word", "spec.template.spec.securityContext", "restricted", "must be of type object"),
    bad("a container's security", f"{TENSORFLOW}.securityContext", ["x"], "must be of type object", "securityContext"),
    bad(
        "labels as a list", "spec.template.metadata", {"labels": ["team"]}, "must be of type object", "metadata.labels"
    ),
    bad(
        "a label of a number", "spec.template.metadata", {"labels": {"year": 2026}}, "must be of type string", "labels"
    ),
    bad(
        "annotations as a text", "spec.template.metadata", {"annotations": "x"}, "must be of type object", "annotations"
    ),
    bad(
        "no container tensorflow",
        f"{TENSORFLOW}.name",
        "main",
        "needs a container named tensorflow",
        "spec.template.spec.containers",
    ),
    bad(
        "no command",
        f"{TENSORFLOW}.command",
        REMOVED,
        "the container tensorflow needs a command",
        "spec.template.spec.containers",
    ),
    bad(
        "empty command",
        f"{TENSORFLOW}.command",
        [],
        "should have at least 1 items",
        "spec.template.spec.containers[0].command",
    ),
    bad(
        "no command in a role's template",
        "spec.replicaSpecs.worker.template",
        {"spec": {"containers": [{"name": "tensorflow"}]}},
        "the container tensorflow needs a command",
        "spec.replicaSpecs.worker.template.spec.containers",
    ),
    bad(
        "TF_CONFIG",
        f"{TENSORFLOW}.env.0.name",
        "TF_CONFIG",
        "the operator sets TF_CONFIG",
        "spec.template.spec.containers[0].env[0]",
    ),
    bad(
        "TF_CONFIG in an init container",
        "spec.template.spec.initContainers.0.env.0.name",
        "TF_CONFIG",
        "the operator sets TF_CONFIG",
        "spec.template.spec.initContainers[0].env[0]",
    ),
    bad(
        "TF_CONFIG in a role's sidecar",
        "spec.replicaSpecs.worker.template.spec.containers",
        [*template()["spec"]["containers"], {"name": "sidecar", "env": [{"name": "TF_CONFIG", "value": "{}"}]}],
        "the operator sets TF_CONFIG",
        "spec.replicaSpecs.worker.template.spec.containers[1].env[0]",
    ),
    bad("restartPolicy Always", "spec.template.spec.restartPolicy", "Always", "must be Never or unset"),
    bad("restartPolicy OnFailure", "spec.template.spec.restartPolicy", "OnFailure", "must be Never or unset"),
]

PATHS = [
    bad("storage with neither volume nor uri", f"{STORAGE}.volume", REMOVED, "needs exactly one of volume", STORAGE),
    bad("storage with both", f"{STORAGE}.uri", "gs://bucket", "needs exactly one of volume", STORAGE),
    Bad(
        "mountPath of a uri",
        {f"{STORAGE}.volume": REMOVED, f"{STORAGE}.uri": "gs://bucket"},
        f"{STORAGE}.mountPath",
        "works only with a volume",
    ),
    Bad("uri of S3", _uri("s3://bucket/a"), f"{STORAGE}.uri", "mount the bucket by a CSI driver"),
    *(
        Bad(f"uri {uri!r}", _uri(uri), f"{STORAGE}.uri", "must be gs://bucket or gs://bucket/path")
        for uri in ("", "/training", "hdfs://a/b", "gs://", "gs://Bucket", "gs://bucket/", "gs://bucket/a/../b")
    ),
    bad("volume with no source", f"{STORAGE}.volume", {}, "should have at least 1 properties"),
    bad("volume with two sources", f"{STORAGE}.volume.nfs", {}, "must have at most 1 item", f"{STORAGE}.volume"),
    bad("volume of its own for each pod", f"{STORAGE}.volume", {"emptyDir": {}}, "give every pod its own storage"),
    bad("claim of its own for each pod", f"{STORAGE}.volume", {"ephemeral": {}}, "give every pod its own storage"),
    *(
        bad(f"mountPath {path!r}", f"{STORAGE}.mountPath", path, "must be an absolute path such as /training")
        for path in ("", "training", "/", "/a/", "/a//b", "/a/../b", "/a/.", "/a:b", "/$(HOME)")
    ),
    *(
        bad(f"directory {path!r}", f"{STORAGE}.directory", path, "must be a relative path such as team/run-7")
        for path in ("", ".", "/a", "a/", "a//b", "..", "a/../b", "./a", "-a", "$(POD)", "a b", "a\nb")
    ),
    *(
        bad(
            f"saveDirs {path!r}",
            f"{STORAGE}.saveDirs.1",
            path,
            "must be '.' or a path relative",
            f"{STORAGE}.saveDirs[1]",
        )
        for path in ("", "/a", "a/", "..", "../other", "a/../..", "./a", "-a", "a b")
    ),
    bad("saveDirs empty", f"{STORAGE}.saveDirs", [], "should have at least 1 items"),
    bad("saveDirs twice the same", f"{STORAGE}.saveDirs", ["a", "a"], "Duplicate value", f"{STORAGE}.saveDirs[1]"),
]

POLICIES = [
    bad("maxRestarts negative", "spec.restartPolicy.maxRestarts", -1, "should be greater than or equal to 0"),
    bad("sameFailureLimit negative", "spec.restartPolicy.sameFailureLimit", -1, "should be greater than or equal to 0"),
    bad("sameFailureLimit large", "spec.restartPolicy.sameFailureLimit", 1001, "should be less than or equal to 1000"),
    bad("sameMemberLimit negative", "spec.restartPolicy.sameMemberLimit", -1, "should be greater than or equal to 0"),
    bad("sameMemberLimit large", "spec.restartPolicy.sameMemberLimit", 1001, "should be less than or equal to 1000"),
    bad("onDivergence", "spec.restartPolicy.onDivergence", "Ignore", "supported values"),
    bad("sameFailureLimit 1", "spec.restartPolicy.sameFailureLimit", 1, "must be 0 (off) or at least 2"),
    bad(
        "rule with no action",
        "spec.restartPolicy.rules.0.action",
        REMOVED,
        "Required value",
        "spec.restartPolicy.rules[0].action",
    ),
    bad(
        "rule with no condition",
        "spec.restartPolicy.rules.0",
        {"action": "Ignore"},
        "a rule needs a condition",
        "spec.restartPolicy.rules[0]",
    ),
    *(
        bad(
            f"rule {field} {value!r}",
            f"spec.restartPolicy.rules.0.{field}",
            value,
            words,
            f"spec.restartPolicy.rules[0].{field}",
        )
        for field, value, words in (
            ("onExitCodes", [0], "should be greater than or equal to 1"),
            ("onExitCodes", [256], "should be less than or equal to 255"),
            ("onExitCodes", [], "should have at least 1 items"),
            ("onExitCodes", [1, 1], "Duplicate value"),
            ("onSignals", [0], "should be greater than or equal to 1"),
            ("onSignals", [65], "should be less than or equal to 64"),
            ("onSignals", [], "should have at least 1 items"),
            ("onReasons", [""], "should be at least 1 chars long"),
            ("onReasons", [], "should have at least 1 items"),
        )
    ),
    bad("no launcher image", "spec.launcher.image", "", "should be at least 1 chars long"),
    bad("a bare Off, which is false in YAML", f"{BACKUP}.mode", False, 'must be of type string: "boolean"'),
    *(
        bad(f"maxOverheadPercent {value}", f"{BACKUP}.maxOverheadPercent", value, "must be above 0 and at most 100")
        for value in (0, -1, 100.5)
    ),
    bad("maxOverheadPercent in a word", f"{BACKUP}.maxOverheadPercent", "1%", "must be of type number"),
    *(
        bad(f"sizeLimit {value!r}", f"{BACKUP}.sizeLimit", value, "must be a number of bytes above 0, such as 500M")
        for value in ("", "0", "0.0Gi", "-1Gi", "2GB", "2 Gi", "Gi", "1e9", "100m", "1,5Gi")
    ),
    bad("sizeLimit without a unit, as a number", f"{BACKUP}.sizeLimit", 1000, "must be of type string"),
    bad("sizeLimit too long", f"{BACKUP}.sizeLimit", "1" * 33, "may not be more than 32"),
    bad("managedBy no domain", "spec.runPolicy.managedBy", "kueue", "must be a domain, a slash and a name"),
    bad("managedBy too long", "spec.runPolicy.managedBy", "a/" + "b" * 62, "may not be more than 63"),
]

GANGS = [
    bad("two gang schedulers", "spec.runPolicy.scheduling.gang", "Native", "excludes podGroup"),
    *(
        Bad(
            f"a gang of Kubernetes' own for another scheduler in {template}",
            {
                "spec.runPolicy.scheduling": {"gang": "Native"},
                template: {"spec": {"schedulerName": "volcano", "containers": TRAINS}},
            },
            "spec.runPolicy.scheduling.gang",
            "needs Kubernetes' own scheduler: remove schedulerName",
        )
        for template in ("spec.template", *(f"spec.replicaSpecs.{role}.template" for role in ("chief", "worker", "ps")))
    ),
    *(
        bad(f"topologyKey {value!r}", "spec.runPolicy.scheduling.topologyKey", value, "must be the name of a label")
        for value in ("example.com/", "/rack", "a/b/c", "-rack", "rack name", "rack-", "x" * 64)
    ),
    bad("no topologyKey", "spec.runPolicy.scheduling.topologyKey", "", "at least 1 chars long"),
    bad("topologyKey too long", "spec.runPolicy.scheduling.topologyKey", "a" * 318, "may not be more than 317"),
    bad("no PodGroup API", "spec.runPolicy.scheduling.podGroup", {}, "Required", "podGroup.apiVersion"),
    bad(
        "more pods in the group than there are",
        "spec.runPolicy.scheduling.podGroup.minAvailable",
        7,
        "must not be more than the chief, the workers and the parameter servers together",
    ),
    bad(
        "empty group",
        "spec.runPolicy.scheduling.podGroup.minAvailable",
        0,
        "should be greater than or equal to 1",
    ),
    bad(
        "a queue outside Volcano",
        "spec.runPolicy.scheduling.podGroup.apiVersion",
        "scheduling.x-k8s.io/v1alpha1",
        "only a PodGroup of scheduling.volcano.sh/v1beta1 has a queue",
        "spec.runPolicy.scheduling.podGroup.queue",
    ),
    bad(
        "a timeout under Volcano",
        "spec.runPolicy.scheduling.podGroup.timeoutSeconds",
        60,
        "only a PodGroup of scheduling.x-k8s.io/v1alpha1 has a timeout",
    ),
]

LAUNCHERS = [
    *(
        Bad(
            f"{path} without launchers",
            {each: value for each, value in WITHOUT_LAUNCHERS.items() if each != f"spec.{path}"},
            f"spec.{path}",
            "works only with launchers: set spec.restartPolicy.mode: InPlace",
        )
        for path in (each.removeprefix("spec.") for each in WITHOUT_LAUNCHERS if each != "spec.restartPolicy.mode")
    ),
]

GIT = {"url": "https://git.example.com/team/digits.git", "revision": "0" * 40}
NOT_HTTPS = "must be an https URL without a name or a password"
CODE = [
    bad("code without a source", "spec.code", {}, "needs exactly one source: configMap, storage or git"),
    bad("code with two sources", "spec.code.git", GIT, "needs exactly one source", "spec.code"),
    bad("code without digest", "spec.code.digest", REMOVED, "need the digest of the archive"),
    bad("another digest", "spec.code.digest", "sha256:0", "must be sha256: and 64 hexadecimal digits"),
    Bad(
        "a digest of a commit",
        {"spec.code.configMap": REMOVED, "spec.code.git": GIT},
        "spec.code.digest",
        "with git remove it",
    ),
    bad("a branch", "spec.code", {"git": GIT | {"revision": "main"}}, "must be the full SHA", "spec.code.git.revision"),
    bad(
        "a password in the URL",
        "spec.code",
        {"git": GIT | {"url": "https://me:pw@a/b"}},
        NOT_HTTPS,
        "spec.code.git.url",
    ),
    bad("a file as repository", "spec.code", {"git": GIT | {"url": "file:///etc"}}, NOT_HTTPS, "spec.code.git.url"),
    Bad(
        "code in storage that leaves it",
        {"spec.code.configMap": REMOVED, "spec.code.storage": {"path": "../a"}},
        "spec.code.storage.path",
        "must be a relative path",
    ),
    Bad(
        "code in storage without storage",
        {"spec.code.configMap": REMOVED, "spec.code.storage": {"path": "a"}, "spec.storage": REMOVED},
        "spec.code.storage",
        "needs spec.storage.volume",
    ),
    Bad(
        "code in a bucket",
        {**_uri("gs://bucket"), "spec.code.configMap": REMOVED, "spec.code.storage": {"path": "a"}},
        "spec.code.storage",
        "needs spec.storage.volume",
    ),
    bad("code in a nameless ConfigMap", "spec.code.configMap.name", "", "should be at least 1 chars long"),
]

REJECTED = [
    bad("no spec", "spec", REMOVED, "Required value"),
    *NAMES,
    *ROLES,
    *TEMPLATES,
    *PATHS,
    *POLICIES,
    *GANGS,
    *LAUNCHERS,
    *CODE,
    *_durations(),
    *_enums(),
    *_misspelt(),
]

# Changes to the full manifest while its job runs. The same are accepted while it is suspended.
IMMUTABLE = [
    bad("template image", f"{TENSORFLOW}.image", "trainer:2", FIXED, "spec.template"),
    bad("template command", f"{TENSORFLOW}.command.1", "other.py", FIXED, "spec.template"),
    bad("template label", "spec.template.metadata.labels.team", "audio", FIXED, "spec.template"),
    bad("template node selector", "spec.template.spec.nodeSelector.disk", "slow", FIXED, "spec.template"),
    bad("template toleration", "spec.template.spec.tolerations", [{"operator": "Exists"}], FIXED, "spec.template"),
    bad("chief port", "spec.replicaSpecs.chief.port", 2300, FIXED, "spec.replicaSpecs.chief"),
    bad("chief gone", "spec.replicaSpecs.chief", REMOVED, FIXED),
    bad("worker port", "spec.replicaSpecs.worker.port", 2300, PARTLY, "spec.replicaSpecs.worker"),
    bad("worker template", "spec.replicaSpecs.worker.template", REMOVED, PARTLY, "spec.replicaSpecs.worker"),
    bad(
        "worker image",
        "spec.replicaSpecs.worker.template",
        template(image="trainer:2"),
        PARTLY,
        "spec.replicaSpecs.worker",
    ),
    Bad(
        "worker gone",
        {"spec.replicaSpecs.worker": REMOVED, "spec.minReplicas": REMOVED},
        "spec.replicaSpecs.worker",
        PARTLY,
    ),
    bad("more ps", "spec.replicaSpecs.ps.replicas", 3, FIXED, "spec.replicaSpecs.ps"),
    bad("evaluator gone", "spec.replicaSpecs.evaluator", REMOVED, FIXED),
    bad("minReplicas", "spec.minReplicas", 1, FIXED),
    bad("minReplicas gone", "spec.minReplicas", REMOVED, FIXED),
    bad("storage gone", "spec.storage", REMOVED, FIXED),
    bad("storage claim", f"{STORAGE}.volume.persistentVolumeClaim.claimName", "other", FIXED, "spec.storage"),
    bad("storage source", f"{STORAGE}.volume", {"nfs": {"server": "a", "path": "/"}}, FIXED, "spec.storage"),
    bad("storage mountPath", f"{STORAGE}.mountPath", "/elsewhere", FIXED, "spec.storage"),
    bad("storage directory", f"{STORAGE}.directory", REMOVED, FIXED, "spec.storage"),
    bad("storage saveDirs", f"{STORAGE}.saveDirs", ["."], FIXED, "spec.storage"),
    Bad("restart mode", WITHOUT_LAUNCHERS, "spec.restartPolicy", PARTLY),
    bad("restart scope", "spec.restartPolicy.scope", REMOVED, PARTLY, "spec.restartPolicy"),
    bad("restart budgetReset", "spec.restartPolicy.budgetReset", "OnProgress", PARTLY, "spec.restartPolicy"),
    bad("restart rules", "spec.restartPolicy.rules", [], PARTLY, "spec.restartPolicy"),
    bad("launcher", "spec.launcher.warmStart", True, FIXED, "spec.launcher"),
    bad("memoryBackup mode", f"{BACKUP}.mode", "Auto", FIXED, "spec.launcher"),
    bad("memoryBackup sizeLimit", f"{BACKUP}.sizeLimit", "1Gi", FIXED, "spec.launcher"),
    bad("memoryBackup exactness", f"{BACKUP}.exactness", "Preferred", FIXED, "spec.launcher"),
    bad("code", "spec.code.digest", f"sha256:{'1' * 64}", FIXED, "spec.code"),
    bad("code gone", "spec.code", REMOVED, FIXED),
    bad("cleanPodPolicy", "spec.runPolicy.cleanPodPolicy", "None", FIXED),
    bad("scheduling", "spec.runPolicy.scheduling", REMOVED, FIXED),
    bad("topologyKey", "spec.runPolicy.scheduling.topologyKey", "rack", FIXED, "spec.runPolicy.scheduling"),
    bad("priority", "spec.runPolicy.scheduling.priorityClassName", "low", FIXED, "spec.runPolicy.scheduling"),
    bad("managedBy", "spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue", FIXED),
    Bad("successPolicy", {"spec.successPolicy": "AllWorkers", **WITHOUT_LAUNCHERS}, "spec.successPolicy", FIXED),
]

# Changes that a running job takes.
MUTABLE: dict[str, Any] = {
    "metadata.labels": {"seen": "yes"},
    "spec.replicaSpecs.worker.replicas": 5,
    "spec.restartPolicy.maxRestarts": 20,
    "spec.restartPolicy.sameFailureLimit": 0,
    "spec.restartPolicy.sameMemberLimit": 0,
    "spec.restartPolicy.onDivergence": "Restore",
    "spec.runPolicy.suspend": True,
    "spec.runPolicy.activeDeadlineSeconds": 7200,
    "spec.runPolicy.startDeadlineSeconds": 30,
    "spec.runPolicy.stallTimeoutSeconds": REMOVED,
    "spec.runPolicy.ttlSecondsAfterFinished": 5,
    "spec.runPolicy.evaluatorGraceSeconds": 0,
    "spec.runPolicy.nodeLostSeconds": 5,
}
