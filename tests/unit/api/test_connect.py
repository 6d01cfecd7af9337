"""The operator in a pod finds the API server by the variables of the kubelet, of either family of addresses."""

from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config

from tftraining_api.kube.api import connect


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
