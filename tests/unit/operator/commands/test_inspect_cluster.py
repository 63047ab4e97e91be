"""`tidemark inspect` on a cluster: what is read, how engines are asked, what is kept. Against a made API server."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark_operator import api, cli, names, plan
from tidemark_operator.commands import inspect_record

NAMESPACE, POD, WHEN = "team", "demo-7f9c-abcde", "2026-01-01T00:00:00Z"
GROUP = f"/apis/{names.GROUP}/{names.VERSION}"
CORE, APPS = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
MANIFEST = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "demo", "namespace": NAMESPACE, "generation": 3, "creationTimestamp": WHEN},
    "spec": {"model": {"source": {"package": {"name": "smollm2-135m"}}}, "hardware": {"resourceName": "cpu"}},
}
HASH = plan.config_hash(api.parse(MANIFEST))
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "1 of 1 replicas answer."}
OPERATOR_POD = "tidemark-1"


class Server:
    """Answers what it was given; remembers what it was asked and what was written."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.written: dict[str, Any] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                outer.asked.append(path)
                self.answer(*outer.answers.get(path, (404, {"message": f"{path} not found"})))

            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.written[self.path] = json.loads(body)
                self.answer(*outer.answers.get("PATCH", (200, {})))

            def answer(self, status: int, body: Any) -> None:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def lists(self, path: str, *items: Any) -> None:
        self.answers[path] = (200, {"metadata": {"resourceVersion": "9"}, "items": list(items)})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def service(**status_: Any) -> dict[str, Any]:
    told = {"conditions": [{**READY, "observedGeneration": 3, "lastTransitionTime": WHEN}], **status_}
    return {**MANIFEST, "status": told}


