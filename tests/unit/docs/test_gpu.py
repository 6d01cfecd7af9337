"""docs/gpu.md: its job is valid, and its pods have what the page says."""

import json

import yaml

from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.documented_jobs import running
from tftraining_api.manifests.launcher import gpus_of

PAGE = REPOSITORY / "docs" / "gpu.md"
(MANIFEST,) = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]


def test_the_pods_of_the_page_have_what_it_says() -> None:
    written = MANIFEST["spec"]["template"]["spec"]
    pods = running(MANIFEST).api.pods.values()
    assert len(pods) == 2
    for pod in pods:
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert (spec["nodeSelector"], spec["tolerations"]) == (written["nodeSelector"], written["tolerations"])
        (shm,) = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == "/dev/shm"]
        assert {"name": shm, "emptyDir": {"medium": "Memory"}} in spec["volumes"]
        assert container["resources"] == written["containers"][0]["resources"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert {each["name"]: each["value"] for each in written["containers"][0]["env"]}.items() <= variables.items()
        assert json.loads(str(variables["TFTRAINING_LAUNCHER"]))["gpus"] == 8


def test_the_resources_that_count_as_gpus() -> None:
    counted = {"nvidia.com/gpu": 1, "amd.com/gpu": 1, "nvidia.com/mig-1g.5gb": 0}
    assert {name: gpus_of({"resources": {"limits": {name: 1}}}) for name in counted} == counted
