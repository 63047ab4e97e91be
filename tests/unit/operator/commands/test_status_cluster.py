"""`tidemark status` on a cluster: who is asked, what is read, every way it can fail. Against a made API server."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib import parse

import manifests
import pytest
import yaml

from tidemark_operator import api, cli, names, plan
from tidemark_operator.cluster.local import files
from tidemark_operator.commands import kubectl, status, status_reader
from tidemark_operator.plan import history

NAMESPACE = "team-a"
SERVICES = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
EVERYWHERE = f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
POD = "demo-7f9c-abcde"
PROXY = f"{CORE}/pods/http:{POD}:8000/proxy/status"
SERVICE = api.parse(manifests.small())
HASH, RESTART_HASH = plan.config_hash(SERVICE), plan.restart_hash(SERVICE)
WHEN = "2026-01-01T00:00:00Z"


class Server:
    """Answers what it was given; everything else is not there."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.credentials: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                outer.asked.append(self.path)
                outer.credentials.add(self.headers.get("Authorization", ""))
                status_, body = outer.answer(path, dict(parse.parse_qsl(query)))
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status_)
                if status_ == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # who asked may have lost patience
                    self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        found = self.answers.get(path, (404, {"kind": "Status", "message": f"{path} not found", "reason": "NotFound"}))
        if path == f"{CORE}/events" and found[0] == 200:
            subject = query["fieldSelector"].partition("=")[2]
            items = [item for item in found[1]["items"] if item["involvedObject"]["name"] == subject]
            return 200, {**found[1], "items": items}
        return found

    def lists(self, path: str, *items: Any) -> None:
        self.answers[path] = (200, {"metadata": {"resourceVersion": "9"}, "items": list(items)})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """With one healthy service, and a kubeconfig of two contexts."""
    made = Server()
    healthy(made)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, made.url)))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(files, "root", lambda: tmp_path / "state")
    yield made
    made.close()


def kubeconfig(folder: Path, url: str) -> Path:
    context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "mine"}}],
        "contexts": [{"name": "prod", "context": context}, {"name": "bare", "context": {**context, "namespace": ""}}],
        "current-context": "prod",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def condition(type_: str, truth: str, reason: str, message: str, generation: int = 3) -> dict[str, Any]:
    return {
        "type": type_,
        "status": truth,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": WHEN,
    }


READY = [
    condition("Ready", "True", "Ready", "1 of 1 replicas answer."),
    condition("Degraded", "False", "AsExpected", "Nothing is wrong."),
    condition("ConfigApplied", "True", "Applied", f"1 of 1 engines run the configuration {HASH}."),
]
BROKEN = [
    condition("Ready", "False", "CrashLoopBackOff", "The engine ended with exit code 1, 4 restarts. See its log."),
    condition("Degraded", "True", "CrashLoopBackOff", "The engine ended with exit code 1, 4 restarts. See its log."),
]


def stored(name: str = "demo", namespace: str = NAMESPACE, conditions: Any = READY, **status_: Any) -> dict[str, Any]:
    document = manifests.small()
    document["metadata"] = {
        "name": name,
        "namespace": namespace,
        "uid": "u-1",
        "generation": 3,
        "creationTimestamp": WHEN,
        "managedFields": [],
    }
    document["status"] = {
        "observedGeneration": 3,
        "phase": "Ready",
        "readyReplicas": 1,
        "devices": "2 cores",
        "model": "demo",
        "url": f"http://{name}.{namespace}.svc",
        "conditions": copy.deepcopy(conditions),
        "warnings": [],
        **status_,
    }
    return document


def engine(**changes: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "state": "ready",
        "message": "serving",
        "model": {"name": "demo", "source": "x"},
        "config": {"hash": HASH, "generation": 2, "restartHash": RESTART_HASH},
        "memory": {"pagesTotal": 100, "pagesUsed": 25, "pageBytes": 1 << 20, "blockSize": 16, "partsBytes": {"kv": 9}},
        **changes,
    }


def pod(name: str = POD, *, restart_hash: str = RESTART_HASH, **container: Any) -> dict[str, Any]:
    shown = {"name": names.CONTAINER, "ready": True, "restartCount": 0, "state": {"running": {}}, **container}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {names.RESTART_HASH_ANNOTATION: restart_hash},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "demo-7f9c"}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": names.CONTAINER, "ports": [{"name": "http", "containerPort": 8000}]}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [shown],
            "conditions": [{"type": "Ready", "status": "True" if shown["ready"] else "False"}],
        },
    }


