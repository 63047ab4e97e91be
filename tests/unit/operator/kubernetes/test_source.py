from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes.aio import client

from tidemark_operator import errors
from tidemark_operator.cluster.kubernetes import connection


def kubeconfig(path: Path, **cluster: object) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://example:6443", **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "n", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "n",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("t1")
    return folder


async def load(source: connection.Source) -> client.Configuration:
    configuration = client.Configuration()
    await source.load(configuration)
    return configuration


async def test_kubeconfig_gives_address_token_and_namespace(tmp_path: Path) -> None:
    source = connection.Source({"KUBECONFIG": str(kubeconfig(tmp_path / "k"))}, home=tmp_path)
    configuration = await load(source)
    assert configuration.host == "https://example:6443"
    assert (await configuration.auth_settings())["BearerToken"]["value"] == "Bearer secret"
    assert source.namespace == "team"
    assert not source.in_pod


async def test_the_default_file_is_used_where_nothing_is_named(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config")
    assert (await load(connection.Source({}, home=tmp_path))).host == "https://example:6443"


def test_a_pod_uses_its_account_unless_told_otherwise(tmp_path: Path, account: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert connection.Source(environment, None, account, tmp_path).in_pod
    assert not connection.Source(environment, "other", account, tmp_path).in_pod
    assert not connection.Source({**environment, "KUBECONFIG": "x"}, None, account, tmp_path).in_pod
    assert not connection.Source(environment, None, tmp_path, tmp_path).in_pod


async def test_no_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable, match=r"no kubeconfig at .*Set KUBECONFIG.*tidemark up"):
        await load(connection.Source({}, home=tmp_path))


async def test_a_wrong_context_is_named(tmp_path: Path) -> None:
    source = connection.Source({"KUBECONFIG": str(kubeconfig(tmp_path / "k"))}, "nowhere", home=tmp_path)
    with pytest.raises(errors.Unavailable, match=r"context 'nowhere' cannot be used"):
        await load(source)


@pytest.mark.parametrize("content", ["", "[]", "{", "contexts: 3"])
async def test_a_broken_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "k"
    path.write_text(content)
    with pytest.raises(errors.Unavailable, match="cannot be used"):
        await load(connection.Source({"KUBECONFIG": str(path)}, home=tmp_path))


async def test_a_kubeconfig_that_is_cut_off_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text("clusters:\n  - {cluster: {server: 'https://exa")
    with pytest.raises(errors.Unavailable) as caught:
        await load(connection.Source({"KUBECONFIG": str(path)}, home=tmp_path))
    assert "cannot be used: line 2, column 36: not valid YAML: expected a closing quotation mark" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", **{"tls-server-name": "other"})
    with pytest.raises(errors.Unavailable, match="tls-server-name is not supported"):
        await load(connection.Source({"KUBECONFIG": str(path)}, home=tmp_path))


def test_a_proxy_of_the_environment_is_used_unless_the_address_is_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert connection._proxy("https://example:6443") == "http://proxy:3128"
    assert connection._proxy("http://example:6443") is None
    monkeypatch.setenv("no_proxy", "example")
    assert connection._proxy("https://example:6443") is None
