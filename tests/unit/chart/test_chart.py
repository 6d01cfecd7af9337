"""What Helm makes of the chart: the permissions, the security settings, the modes, and the values it refuses."""

from typing import Any

import pytest
import yaml

from testbed.shell import LabError
from tests.support.control_plane.chart import CHART, Manifest, of_kind, render
from tests.support.crd import definition
from tests.support.repository import REPOSITORY
from tftraining_client.commands.doctor import OPERATOR, judge_operator
from tftraining_client.validation import validate
from tftraining_operator.cluster.older_operators import LABEL_ELECTION
from tftraining_operator.runtime import read_settings

CRD = REPOSITORY / "crds" / "tftrainingjobs.yaml"
# group/resource: verbs. A permission that the operator's code stops using leaves this table and the chart together.
OPERATOR_RULES = {
    "tftraining.dev/tftrainingjobs": ["delete", "get", "list", "watch"],
    "tftraining.dev/tftrainingjobs/status": ["patch", "update"],
    "/pods": ["create", "delete", "get", "list", "patch", "watch"],
    "/pods/status": ["patch"],
    "/services": ["create", "delete", "get", "list", "patch", "watch"],
    "/secrets": ["create"],
    "scheduling.x-k8s.io/podgroups": ["create", "delete", "patch"],
    "scheduling.volcano.sh/podgroups": ["create", "delete", "patch"],
    "scheduling.k8s.io/podgroups": ["create", "delete", "patch"],
    "networking.k8s.io/networkpolicies": ["create", "delete", "patch"],
    "/events": ["list", "watch"],
    "events.k8s.io/events": ["create"],
    "/resourcequotas": ["list", "watch"],
}
# In the release's namespace only. Creation cannot be restricted by name.
ELECTION_RULES = {"coordination.k8s.io/leases": ["create"], "/pods": ["list"]}
NAMED_RULES = {"coordination.k8s.io/leases operator-tftraining-operator": ["get", "patch", "watch"]}
# Nodes are in no namespace: only an operator of the whole cluster reads them.
NODES = {"/nodes": ["get", "list", "watch"]}


@pytest.fixture(scope="module")
def default() -> list[Manifest]:
    return render()


