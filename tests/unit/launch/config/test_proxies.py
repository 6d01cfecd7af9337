"""The variables that keep the programs of a gang from connecting to each other through a proxy."""

from __future__ import annotations

import json
from urllib.request import proxy_bypass

import pytest

from tftraining.launch.config import proxies

PROXY = {"http_proxy": "http://proxy.example.com:3128"}
LOCAL = ["127.0.0.1:1", "127.0.0.1:2"]
WORKERS = [f"digits-worker-{index}.digits.default.svc:2222" for index in range(3)]
PATTERN = "digits-worker-%d.digits.default.svc:2222"


def environment(workers: object = WORKERS, **variables: str) -> dict[str, str]:
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    return {"TF_CONFIG": json.dumps(config), **variables}


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_Proxy", "grpc_proxy", "GRPC_PROXY"])
def test_the_peers_are_exempt_from_any_proxy(name: str) -> None:
    told = proxies.exempt(environment(**{name: "http://p:1"}), None)
    assert told == dict.fromkeys(("no_proxy", "NO_PROXY", "no_grpc_proxy"), ".digits.default.svc")


@pytest.mark.parametrize("variables", [{}, {"http_proxy": ""}, {"no_proxy": "a"}, {"all_proxies": "x"}])
def test_without_a_proxy_nothing_is_set(variables: dict[str, str]) -> None:
    assert proxies.exempt(environment(**variables), PATTERN) == {}


@pytest.mark.parametrize(
    ("users", "no_proxy", "upper", "grpc"),
    [
        ({"no_proxy": "a,b"}, "a,b", "a,b", "a,b"),
        ({"NO_PROXY": "a"}, "a", "a", "a"),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a", "b", "a"),
        ({"no_grpc_proxy": "c", "no_proxy": "a"}, "a", "a", "c"),
        ({"no_proxy": ""}, "", "", ""),
        ({"no_proxy": "a,.digits.default.svc"}, "a", "a", "a"),
    ],
)
def test_the_users_exemptions_stay(users: dict[str, str], no_proxy: str, upper: str, grpc: str) -> None:
    told = proxies.exempt(environment(**PROXY, **users), None)
    own = ".digits.default.svc"
    wanted = {"no_proxy": no_proxy, "NO_PROXY": upper, "no_grpc_proxy": grpc}
    assert told == {name: f"{before},{own}" if before else own for name, before in wanted.items()}


def test_workers_outside_tf_config_are_exempt() -> None:
    assert proxies.exempt(environment(WORKERS[:1], **PROXY), PATTERN)["no_proxy"] == ".digits.default.svc"


def test_ip_addresses_and_single_hosts_are_exempt_unchanged() -> None:
    told = proxies.exempt(environment([*LOCAL, "[::1]:2", "alone:1", "one.example.com:1"], **PROXY), None)
    assert told["no_proxy"] == "127.0.0.1,::1,alone,one.example.com"


def test_thousands_of_peers_fit_into_a_variable() -> None:
    many = [f"digits-worker-{index}.digits.default.svc:2222" for index in range(5000)]
    assert len(proxies.exempt(environment(many, **PROXY), None)["no_proxy"]) < 100


def test_python_connects_to_peers_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    told = proxies.exempt(environment(**PROXY), None)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert proxy_bypass("digits-worker-7.digits.default.svc")
    assert not proxy_bypass("example.com")


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"cluster": 3}', '{"cluster": {"worker": 3}}', "[" * 100_000])
def test_an_invalid_tf_config_raises_nothing(config: str) -> None:
    assert proxies.exempt({**PROXY, "TF_CONFIG": config}, None) == {}
