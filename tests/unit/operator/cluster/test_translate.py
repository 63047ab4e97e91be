"""From a container to a command of this machine."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark_operator.cluster.local import translate

FOLDER = Path("/state/pods/p")
KEYS = base64.b64encode(b"secret-1\n").decode()
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    ("ConfigMap", "c"): {"data": {"engine.yaml": "server: {port: 8000}\n", "other.txt": "x"}},
    ("Secret", "s"): {"data": {"keys": KEYS}},
}


def pod(volumes: list[dict[str, Any]] | None = None, **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"volumes": volumes or [], "containers": [{"name": "engine", "command": ["tidemark"], **container}]},
    }


def command_of(made: dict[str, Any], mounted: dict[str, Path] | None = None) -> translate.Command:
    return translate.command(made, made["spec"]["containers"][0], mounted or {}, 4711, {"PATH": "/bin"})


def lookup(kind: str, name: str) -> dict[str, Any] | None:
    return OBJECTS.get((kind, name))


def test_mounts_become_folders_of_the_pod_and_host_paths_stay() -> None:
    made = pod(
        [
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "model", "hostPath": {"path": "/data/m"}},
            {"name": "cache", "emptyDir": {}},
        ],
        volumeMounts=[
            {"name": "config", "mountPath": "/etc/tidemark/"},
            {"name": "model", "mountPath": "/models"},
            {"name": "cache", "mountPath": "/models/cache", "subPath": "a"},
        ],
    )
    assert translate.mounts(made, made["spec"]["containers"][0], FOLDER) == {
        "/models/cache": FOLDER / "volumes/cache/a",
        "/etc/tidemark": FOLDER / "volumes/config",
        "/models": Path("/data/m"),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/models/x.gguf", "/data/m/x.gguf"),
        ("/models", "/data/m"),
        ("--config=/models/a", "--config=/data/m/a"),
        ("/modelsX", "/modelsX"),
        ("see /models/x", "see /models/x"),
        ("/models/cache/t", "/here/t"),
        ("A=/models", "A=/models"),
    ],
)
def test_paths_below_a_mount_are_translated_and_nothing_else(text: str, expected: str) -> None:
    mounted = {"/models/cache": Path("/here"), "/models": Path("/data/m")}
    assert translate.translate_path(text, mounted) == expected


def test_the_command_is_this_installations_and_listens_here() -> None:
    made = pod(args=["serve", "--config", "/etc/tidemark/engine.yaml", "--port", "8000", "--host=0.0.0.0"])
    found = command_of(made, {"/etc/tidemark": Path("/c")})
    expected = ("serve", "--config", "/c/engine.yaml", "--port", "4711", "--host=127.0.0.1")
    assert found.argv == (sys.executable, "-m", "tidemark_operator", *expected)
    assert found.env["PATH"] == "/bin"


@pytest.mark.parametrize("value", ["on", "0123", "1e3", "null", "", 'a "quoted"\nline {{ x }}', "a=b", "$(HOME)"])
def test_environment_arrives_unchanged_b075(value: str) -> None:
    assert command_of(pod(env=[{"name": "X", "value": value}])).env["X"] == value


def test_environment_from_the_pod_itself() -> None:
    made = pod(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])
    assert command_of(made).env["X"] == "p"


def test_the_configuration_file_gets_this_machines_places() -> None:
    text = b"server: {host: 0.0.0.0, port: 8000, apiKeysFile: /keys/k}\nmodel: {source: /models/a}\nx: [/models]\n"
    found = translate.config_text(Path("engine.yaml"), text, {"/models": Path("/m"), "/keys": Path("/k")}, 4711)
    assert yaml.safe_load(found) == {
        "server": {"host": "127.0.0.1", "port": 4711, "apiKeysFile": "/k/k"},
        "model": {"source": "/m/a"},
        "x": ["/m"],
    }
    assert translate.config_text(Path("other.yaml"), text, {}, 1) == text


def test_files_of_config_maps_and_secrets() -> None:
    made = pod([{"name": "c", "configMap": {"name": "c"}}, {"name": "s", "secret": {"secretName": "s"}}])
    assert translate.files(made, FOLDER, lookup) == {
        FOLDER / "volumes/c/engine.yaml": b"server: {port: 8000}\n",
        FOLDER / "volumes/c/other.txt": b"x",
        FOLDER / "volumes/s/keys": b"secret-1\n",
    }


def test_chosen_items_and_optional_objects() -> None:
    chosen = {"secretName": "s", "items": [{"key": "keys", "path": "api/k"}]}
    made = pod([{"name": "s", "secret": chosen}, {"name": "o", "secret": {"secretName": "none", "optional": True}}])
    assert translate.files(made, FOLDER, lookup) == {FOLDER / "volumes/s/api/k": b"secret-1\n"}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (
            {"secret": {"secretName": "none"}},
            "Secret 'none' does not exist.*--secret none=FILE",
        ),
        ({"configMap": {"name": "none"}}, "ConfigMap 'none' does not exist"),
        ({"secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}, "has no key 'x'; it has keys"),
        ({"persistentVolumeClaim": {"claimName": "x"}}, "persistentVolumeClaim, which only a cluster has.*hostPath"),
        ({"hostPath": {"path": "/no/such/path", "type": "Directory"}}, "/no/such/path.*does not exist on this machine"),
    ],
)
def test_what_is_missing_is_named(volume: dict[str, Any], message: str) -> None:
    made = pod([{"name": "v", **volume}])

    def prepare() -> None:
        translate.files(made, FOLDER, lookup)
        translate.mounts(made, {}, FOLDER)

    with pytest.raises(translate.CannotRun, match=message):
        prepare()


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"command": []}, "names no command"),
        ({"command": ["bash", "-c", "x"]}, "command 'bash' is not one of tidemark"),
        ({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {}}}]}, "env 'X' is taken from"),
    ],
)
def test_what_this_machine_cannot_run_is_refused(container: dict[str, Any], message: str) -> None:
    with pytest.raises(translate.CannotRun, match=message):
        command_of(pod(**container))


def test_a_mount_without_a_volume_is_refused() -> None:
    made = pod([], volumeMounts=[{"name": "v", "mountPath": "/x"}])
    with pytest.raises(translate.CannotRun, match="'v' names no volume"):
        translate.mounts(made, made["spec"]["containers"][0], FOLDER)


def test_ports_by_name_by_number_and_the_first() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8000}, {"name": "other", "containerPort": 9000}]}
    assert translate.container_port(container, "other") == 9000
    assert translate.container_port(container, 1234) == 1234
    assert translate.container_port(container) == 8000
    assert translate.container_port(container, "none") is None
