"""The operator in a pod finds the API server by the variables of the kubelet, of either family of addresses."""

import json
from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config

from tftraining_api.kube.api import connect, encoded


@pytest.mark.parametrize(
    ("address", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00:10::1", "https://[fd00:10::1]:443")]
)
async def test_the_address_of_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, server: str
) -> None:
    for name, variable in (("token", "SERVICE_TOKEN_FILENAME"), ("ca.crt", "SERVICE_CERT_FILENAME")):
        (tmp_path / name).write_text("text")
        monkeypatch.setattr(incluster_config, variable, str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("tftraining_api.kube.api.RESTClientObject", lambda configuration: configuration)
    api = await connect()
    assert api.inside and api._transport.host == server


@pytest.mark.parametrize("number", [10**20, -1, 0.5])
def test_a_number_of_any_size_is_sent_as_it_is(number: float) -> None:
    """An unchecked field of a template may have one: the API server is to judge it."""
    assert json.loads(encoded({"a": [number]})) == {"a": [number]}
