"""The certificate: pairs that change, break and come back, seen by real handshakes in memory."""

from __future__ import annotations

import dataclasses
import shutil
import ssl
from pathlib import Path

import pytest

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import settings as contract
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import tls

CERTIFICATES = Path(__file__).parents[2] / "support" / "certificates"


class Secret:
    """A folder as Kubernetes mounts one: files are links through `..data`, which is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self.swap("one", "one")
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data") / name)
        self.crt, self.key = folder / "tls.crt", folder / "tls.key"

    def swap(self, crt: str, key: str) -> None:
        self._number += 1
        version = self.folder / f"..{self._number}"
        version.mkdir()
        shutil.copy(CERTIFICATES / f"{crt}.crt", version / "tls.crt")
        shutil.copy(CERTIFICATES / f"{key}.key", version / "tls.key")
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.folder / "..data")


@pytest.fixture
def secret(tmp_path):
    return Secret(tmp_path)


@pytest.fixture
def certificate(secret, clock):
    return tls.Certificate(secret.crt, secret.key, clock)


def shown(context: ssl.SSLContext, server_hostname: str | None = "localhost") -> str:
    """Which certificate a new connection gets."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=server_hostname)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    der = client.getpeercert(binary_form=True)
    known = {ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.crt").read_text()): name for name in ("one", "two")}
    return known[der]


@pytest.mark.parametrize("server_hostname", ["localhost", None])
def test_new_connections_get_the_new_certificate(certificate, secret, clock, server_hostname):
    assert shown(certificate.context, server_hostname) == "one"
    secret.swap("two", "two")
    certificate.refresh()
    assert shown(certificate.context, server_hostname) == "one", "looked at once a second at most"
    clock.now += 1
    certificate.refresh()
    assert shown(certificate.context, server_hostname) == "two"
    assert certificate.problem is None


@pytest.mark.parametrize(
    ("crt", "key", "words"),
    [("two", "one", "not this certificate's"), ("one", "encrypted", "an encrypted key"), ("one", None, "no PEM")],
)
def test_a_broken_pair_leaves_the_last_one_in_force(certificate, secret, clock, caplog, crt, key, words):
    secret.swap(crt, key or "one")
    if key is None:
        secret.key.resolve().write_text("this is no key")
    for _ in range(3):
        clock.now += 1
        certificate.refresh()
    assert shown(certificate.context) == "one"
    assert words in certificate.problem
    assert "stays in force" in certificate.problem
    assert len(caplog.records) == 1, "said once"
    secret.swap("two", "two")
    clock.now += 1
    certificate.refresh()
    assert (shown(certificate.context), certificate.problem) == ("two", None)


def test_a_pair_that_goes_away_and_comes_back_unchanged_is_fine_again(certificate, secret, clock):
    hidden = secret.folder / "hidden"
    (secret.folder / "..data").rename(hidden)
    clock.now += 1
    certificate.refresh()
    assert "No such file" in certificate.problem
    hidden.rename(secret.folder / "..data")
    clock.now += 1
    certificate.refresh()
    assert certificate.problem is None


def test_an_old_protocol_is_not_spoken(certificate):
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.fixture
def settings(settings, secret):
    server = config.ServerConfig(tls_cert_file=str(secret.crt), tls_key_file=str(secret.key))
    return dataclasses.replace(settings, server=server)


async def test_status_names_the_trouble(http, secret, clock):
    assert (await http.get(paths.STATUS_PATH)).json()["reason"] == ""
    secret.swap("two", "one")
    clock.now += 1
    body = (await http.get(paths.STATUS_PATH)).json()
    assert (body["state"], body["reason"]) == ("ready", "TlsUnreadable")
    assert "server.tlsCertFile" in body["message"]


@pytest.mark.parametrize(("crt", "key"), [("two", "one"), ("one", "encrypted"), ("one", None)])
def test_an_unusable_pair_stops_the_start_and_names_both(settings, secret, crt, key):
    secret.swap(crt, key or "one")
    if key is None:
        secret.key.resolve().unlink()
    with pytest.raises(errors.ConfigError, match=r"server\.tlsCertFile.*server\.tlsKeyFile") as caught:
        server_app.create_app(None, None, settings)
    assert str(secret.crt) in str(caught.value)
    assert str(secret.key) in str(caught.value)


def test_all_files_that_cannot_be_used_are_named_at_once(settings, secret):
    secret.swap("two", "one")
    server = dataclasses.replace(settings.server, api_keys_file="/nowhere/keys", admin_token_file="/nowhere/token")
    with pytest.raises(errors.ConfigError) as caught:
        server_app.create_app(None, None, dataclasses.replace(settings, server=server))
    assert [problem.key for problem in caught.value.problems] == [
        "server.apiKeysFile",
        "server.adminTokenFile",
        "server.tlsCertFile",
    ]


@pytest.mark.parametrize("alone", ["tlsCertFile", "tlsKeyFile"])
def test_one_without_the_other_is_refused(alone):
    with pytest.raises(errors.ConfigError, match=rf"server\.tls(Cert|Key)File: .*because server\.{alone} is set"):
        config_parsing.parse({"server": {alone: "/a.pem"}})


def test_the_contract_says_https_where_there_is_a_certificate(settings):
    assert contract.url_scheme(settings) == "https"
    assert contract.url_scheme(config.EngineConfig()) == "http"