def pod(name: str = POD, component: str = "engine", namespace: str = NAMESPACE) -> dict[str, Any]:
    port = {"name": "http", "containerPort": 8000}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": {names.RESTART_HASH_ANNOTATION: "r"}},
        "spec": {"containers": [{"name": component, "ports": [port]}]},
        "status": {
            "podIP": "192.0.2.1",
            "containerStatuses": [{"name": component, "ready": True, "restartCount": 0, "state": {"running": {}}}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def engine(**changes: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "state": "ready",
        "message": "serving",
        "model": {"name": "demo", "source": "x"},
        "config": {"hash": HASH, "generation": 1},
        "kernelPaths": [{"op": "linear", "planned": "cpu-c", "path": "cpu-c", "dtype": "float32"}],
        "memory": {"pagesTotal": 100, "pageBytes": 1, "blockSize": 16, "kvBytes": {"float32": 9}},
        "uptimeSeconds": 100.0,
        **changes,
    }


def proxy(path: str, name: str = POD, namespace: str = NAMESPACE) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/http:{name}:8000/proxy{path}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """One healthy service and its operator."""
    made = Server()
    made.lists(f"{GROUP}/{names.PLURAL}", service())
    made.lists(f"{GROUP}/namespaces/{NAMESPACE}/{names.PLURAL}", service())
    made.lists(f"{CORE}/pods", pod())
    made.lists("/api/v1/pods", pod(OPERATOR_POD, "operator", "system"))
    template = {"metadata": {"annotations": {names.RESTART_HASH_ANNOTATION: "r"}}}
    made.answers[f"{APPS}/deployments/demo"] = (200, {"spec": {"template": template}})
    annotations = {names.CONFIG_HASH_ANNOTATION: HASH}
    made.answers[f"{CORE}/configmaps/demo-r"] = (200, {"metadata": {"name": "demo-r", "annotations": annotations}})
    made.answers[proxy("/status")] = (200, engine())
    made.answers[proxy("/metrics")] = (200, b"tidemark_requests_total 5.0\n")
    told = b'tidemark_operator_leader 1.0\ntidemark_operator_watch_age_seconds{kind="Pod"} 2.0\n'
    made.answers[proxy("/metrics", OPERATOR_POD, "system")] = (200, told)
    made.answers[proxy("/health/ready", OPERATOR_POD, "system")] = (200, b"ready\n")
    document = {
        "clusters": [{"name": "c", "cluster": {"server": made.url}}],
        "users": [{"name": "u", "user": {"token": "mine"}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        "current-context": "prod",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("NO_PROXY", "*")
    yield made
    made.close()


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert cli.run(["inspect", *arguments, "-o", "json"]) == code, capsys.readouterr()
    shown = capsys.readouterr()
    found: dict[str, Any] = json.loads(shown.err if code == 2 else shown.out)
    return found


def findings(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(item["check"], item["severity"]) for item in document["findings"]}


def gaps(document: dict[str, Any], check: str) -> str:
    (found,) = [item for item in document["checks"] if item["name"] == check]
    return "; ".join(gap["why"] for gap in found["notChecked"])


def test_a_healthy_cluster(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--all-namespaces")
    assert findings(found) == set()
    assert found["services"][0] == {
        "name": "team/demo", "origin": "cluster", "url": None, "engines": [POD], "answered": 1,
    }  # fmt: skip
    assert found["source"]["asked"][0]["context"] == "prod"
    fine = {item["name"] for item in found["checks"] if item["state"] == "fine"}
    assert {"conditions", "engines-answer", "configuration-drift", "operator", "kernel-paths"} <= fine
    assert not any("secrets" in path for path in server.asked)
    assert told(capsys, "-n", NAMESPACE)["services"] == found["services"]
    assert told(capsys, "--cluster")["services"] == found["services"]


def test_one_by_name(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{GROUP}/namespaces/{NAMESPACE}/{names.PLURAL}/demo"
    server.answers[path] = (200, service())
    assert len(told(capsys, "demo", "-n", NAMESPACE)["services"]) == 1
    del server.answers[path]
    assert "There are: demo" in told(capsys, "demo", "-n", NAMESPACE, code=2)["error"]["message"]


def test_drift_is_seen_against_the_config_map(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers[proxy("/status")] = (200, engine(config={"hash": "old", "generation": 1}))
    found = told(capsys, "-A", "--fail-on", "warning", code=1)
    assert findings(found) == {("configuration-drift", "warning")}


def test_what_may_not_be_read_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    forbidden = (403, {"message": 'pods is forbidden: User "x" cannot list'})
    server.answers[f"{CORE}/pods"] = server.answers["/api/v1/pods"] = forbidden
    found = told(capsys, "-A")
    assert "pods (not asked: not permitted" in gaps(found, "engines-answer")
    assert "pods (not asked: not permitted" in gaps(found, "restarts")
    assert "could not be listed: not permitted" in gaps(found, "operator")


def test_a_missing_right_to_ask_engines_is_no_fault_of_theirs(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers[proxy("/status")] = (403, {"message": "forbidden"})
    found = told(capsys, "-A")
    assert findings(found) == set()
    assert gaps(found, "engines-answer") == f"not permitted: get pods/proxy in namespace {NAMESPACE}"
    assert "not permitted" in gaps(found, "memory-lines")


@pytest.mark.parametrize(
    ("answer", "words"),
    [((500, b"boom"), "HTTP 500"), ((302, b""), "HTTP 302"), ((200, b"{}"), "no status of an engine")],
)
def test_an_engine_that_does_not_answer(
    server: Server, capsys: pytest.CaptureFixture[str], answer: tuple[int, bytes], words: str
) -> None:
    """A redirect is not followed: it would take our credentials along."""
    server.answers[proxy("/status")] = answer
    found = told(capsys, "-A", "--fail-on", "warning", code=1)
    (item,) = found["findings"]
    assert item["check"] == "engines-answer"
    assert words in item["what"]
    assert "/elsewhere" not in server.asked


def test_an_operator_that_does_not_lead(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers[proxy("/metrics", OPERATOR_POD, "system")] = (200, b"tidemark_operator_leader 0.0\n")
    assert ("operator", "critical") in findings(told(capsys, "-A", code=1))


def test_a_cluster_without_tidemark_is_not_inspected(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    del server.answers[f"{GROUP}/{names.PLURAL}"]
    assert "Tidemark is not installed there" in told(capsys, "-A", code=2)["error"]["message"]


def test_no_service_is_no_fault(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.lists(f"{GROUP}/{names.PLURAL}")
    assert cli.run(["inspect", "-A"]) == 0
    assert "There is no InferenceService there." in capsys.readouterr().out


def test_the_result_is_kept_by_a_server_side_apply(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "-A", "--record", "system/tidemark-inspection")
    ((path, written),) = server.written.items()
    assert path.startswith("/api/v1/namespaces/system/configmaps/tidemark-inspection?")
    assert f"fieldManager={inspect_record.MANAGER}" in path
    assert set(written["data"]) == {"summary", "report.txt", "report.json", "report.html"}
    assert json.loads(written["data"]["report.json"])["services"] == found["services"]
    assert written["metadata"] == {"name": "tidemark-inspection", "namespace": "system"}


def test_a_record_that_is_refused_says_which_right_it_needs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["PATCH"] = (403, {"message": "cannot patch"})
    message = told(capsys, "-A", "--record", "system/x", code=2)["error"]["message"]
    assert "ConfigMap x in namespace system could not be written (HTTP 403)" in message
    assert "It needs the verb patch there" in message
