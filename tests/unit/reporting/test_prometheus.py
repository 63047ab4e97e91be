"""The client: what it sends, what it makes of answers, and what it says where there is none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from urllib import parse

import httpx
import pytest

from tidemark_operator import errors, prometheus

URL = "http://prometheus:9090"


class Server:
    """Answers in Prometheus' place."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def form(self, index: int) -> dict[str, str]:
        return {name: values[0] for name, values in parse.parse_qs(self.asked[index].content.decode()).items()}


def client(server: Server, url: str = URL, **options: object) -> prometheus.Prometheus:
    return prometheus.Prometheus(url, transport=httpx.MockTransport(server), **options)


def success(data: object) -> httpx.Response:
    return httpx.Response(200, json={"status": "success", "data": data})


def refused(status: int, kind: str, text: str) -> httpx.Response:
    return httpx.Response(status, json={"status": "error", "errorType": kind, "error": text})


def test_instant():
    vector = [{"metric": {"service": "a"}, "value": [10, "1.5"]}, {"metric": {}, "value": [10, "NaN"]}]
    server = Server(success({"resultType": "vector", "result": vector}))
    with client(server) as source:
        found = source.instant("up", 1_751_328_000.25)
    assert found[0] == prometheus.Sample({"service": "a"}, 10.0, 1.5)
    assert math.isnan(found[1].value)
    assert server.form(0) == {"query": "up", "time": "1751328000.25"}
    assert str(server.asked[0].url) == f"{URL}/api/v1/query"


def test_a_scalar_is_one_sample():
    server = Server(success({"resultType": "scalar", "result": [10, "+Inf"]}))
    assert client(server).instant("1 / 0", 10) == [prometheus.Sample({}, 10.0, math.inf)]


def test_a_long_range_is_asked_in_parts_that_touch():
    def matrix(at: float) -> httpx.Response:
        return success({"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[at, "1"]]}]})

    server = Server(matrix(0), matrix(10_000), matrix(20_000))
    found = client(server).range("up", 0, 25_000, 1)
    assert [(server.form(index)["start"], server.form(index)["end"]) for index in range(3)] == [
        ("0", "9999"),
        ("10000", "19999"),
        ("20000", "25000"),
    ]
    assert found == [prometheus.Series({"a": "b"}, ((0.0, 1.0), (10_000.0, 1.0), (20_000.0, 1.0)))]


def test_a_range_that_is_too_much_is_halved_until_it_is_answered():
    def answer(request: httpx.Request) -> httpx.Response:
        form = {
            name: float(values[0])
            for name, values in parse.parse_qs(request.content.decode()).items()
            if name != "query"
        }
        points = [form["start"] + index for index in range(int(form["end"] - form["start"]) + 1)]
        asked.append(len(points))
        if len(points) > 3:
            return refused(422, "execution", "query processing would load too many samples into memory")
        return success({"resultType": "matrix", "result": [{"metric": {}, "values": [[at, "1"] for at in points]}]})

    asked: list[int] = []
    source = prometheus.Prometheus(URL, transport=httpx.MockTransport(answer))
    (found,) = source.range("up", 0, 10, 1)
    assert [at for at, _ in found.points] == [float(at) for at in range(11)]
    assert asked[:2] == [11, 6]


def test_one_point_that_is_too_much_is_an_error():
    server = Server(refused(422, "execution", "query processing would load too many samples into memory"))
    with pytest.raises(errors.PrometheusRefused, match="too many"):
        client(server).range("up", 0, 3, 1)
    assert len(server.asked) == 3


def test_a_step_of_nothing_is_our_own_mistake():
    with pytest.raises(ValueError, match="step"):
        client(Server(success({}))).range("up", 0, 10, 0)


def test_alerts_and_targets():
    alert = {"labels": {"alertname": "X"}, "state": "firing", "activeAt": "2026-01-01T00:00:00Z", "value": "2e+00"}
    target = {"labels": {"job": "x"}, "scrapeUrl": "http://a/metrics", "health": "down", "lastError": "refused"}
    source = client(Server(success({"alerts": [alert]}), success({"activeTargets": [target]})))
    assert source.alerts() == [prometheus.Alert({"alertname": "X"}, {}, "firing", "2026-01-01T00:00:00Z", 2.0)]
    assert source.targets() == [prometheus.Target({"job": "x"}, "http://a/metrics", "down", "refused")]


def test_retention_of_one_that_does_not_say():
    assert client(Server(success({"storageRetention": "15d"}))).retention() == "15d"
    assert client(Server(httpx.Response(404, text="not found"))).retention() is None


def test_a_path_a_token_and_a_password(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    server = Server(success({"resultType": "vector", "result": []}))
    client(server, f"{URL}/tenant/", token_file=token).instant("up", 0)
    assert str(server.asked[0].url) == f"{URL}/tenant/api/v1/query"
    assert server.asked[0].headers["authorization"] == "Bearer secret"
    user = "me:p%40ss"  # apart from the address, which would be taken for a credential checked in
    source = client(server, f"http://{user}@prometheus:9090")
    source.instant("up", 0)
    assert server.asked[1].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert source.url == URL


@pytest.mark.parametrize(
    ("answer", "words", "kind"),
    [
        (refused(422, "execution", "query processing would load too many samples into memory"), "too many", "too_much"),
        (refused(503, "timeout", "query timed out in expression evaluation"), "timed out", "too_much"),
        (refused(400, "bad_data", "parse error"), "bad_data: parse error", "other"),
        (httpx.Response(401, text="no"), "--token-file", "other"),
        (httpx.Response(302, headers={"location": "http://other/"}), "'http://other/'", "other"),
        (httpx.Response(200, text="<html>"), "not that of a Prometheus", "other"),
        (httpx.Response(200, content=b"\xff"), "not that of a Prometheus", "other"),
        (httpx.Response(200, text=json.dumps({"status": "success"})), "not that of a Prometheus", "other"),
    ],
)
def test_refused(answer, words, kind):
    with pytest.raises(errors.PrometheusRefused) as caught:
        client(Server(answer)).instant("up", 0)
    assert words in str(caught.value)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("Connection refused"), "Does Prometheus run"),
        (httpx.ConnectError("CERTIFICATE_VERIFY_FAILED"), "--ca-file"),
        (httpx.ReadTimeout("slow"), "Ask for a shorter period"),
        (httpx.RemoteProtocolError("not HTTP"), "https://"),
    ],
)
def test_unreachable(error, words):
    with pytest.raises(errors.PrometheusUnreachable, match=words):
        client(Server(error)).instant("up", 0)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://x:99999", "http://x?a=b", "http://["])