def table(role: Manifest) -> dict[str, list[str]]:
    """Return the role's rules as group/resource, with the names it is restricted to: sorted verbs."""
    return {
        " ".join([f"{group}/{resource}", *rule.get("resourceNames", ())]): sorted(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def named(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Return the manifests of one kind by namespace/name."""
    found = of_kind(manifests, kind)
    return {f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}": item for item in found}


def operator_pod(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the spec of the operator's pod."""
    (deployment,) = of_kind(manifests, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def environment(manifests: list[Manifest]) -> dict[str, str]:
    """Return the plain environment variables of the operator."""
    return {item["name"]: item["value"] for item in operator_pod(manifests)["containers"][0]["env"] if "value" in item}


def test_the_chart_carries_the_custom_resource_definition_byte_for_byte() -> None:
    copy = CHART / "files" / "tftrainingjobs.yaml"
    assert copy.read_bytes() == CRD.read_bytes(), f"copy crds/tftrainingjobs.yaml to {copy.relative_to(REPOSITORY)}"


def test_the_definition_is_installed_and_outlives_the_release(default: list[Manifest]) -> None:
    (crd,) = of_kind(default, "CustomResourceDefinition")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd["metadata"].pop("labels")["app.kubernetes.io/managed-by"] == "Helm"
    assert crd == definition()


def test_the_definition_can_be_left_out(default: list[Manifest]) -> None:
    without = render({"crds": {"install": False}})
    assert without == [manifest for manifest in default if manifest["kind"] != "CustomResourceDefinition"]


def test_cluster_wide_permissions(default: list[Manifest]) -> None:
    roles = named(default, "ClusterRole")
    assert table(roles["/operator-tftraining-operator"]) == OPERATOR_RULES | NODES
    election = "operator-tftraining-operator-leader-election"
    assert {key: table(role) for key, role in named(default, "Role").items()} == {
        f"tftraining-system/{election}": ELECTION_RULES | NAMED_RULES
    }
    bound = [*of_kind(default, "ClusterRoleBinding"), *of_kind(default, "RoleBinding")]
    assert [item["roleRef"]["name"] for item in bound] == ["operator-tftraining-operator", election]
    assert all(item["subjects"] == [account(default)] for item in bound)


def account(manifests: list[Manifest]) -> dict[str, str]:
    """Return the account that the operator's pod uses, as a subject of a role binding."""
    name = operator_pod(manifests)["serviceAccountName"]
    assert f"tftraining-system/{name}" in named(manifests, "ServiceAccount")
    return {"kind": "ServiceAccount", "name": name, "namespace": "tftraining-system"}


def test_namespaced_permissions() -> None:
    manifests = render({"watchNamespaces": ["red", "blue"], "userRoles": {"create": False}})
    assert {key: table(role) for key, role in named(manifests, "Role").items()} == {
        "red/operator-tftraining-operator": OPERATOR_RULES,
        "blue/operator-tftraining-operator": OPERATOR_RULES,
        "tftraining-system/operator-tftraining-operator-leader-election": ELECTION_RULES | NAMED_RULES,
    }
    bindings = named(manifests, "RoleBinding")
    assert set(bindings) == set(named(manifests, "Role"))
    assert all(item["subjects"] == [account(manifests)] for item in bindings.values())
    assert not {item["kind"] for item in manifests} & {"ClusterRole", "ClusterRoleBinding"}
    assert environment(manifests)["TFTRAINING_NAMESPACES"] == "red,blue"


def test_people_get_roles_by_aggregation(default: list[Manifest]) -> None:
    roles = named(default, "ClusterRole")
    view, edit = (roles[f"/operator-tftraining-operator-{name}"] for name in ("view", "edit"))
    assert {verb for verbs in table(view).values() for verb in verbs} == {"get", "list", "watch"}
    assert set(table(edit)) == {"tftraining.dev/tftrainingjobs", "tftraining.dev/tftrainingjobs/scale"}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{prefix}view"] == "true"
    assert edit["metadata"]["labels"][f"{prefix}edit"] == edit["metadata"]["labels"][f"{prefix}admin"] == "true"


def test_the_operator_runs_as_the_restricted_standard_asks(default: list[Manifest]) -> None:
    pod = operator_pod(default)
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} == set(container["resources"]["requests"])
    assert not of_kind(default, "ServiceAccount")[0]["automountServiceAccountToken"]


def test_the_operator_is_probed_and_told_who_it_is(default: list[Manifest]) -> None:
    (container,) = operator_pod(default)["containers"]
    assert [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")] == [
        {"path": "/healthz", "port": "http"},
        {"path": "/readyz", "port": "http"},
    ]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert [item["name"] for item in container["env"] if "valueFrom" in item] == ["POD_NAMESPACE", "POD_NAME"]
    assert environment(default) == {
        "TFTRAINING_NAMESPACES": "",
        "TFTRAINING_IMAGE": container["image"],
        "TFTRAINING_NETWORK_POLICY": "tftraining-system/app.kubernetes.io/name=tftraining-operator,"
        "app.kubernetes.io/instance=operator",
        "TFTRAINING_LEADER_ELECTION": "tftraining-system/operator-tftraining-operator",
        "TFTRAINING_OPERATOR_PODS": "app.kubernetes.io/name=tftraining-operator,app.kubernetes.io/instance=operator",
        "TFTRAINING_LOG_LEVEL": "info",
        "TFTRAINING_LOG_FORMAT": "text",
    }


def test_node_conditions_are_told_where_there_are_any() -> None:
    found = environment(render({"nodeConditions": {"types": ["GpuEccError", "example.com/Xid"]}}))
    names = ("TFTRAINING_NODE_CONDITIONS", "TFTRAINING_NODE_CONDITION_INTERVAL")
    assert [found[name] for name in names] == ["GpuEccError,example.com/Xid", "60"]
    assert read_settings(found).node_conditions == ("GpuEccError", "example.com/Xid")


def test_the_doctor_finds_the_operator_under_any_name_and_knows_its_namespaces() -> None:
    (found,) = of_kind(render({"nameOverride": "trainer", "watchNamespaces": ["a", "team"]}), "Deployment")
    label, _, value = OPERATOR.partition("=")
    assert found["metadata"]["labels"][label] == value
    found["status"] = {"readyReplicas": 1}
    assert judge_operator([found], "team").result == "ok"
    told = judge_operator([found], "other")
    assert told.result == "failed" and "--set 'watchNamespaces={a,team,other}'" in told.fix
    (everywhere,) = of_kind(render(), "Deployment")
    assert judge_operator([{**everywhere, "status": found["status"]}], "other").result == "ok"


def test_two_operators_prefer_different_nodes_and_have_a_disruption_budget(default: list[Manifest]) -> None:
    (deployment,), (budget,) = of_kind(default, "Deployment"), of_kind(default, "PodDisruptionBudget")
    spec, pod = deployment["spec"], operator_pod(default)
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    selector = spec["selector"]["matchLabels"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": selector}}
    (preferred,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": selector},
    }
    assert {each["key"]: (each["effect"], each["tolerationSeconds"]) for each in pod["tolerations"]} == {
        "node.kubernetes.io/not-ready": ("NoExecute", 10),
        "node.kubernetes.io/unreachable": ("NoExecute", 10),
    }


def test_the_election_finds_the_pods_of_versions_without_it(default: list[Manifest]) -> None:
    """They have the labels of the selector and not the new one; the selector itself must never change."""
    (deployment,) = of_kind(default, "Deployment")
    settings, labels = read_settings(environment(default)), deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert dict(each.split("=") for each in settings.operator_pods.split(",")) == selector
    assert labels[LABEL_ELECTION] == "true" and LABEL_ELECTION not in selector
    assert settings.leader_election is not None
    assert settings.leader_election.namespace == deployment["metadata"]["namespace"]


def test_one_operator_needs_no_budget() -> None:
    manifests = render({"replicas": 1})
    assert of_kind(manifests, "Deployment")[0]["spec"]["replicas"] == 1
    assert not of_kind(manifests, "PodDisruptionBudget")
    assert environment(manifests)["TFTRAINING_LEADER_ELECTION"], "two run at a time during an upgrade"


def test_network_policies_name_the_pods_of_the_operator(default: list[Manifest]) -> None:
    operator_selector = read_settings(environment(default)).operator_selector
    (deployment,) = of_kind(default, "Deployment")
    assert operator_selector is not None and operator_selector.namespace == deployment["metadata"]["namespace"]
    assert operator_selector.labels == deployment["spec"]["selector"]["matchLabels"]


def test_without_network_policies_there_is_no_right_to_them() -> None:
    without = render({"networkPolicy": {"enabled": False}})
    rules = table(named(without, "ClusterRole")["/operator-tftraining-operator"])
    assert {name for name in OPERATOR_RULES if name not in rules} == {"networking.k8s.io/networkpolicies"}
    assert read_settings(environment(without)).operator_selector is None


def test_values_reach_the_pod() -> None:
    scheduling = {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "control"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "imagePullSecrets": [{"name": "registry"}],
    }
    image = {"repository": "mirror/operator", "tag": "7", "pullPolicy": "Never"}
    manifests = render(scheduling | {"image": image, "helperImage": "mirror/helper:7", "logLevel": "debug"})
    pod = operator_pod(manifests)
    pod["tolerations"] = [each for each in pod["tolerations"] if "tolerationSeconds" not in each]
    assert {name: pod[name] for name in scheduling} == scheduling
    assert pod["containers"][0]["image"] == "mirror/operator:7"
    assert pod["containers"][0]["imagePullPolicy"] == "Never"
    assert environment(manifests)["TFTRAINING_IMAGE"] == "mirror/helper:7"
    assert environment(manifests)["TFTRAINING_LOG_LEVEL"] == "debug"


def test_a_digest_names_the_image_unless_there_is_a_tag() -> None:
    digest = "sha256:" + "0" * 64
    tagged = render({"image": {"repository": "own/operator", "tag": "7", "digest": digest}})
    assert operator_pod(tagged)["containers"][0]["image"] == "own/operator:7"
    manifests = render({"image": {"repository": "mirror/operator", "digest": digest}})
    assert operator_pod(manifests)["containers"][0]["image"] == f"mirror/operator@{digest}"
    assert environment(manifests)["TFTRAINING_IMAGE"] == f"mirror/operator@{digest}"


def test_an_account_of_ones_own() -> None:
    manifests = render({"serviceAccount": {"create": False, "name": "mine"}})
    assert not of_kind(manifests, "ServiceAccount")
    assert operator_pod(manifests)["serviceAccountName"] == "mine"
    assert {item["subjects"][0]["name"] for item in of_kind(manifests, "ClusterRoleBinding")} == {"mine"}


def test_the_service_monitor_finds_the_operator(default: list[Manifest]) -> None:
    assert not of_kind(default, "ServiceMonitor")
    manifests = render({"metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}})
    (monitor,), (service,), (deployment,) = (
        of_kind(manifests, kind) for kind in ("ServiceMonitor", "Service", "Deployment")
    )
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert monitor["spec"]["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "30s"}]


def hooks(values: dict[str, Any] | None = None) -> dict[str, Manifest]:
    """What `helm test` creates, by kind."""
    found = [each for each in render(values, tests=True) if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in found} == {"test"}
    return {each["kind"]: each for each in found}


def test_the_test_of_the_release_runs_a_valid_job_and_waits_for_it(default: list[Manifest]) -> None:
    made = hooks()
    assert made.keys() == {"TFTrainingJob", "ServiceAccount", "Role", "RoleBinding", "Pod"}
    job, pod = made["TFTrainingJob"], made["Pod"]
    validate({name: job[name] for name in ("apiVersion", "kind", "metadata", "spec")})
    (container,), (operator,) = pod["spec"]["containers"], operator_pod(default)["containers"]
    assert container["command"][-3:] == [job["metadata"]["namespace"], job["metadata"]["name"], "300"]
    script = (CHART / "files" / "helm-test.py").read_text(encoding="utf-8")
    assert container["command"][2].rstrip("\n") == script.rstrip("\n")
    assert container["image"] == operator["image"] == job["spec"]["template"]["spec"]["containers"][0]["image"]
    assert table(made["Role"]) == {f"tftraining.dev/tftrainingjobs {job['metadata']['name']}": ["get"]}
    weights = {kind: int(each["metadata"]["annotations"].get("helm.sh/hook-weight", 0)) for kind, each in made.items()}
    assert weights["Role"] < weights["TFTrainingJob"] < weights["Pod"]


def test_the_pod_of_the_test_is_not_taken_for_an_operator(default: list[Manifest]) -> None:
    (deployment,) = of_kind(default, "Deployment")
    selector, labels = deployment["spec"]["selector"]["matchLabels"], hooks()["Pod"]["metadata"]["labels"]
    assert not selector.items() <= labels.items()


def test_the_job_of_the_test_is_in_a_watched_namespace() -> None:
    assert {each["metadata"]["namespace"] for each in hooks().values()} == {"tftraining-system"}
    watched = {"watchNamespaces": ["red", "blue"], "imagePullSecrets": [{"name": "registry"}]}
    made = hooks(watched)
    assert {each["metadata"]["namespace"] for each in made.values()} == {"red"}
    assert "imagePullSecrets" not in made["Pod"]["spec"], "the Secret is in another namespace"
    chosen = hooks(watched | {"test": {"namespace": "blue", "timeoutSeconds": 90}})
    assert {each["metadata"]["namespace"] for each in chosen.values()} == {"blue"}
    assert chosen["TFTrainingJob"]["spec"]["runPolicy"]["activeDeadlineSeconds"] == 90


def test_an_upgrade_that_reuses_the_values_of_the_version_before_renders() -> None:
    new = {"test": None, "nodeConditions": None, "networkPolicy": {"metricsFrom": None}}
    new["metrics"] = dict.fromkeys(("podMonitor", "prometheusRule", "dashboard"))
    assert render(new) == render()
    assert hooks(new) == hooks()


@pytest.mark.slow_fault
@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["red"], "metrics": {"podMonitor": {"enabled": True}}}])
def test_helm_4_renders_the_same(values: dict[str, Any]) -> None:
    assert render(values, tests=True, helm="helm4") == render(values, tests=True)


def test_the_example_for_artifact_hub_is_the_minimal_one() -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["annotations"]
    (example,) = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    assert example == yaml.safe_load((REPOSITORY / "examples" / "minimal.yaml").read_text(encoding="utf-8"))
    (crd,) = yaml.safe_load(annotations["artifacthub.io/crds"])
    spec = definition()["spec"]
    names, (version,) = spec["names"], spec["versions"]
    expected = (f"{names['plural']}.{spec['group']}", names["kind"], version["name"])
    assert (crd["name"], crd["kind"], crd["version"]) == expected


def scrapers(**expression: object) -> dict[str, Any]:
    """The values with one expression in networkPolicy.metricsFrom."""
    return {"networkPolicy": {"metricsFrom": [{"podSelector": {"matchExpressions": [expression]}}]}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"networkPolicy": {"metricsFrom": [{}]}}, "/networkPolicy/metricsFrom/0"),
        ({"networkPolicy": {"metricsFrom": [{"podselector": {}}]}}, "podselector"),
        (scrapers(key="a", operator="in", values=["b"]), "matchExpressions/0/operator"),
        (scrapers(key="a", operator="In"), "matchExpressions/0"),
        (scrapers(key="a", operator="Exists", values=["b"]), "matchExpressions/0/values"),
        (scrapers(key="a b", operator="Exists"), "matchExpressions/0/key"),
        ({"helperImage": " operator:1"}, "/helperImage"),
        ({"metrics": {"podMonitor": {"interval": "often"}}}, "/metrics/podMonitor/interval"),
        ({"test": {"timeoutSeconds": 5}}, "/test/timeoutSeconds"),
        ({"replicas": "two"}, "/replicas"),
        ({"replicas": -1}, "/replicas"),
        ({"copies": 3}, "copies"),
        ({"image": {"repo": "x"}}, "repo"),
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"image": {"digest": "sha256:beef"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watchNamespaces": "red"}, "/watchNamespaces"),
        ({"watchNamespaces": ["Red"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["red", "red"]}, "/watchNamespaces"),
        ({"nodeConditions": {"types": ["Ready"]}}, "/nodeConditions/types/0"),
        ({"nodeConditions": {"types": ["Gpu Error"]}}, "/nodeConditions/types/0"),
        ({"nodeConditions": {"types": ["GpuEccError", "GpuEccError"]}}, "/nodeConditions/types"),
        ({"nodeConditions": {"intervalSeconds": 0}}, "/nodeConditions/intervalSeconds"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"crds": {"install": "yes"}}, "/crds/install"),
        ({"networkPolicy": {"enabled": "no"}}, "/networkPolicy/enabled"),
        ({"resources": {"request": {}}}, "request"),
        ({"serviceAccount": {"create": False}}, "/serviceAccount/name"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
    ],
    ids=str,
)
def test_nonsense_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(LabError) as refusal:
        render(values)
    assert "values don't meet the specifications of the schema" in str(refusal.value)
    assert words in str(refusal.value)