def event(subject: str, reason: str, last: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{subject}.{reason}", "uid": f"{subject}.{reason}"},
        "involvedObject": {"kind": "Pod" if subject == POD else "InferenceService", "name": subject},
        "type": "Normal",
        "reason": reason,
        "message": f"said {reason}",
        "lastTimestamp": last,
        **more,
    }


def healthy(server: Server) -> None:
    server.answers[f"{SERVICES}/demo"] = (200, stored())
    server.lists(SERVICES, stored())
    server.lists(EVERYWHERE, stored("b", "team-b"), stored())
    server.lists(f"{CORE}/pods", pod())
    template = {"metadata": {"annotations": {names.RESTART_HASH_ANNOTATION: RESTART_HASH}}, "spec": {}}
    server.answers[f"{APPS}/deployments/demo"] = (200, {"metadata": {"name": "demo"}, "spec": {"template": template}})
    revision = history.build(SERVICE, history.Revision(history.current(SERVICE, []).hash, 1, _spec(), good=WHEN))
    server.lists(f"{APPS}/controllerrevisions", revision)
    config_map = {"metadata": {"name": f"demo-{RESTART_HASH}", "annotations": {names.CONFIG_HASH_ANNOTATION: HASH}}}
    server.answers[f"{CORE}/configmaps/demo-{RESTART_HASH}"] = (200, config_map)
    server.lists(f"{CORE}/events", event("demo", "Ready", "2026-01-01T00:00:09Z"))
    server.answers[PROXY] = (200, engine())


def _spec() -> dict[str, Any]:
    return dict(history.current(SERVICE, []).spec)