def test_no_address(url):
    with pytest.raises(errors.PrometheusUnreachable, match="expected http://HOST:PORT"):
        client(Server(success({})), url)


def test_a_password_is_not_repeated():
    with pytest.raises(errors.PrometheusUnreachable) as caught:
        client(Server(success({})), "ftp://me:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "two words", "a\nb"])
def test_a_token_file_that_is_none(tmp_path: Path, text: str):
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(errors.PrometheusUnreachable, match="--token-file"):
        client(Server(success({})), token_file=path)
    with pytest.raises(errors.PrometheusUnreachable, match="--token-file"):
        client(Server(success({})), token_file=tmp_path / "missing")


def test_a_ca_file_that_is_none(tmp_path: Path):
    with pytest.raises(errors.PrometheusUnreachable, match="--ca-file"):
        client(Server(success({})), "https://prometheus", ca_file=tmp_path / "missing")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"resultType": "vector"},
        {"resultType": "vector", "result": 5},
        {"resultType": "vector", "result": [{"x": 1}]},
        {"resultType": "vector", "result": [{"metric": {"a": 5}, "value": ["x", "y"]}]},
        {"resultType": "scalar", "result": [1]},
    ],
)
def test_success_of_somebody_else_is_told(data):
    """Whatever an HTTP server sends in the place of an answer, nothing but our own errors comes out."""
    for ask in (lambda source: source.instant("up", 0), lambda source: source.range("up", 0, 10, 1)):
        with pytest.raises(errors.PrometheusRefused, match=r"not as a Prometheus does.*Give the address"):
            ask(client(Server(success(data))))


@pytest.mark.parametrize("data", [{"alerts": 5, "activeTargets": 5}, {"alerts": [5], "activeTargets": [5]}])
def test_alerts_and_targets_of_somebody_else(data):
    for ask in (prometheus.Prometheus.alerts, prometheus.Prometheus.targets):
        with pytest.raises(errors.PrometheusRefused, match="not as a Prometheus does"):
            ask(client(Server(success(data))))


def test_what_was_typed_wrong_is_told_apart_from_what_does_not_answer(tmp_path: Path):
    for url, options in ((URL, {"token_file": tmp_path / "none"}), ("foo", {})):
        with pytest.raises(errors.PrometheusMistaken):
            client(Server(success({})), url, **options)
    with pytest.raises(errors.PrometheusUnreachable) as caught:
        client(Server(httpx.ConnectError("Connection refused"))).instant("up", 0)
    assert not isinstance(caught.value, errors.PrometheusMistaken)


def test_an_answer_that_breaks_off_is_no_question_of_https():
    class Short(httpx.SyncByteStream):
        def __iter__(self):
            yield b"{"
            raise httpx.RemoteProtocolError("peer closed connection")

    with pytest.raises(errors.PrometheusUnreachable, match=r"broke off: peer closed connection.*try again"):
        client(Server(httpx.Response(200, stream=Short()))).instant("up", 0)