def asked(*words: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert cli.run(["status", *words, "-o", "json"]) == code, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


def refused(server: Server, path: str, what: str) -> None:
    message = f'{what} is forbidden: User "me" cannot list resource "{what}" in the namespace "{NAMESPACE}"'
    server.answers[path] = (403, {"kind": "Status", "message": message, "reason": "Forbidden"})


# Who is asked


@pytest.mark.parametrize(
    "words", [("--cluster",), ("-n", NAMESPACE), ("--namespace=team-a",), ("--context", "prod"), ("--context", "bare")]
)
def test_each_of_these_options_asks_the_cluster(
    server: Server, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "default" if "bare" in words else NAMESPACE
    server.answers[f"/apis/{names.GROUP}/{names.VERSION}/namespaces/default/{names.PLURAL}/demo"] = (
        200,
        stored(namespace="default"),
    )
    code = cli.run(["status", "demo", *words])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert code == 0
    assert first == f"cluster: context {words[-1] if 'bare' in words else 'prod'}, namespace {expected} ({server.url})"
    assert second == "demo: Ready"
    assert server.credentials == {"Bearer mine"}


def test_a_kubeconfig_on_the_command_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.environ["KUBECONFIG"]
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    found = asked("demo", "--kubeconfig", path, capsys=capsys)
    assert found["source"]["context"] == "prod"
    assert found["pods"][0]["log"].startswith(f"kubectl --kubeconfig {path} logs -n {NAMESPACE} {POD}")


def test_without_an_option_no_cluster_is_asked(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "demo"]) == 1
    said = capsys.readouterr().err
    assert "no `tidemark up` runs 'demo' on this machine" in said
    assert said.endswith("A cluster is asked with `kubectl tidemark status demo`\n")
    assert cli.run(["status"]) == 1
    assert "A cluster is asked with `kubectl tidemark status`" in capsys.readouterr().err
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("demo", "-A"), "--all-namespaces gives a table"),
        (("-A", "-n", "x"), "contradict each other"),
        (("--url", "--cluster"), "--url: which service's?"),
        (("demo", "-n", ""), "--namespace: got nothing"),
    ],
)
def test_contradictions_are_wrong_usage(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", *words]) == 2
    assert said in capsys.readouterr().err


def test_kubectl_tidemark_always_asks_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    class Started(Exception):
        pass

    def execv(_program: str, words: list[str]) -> None:
        started.append(words)
        raise Started

    monkeypatch.setattr("os.execv", execv)
    for verb in (["status", "demo", "--wait", "9"], ["inspect", "-A"], ["render", "FILE"]):
        with pytest.raises(Started):
            kubectl.main(verb)
    assert [words[1:] for words in started] == [
        ["-P", "-m", "tidemark_operator", "status", "--cluster", "demo", "--wait", "9"],
        ["-P", "-m", "tidemark_operator", "inspect", "--cluster", "-A"],
        ["-P", "-m", "tidemark_operator", "render", "FILE"],
    ]
    for words, code in (([], 0), (["--help"], 0), (["up"], 2)):
        with pytest.raises(SystemExit) as ended:
            kubectl.main(words)
        assert ended.value.code == code
    shown = capsys.readouterr()
    assert shown.out.count("Usage: kubectl tidemark VERB") == 2
    assert "verb 'up' is not known, expected one of status, inspect, render" in shown.err


# What is shown


def test_a_healthy_service_in_full(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("demo", "--cluster", capsys=capsys)
    assert found["ready"] is True
    assert found["notRead"] == []
    [shown] = found["pods"]
    assert shown["engine"]["memory"]["pagesUsed"] == 25
    assert (shown["node"], shown["finding"], shown["notAsked"]) == ("node-1", None, "")
    assert found["configuration"] == {
        "hash": HASH,
        "configMap": f"demo-{RESTART_HASH}",
        "reason": "Applied",
        "pods": [{"name": POD, "state": "inForce", "hash": HASH, "generation": 2}],
    }
    [revision] = found["revisions"]
    assert (revision["number"], revision["goodSince"], revision["failed"]) == (1, WHEN, None)
    assert (revision["current"], revision["pods"]) == (True, 1)
    assert [(item["name"], item["reason"]) for item in found["events"]] == [("demo", "Ready")]
    assert not any("secrets" in path for path in server.asked)
    assert cli.run(["status", "demo", "--cluster", "--url"]) == 0
    assert capsys.readouterr().out == f"http://demo.{NAMESPACE}.svc\n"


def test_what_may_not_be_read_is_said_and_the_rest_is_shown(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    refused(server, PROXY, "pods/proxy")
    refused(server, f"{CORE}/events", "events")
    refused(server, f"{APPS}/controllerrevisions", "controllerrevisions")
    refused(server, f"{CORE}/configmaps/demo-{RESTART_HASH}", "configmaps")
    assert cli.run(["status", "demo", "--cluster"]) == 0
    shown = capsys.readouterr().out
    assert f"engine    (not asked: not permitted: get pods/proxy in namespace {NAMESPACE})" in shown
    for what, kind in (("events", "events"), ("revisions", "controllerrevisions"), ("ConfigMap", "configmaps")):
        [line] = [line for line in shown.splitlines() if line.startswith(f"  {what} (not asked: not permitted: ")]
        assert f'cannot list resource "{kind}"' in line
    refused(server, f"{CORE}/pods", "pods")
    refused(server, f"{APPS}/deployments/demo", "deployments")
    found = asked("demo", "--cluster", capsys=capsys)
    assert found["pods"] == []
    assert [what.partition(" ")[0] for what in found["notRead"]] == ["Deployment", "pods", "revisions", "events"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, {"message": "error trying to reach service: refused"}), "could not ask it: error trying to reach"),
        ((502, b"bad"), "could not ask it: bad"),
        ((200, b"hello"), "its answer is no status of an engine"),
        ((200, {"state": "dancing"}), "its answer is no status of an engine"),
        ((302, b""), "could not ask it: HTTP 302"),
    ],
)
def test_an_engine_without_a_sensible_answer(
    server: Server, answer: tuple[int, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers[PROXY] = answer
    assert said in asked("demo", "--cluster", capsys=capsys)["pods"][0]["notAsked"]
    assert "/elsewhere" not in server.asked  # our credentials go where we send them, not where a pod says


def test_an_engine_that_does_not_answer_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release = threading.Event()
    answer = server.answer

    def slow(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == PROXY:
            release.wait(20)
        return answer(path, query)

    monkeypatch.setattr(server, "answer", slow)
    monkeypatch.setattr(status_reader, "_ENGINE_SECONDS", 0.2)
    found = asked("demo", "--cluster", capsys=capsys)
    release.set()
    assert "no answer through the API server within" in found["pods"][0]["notAsked"]


def test_only_engines_that_run_are_asked_and_not_too_many(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    many = [pod(f"demo-{number:02}") for number in range(25)]
    server.lists(f"{CORE}/pods", pod("demo-new", ready=False, state=waiting), *many)
    found = asked("demo", "--cluster", capsys=capsys)
    reasons = {item["name"]: item["notAsked"] for item in found["pods"]}
    assert reasons["demo-new"] == ""
    assert sum("not more than 20 engines are asked" in reason for reason in reasons.values()) == 5
    assert cli.run(["status", "demo", "--cluster"]) == 0
    assert "... and 22 more pods, 22 ready" in capsys.readouterr().out


def test_an_engine_with_tls_is_asked_with_tls(server: Server) -> None:
    made = pod()
    made["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"scheme": "HTTPS"}}
    made["spec"]["containers"].insert(0, {"name": "other", "ports": [{"name": "http", "containerPort": 1}]})
    assert status_reader.proxy_path(made) == f"{CORE}/pods/https:{POD}:8000/proxy/status"


def test_pods_of_another_configuration_are_told_apart(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.lists(f"{CORE}/pods", pod("demo-old", restart_hash="other"), pod("demo-hot"), pod("demo-no"), pod())
    for name in ("demo-old", "demo-hot", "demo-no"):
        config = {"hash": "0000", "generation": 1}
        server.answers[f"{CORE}/pods/http:{name}:8000/proxy/status"] = (200, engine(config=config))
    words = "2 of 4 engines run it. demo-no runs 0000 and refuses: 400: too many; demo-hot runs 0000."
    server.answers[f"{SERVICES}/demo"] = (
        200,
        stored(conditions=[*READY[:2], condition("ConfigApplied", "False", "Rejected", words)]),
    )
    found = asked("demo", "--cluster", capsys=capsys)
    states = {item["name"]: item["state"] for item in found["configuration"]["pods"]}
    assert states == {"demo-old": "olderRevision", "demo-hot": "hotPending", "demo-no": "rejected", POD: "inForce"}
    assert cli.run(["status", "demo", "--cluster"]) == 0
    shown = capsys.readouterr().out
    assert words in shown.partition("Conditions")[0]
    assert "the configuration before stays in force: correct what the engine refuses" in shown
    assert "demo-hot runs 0000: the change is hot and not there yet" in shown


def test_events_come_from_old_and_new_clients_the_newest_last(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    new = event("demo", "New", "", lastTimestamp=None, eventTime="2026-01-01T00:00:01.000000Z")
    again = {"count": 7, "lastObservedTime": "2026-01-01T00:00:50.000000Z"}
    repeated = event("demo", "Again", "", lastTimestamp=None, eventTime="2026-01-01T00:00:02.000000Z", series=again)
    of_maker = event("demo-7f9c", "Refused", "2026-01-01T00:00:30Z", count=3)
    other = event("other", "NotOurs", "2026-01-01T00:00:40Z")
    old = event(POD, "Old", "2026-01-01T00:00:20Z")
    server.lists(f"{CORE}/events", repeated, old, new, of_maker, other)
    found = asked("demo", "--cluster", capsys=capsys)["events"]
    assert [item["reason"] for item in found] == ["New", "Old", "Refused", "Again"]
    assert [item["count"] for item in found] == [1, 1, 3, 7]
    cli.run(["status", "demo", "--cluster"])
    shown = capsys.readouterr().out.partition("Last events\n")[2].splitlines()
    assert shown[-1].endswith("InferenceService/demo Again ×7: said Again")


def test_a_rollback_shows_which_revision_the_pods_have(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    now = manifests.small(kvCache={"memoryUtilization": 0.5})
    failed = history.current(api.parse(now), [])
    document = stored(conditions=[condition("Ready", "False", "RolledBack", "The pods run revision 1. Change it.")])
    document["spec"] = now["spec"]
    server.answers[f"{SERVICES}/demo"] = (200, document)
    good = history.Revision("", 1, _spec(), good=WHEN)
    server.lists(
        f"{APPS}/controllerrevisions",
        history.build(SERVICE, good),
        history.build(SERVICE, history.Revision(failed.hash, 2, failed.spec, failed="It crashed.")),
    )
    first, second = asked("demo", "--cluster", capsys=capsys, code=1)["revisions"]
    assert (first["number"], first["pods"], first["current"]) == (1, 1, False)
    assert (second["failed"], second["pods"], second["current"]) == ("It crashed.", 0, True)
    document["spec"] = {"hardware": 7}  # of a version that we do not know
    found = asked("demo", "--cluster", capsys=capsys, code=1)["revisions"]
    assert not any(item["current"] for item in found)


# Fine, and in time


def test_exit_codes_are_those_of_a_local_service(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for conditions, code in (
        (READY, 0),
        (BROKEN, 1),
        ([READY[0], BROKEN[1]], 1),
        ([condition("Ready", "True", "Ready", "of before", generation=2)], 1),
        ([], 1),
    ):
        server.answers[f"{SERVICES}/demo"] = (200, stored(conditions=conditions))
        assert cli.run(["status", "demo", "--cluster"]) == code
    without = stored()
    del without["status"]
    server.answers[f"{SERVICES}/demo"] = (200, without)
    capsys.readouterr()
    assert cli.run(["status", "demo", "--cluster"]) == 1
    shown = capsys.readouterr().out
    assert "no operator has said anything about it" in shown
    assert "    kubectl get deployments,pods -A -l app.kubernetes.io/part-of=tidemark" in shown


def test_it_waits_for_a_service_that_does_not_exist_yet(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "_CLUSTER_POLL_SECONDS", 0.01)
    later = iter([(404, {"message": "no"}), (503, {"message": "busy"}), (200, stored(conditions=BROKEN))])
    answer = server.answer

    def changing(path: str, query: dict[str, str]) -> tuple[int, Any]:
        return next(later, (200, stored())) if path == f"{SERVICES}/demo" else answer(path, query)

    monkeypatch.setattr(server, "answer", changing)
    assert cli.run(["status", "demo", "--cluster", "--wait", "60"]) == 0


def test_a_table_of_all(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "--cluster"]) == 0
    first, heading, row = capsys.readouterr().out.splitlines()
    assert first.startswith(f"cluster: context prod, namespace {NAMESPACE} (")
    assert heading.split() == ["NAME", "READY", "REASON", "MODEL", "REPLICAS", "DEVICES", "KV", "URL", "AGE"]
    assert row.split()[:5] == ["demo", "True", "Ready", "demo", "1/1"]
    behind = stored("late", conditions=[condition("Ready", "True", "Ready", "x", generation=2)])
    nothing = stored("new")
    del nothing["status"]
    server.lists(EVERYWHERE, stored("z", "team-b", BROKEN), behind, nothing)
    assert cli.run(["status", "-A"]) == 1
    first, heading, *rows = capsys.readouterr().out.splitlines()
    assert "all namespaces" in first
    assert [row.split()[:4] for row in rows] == [
        [NAMESPACE, "late", "Unknown", "NotActedOn"],
        [NAMESPACE, "new", "Unknown", "NoStatus"],
        ["team-b", "z", "False", "CrashLoopBackOff"],
    ]
    found = asked("-A", capsys=capsys, code=1)["services"]
    assert [item["ready"] for item in found] == [False, False, False]


def test_a_namespace_without_services(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.lists(SERVICES)
    assert cli.run(["status", "--cluster"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "none there; -A lists all namespaces"


# What can go wrong


def test_a_name_that_is_not_there_brings_those_that_are(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "dmeo", "--cluster"]) == 1
    assert f"no InferenceService 'dmeo' in namespace '{NAMESPACE}'. There are: demo" in capsys.readouterr().err
    server.lists(SERVICES)
    assert cli.run(["status", "dmeo", "--cluster", "-o", "json"]) == 1
    said = json.loads(capsys.readouterr().err)["error"]["message"]
    assert said.endswith("There is none in this namespace; -A lists all")


def test_a_cluster_without_our_crd(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers.clear()
    for words in (["demo"], []):
        assert cli.run(["status", *words, "--cluster"]) == 1
        said = capsys.readouterr().err
        assert f"does not know {names.PLURAL}.{names.GROUP}: Tidemark is not installed there" in said


def test_a_missing_permission_is_named(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    refused(server, f"{SERVICES}/demo", names.PLURAL)
    assert cli.run(["status", "demo", "--cluster"]) == 1
    assert f"not permitted: get {names.PLURAL}.{names.GROUP}" in capsys.readouterr().err
    refused(server, SERVICES, names.PLURAL)
    assert cli.run(["status", "--cluster"]) == 1
    assert f"not permitted: list {names.PLURAL}.{names.GROUP}" in capsys.readouterr().err


def test_a_context_that_is_not_there(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "demo", "--context", "nowhere"]) == 1
    said = capsys.readouterr().err
    assert "--context: got 'nowhere', expected one of the kubeconfig" in said
    assert said.endswith(": bare, prod\n")


def test_no_kubeconfig(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert cli.run(["status", "demo", "--cluster"]) == 1
    assert "there is no kubeconfig at" in capsys.readouterr().err
    broken = tmp_path / "nothing"
    broken.write_text("a: [")
    assert cli.run(["status", "demo", "--cluster", "--wait", "60"]) == 1  # waiting would not help
    assert "cannot be used" in capsys.readouterr().err


def test_a_server_that_is_not_there(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = Server()
    gone.close()
    other = tmp_path / "other"
    other.mkdir()
    assert cli.run(["status", "demo", "--kubeconfig", str(kubeconfig(other, gone.url))]) == 1
    assert f"{gone.url} does not answer" in capsys.readouterr().err


def test_credentials_that_are_not_accepted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers[f"{SERVICES}/demo"] = (401, {"message": "Unauthorized"})
    assert cli.run(["status", "demo", "--cluster"]) == 1
    assert "does not accept our credentials" in capsys.readouterr().err
