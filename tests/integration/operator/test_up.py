"""`tidemark up` from start to end, with a stand-in engine and real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def ready(overview: dict[str, Any]) -> bool:
    return bool(overview["ready"])


def settled(overview: dict[str, Any], generation: int) -> bool:
    """Ready with this generation, and nothing of the one before left."""
    return ready(overview) and overview["generation"] == generation and len(overview["pods"]) == 1


def test_the_life_of_a_service(workplace: Any, gone: Callable[..., None]) -> None:
    process = workplace.up("--port", "0")
    workplace.until(ready)
    first = workplace.ask()
    assert first["maxNumSeqs"] == 16

    os.kill(first["pid"], signal.SIGKILL)  # a killed engine comes back, and what it had started does not stay
    workplace.until(lambda found: found["pods"][0]["ready"] and found["pods"][0]["restarts"] == 1)
    gone(first["pid"], first["child"])
    second = workplace.ask()
    assert second["pid"] != first["pid"]
    assert "exit code 137" in workplace.output

    workplace.write(scheduler={"maxNumSeqs": 17})  # an edit rolls
    workplace.until(lambda found: settled(found, 2))
    gone(second["pid"], second["child"])
    third = workplace.ask()
    assert third["maxNumSeqs"] == 17
    assert "spec.scheduler.maxNumSeqs: 16 -> 17 (the engine restarts)" in workplace.output

    workplace.file.write_text("kind: InferenceService\nspec: {nonsense: 1}\n")  # a wrong edit changes nothing
    end = "what ran before goes on"
    # The file may be looked at while it is still empty; what counts is what is said of it in the end.
    workplace.until(lambda _: end in workplace.output.partition("nonsense")[2])
    assert workplace.ask() == third

    workplace.write(scheduler={"maxNumSeqs": 17}, replicas=2)
    applied = workplace.tidemark("apply", str(workplace.file))
    assert applied.returncode == 0, applied.stderr
    workplace.until(lambda found: ready(found) and sum(pod["ready"] for pod in found["pods"]) == 2)
    pids = {workplace.ask()["pid"] for _ in range(10)} | {workplace.ask()["child"] for _ in range(10)}
    assert len(pids) == 4

    process.send_signal(signal.SIGINT)  # Ctrl-C: nothing is left
    assert process.wait(60) == 0, workplace.output
    gone(*pids)
    assert not (workplace.state / "base" / "control.sock").exists()
    assert workplace.tidemark("status", "base").returncode == 1


def test_killed_with_9_it_leaves_nothing_running_and_can_start_again(workplace: Any, gone: Callable[..., None]) -> None:
    process = workplace.up("--port", "0")
    workplace.until(ready)
    engine = workplace.ask()
    process.kill()
    process.wait()
    gone(engine["pid"], engine["child"])
    shown = workplace.tidemark("status", "base")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no `tidemark up` runs 'base' on this machine. Nothing runs here now" in shown.stderr
    workplace.up("--port", "0")
    workplace.until(ready)


def test_a_second_signal_does_not_wait_for_a_stubborn_engine(workplace: Any, gone: Callable[..., None]) -> None:
    workplace.write(model={"name": "stubborn", "source": {"hostPath": {"path": str(workplace.model)}}})
    process = workplace.up("--port", "0")
    workplace.until(ready)
    engine = workplace.ask()
    process.send_signal(signal.SIGTERM)
    workplace.until(lambda _: "stopping" in workplace.output)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, workplace.output
    gone(engine["pid"], engine["child"])


def test_ctrl_c_lets_running_requests_finish(workplace: Any) -> None:
    process = workplace.up("--port", "0")
    workplace.until(ready)
    with futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(workplace.ask, "/slow")
        workplace.until(lambda _: "slow request" in Path(workplace.overview()["pods"][0]["log"]).read_text())
        process.send_signal(signal.SIGINT)
        assert answer.result(60)["maxNumSeqs"] == 16
    assert process.wait(60) == 0, workplace.output


def test_status_in_three_forms(running: Any) -> None:
    workplace = running
    found = workplace.until(ready)
    screen = workplace.tidemark("status")
    assert screen.returncode == 0, screen.stderr
    assert "base: Ready\n" in screen.stdout
    assert "ConfigApplied" in screen.stdout
    assert "✗" not in screen.stdout, screen.stdout
    assert json.loads(workplace.tidemark("status", "base", "--output", "json").stdout)["ready"] is True
    assert workplace.tidemark("status", "base", "--url").stdout == f"{found['url']}\n"


def test_apply_says_what_it_does(running: Any) -> None:
    workplace = running
    before = workplace.until(ready)["generation"]
    assert workplace.tidemark("apply", str(workplace.file)).stdout == "base: unchanged\n"
    other = workplace.folder / "other.yaml"
    other.write_text(workplace.file.read_text().replace('"maxNumSeqs": 16', '"maxNumSeqs": 9'))
    answer = json.loads(workplace.tidemark("apply", str(other), "--output", "json").stdout)["base"]
    assert answer["result"] == "configured"
    assert [change["path"] for change in answer["changes"]] == ["spec.scheduler.maxNumSeqs"]
    workplace.until(lambda found: settled(found, before + 1))
    assert workplace.ask()["maxNumSeqs"] == 9


def test_apply_without_an_up_says_what_to_do(workplace: Any) -> None:
    answer = workplace.tidemark("apply", str(workplace.file))
    assert answer.returncode == 1
    assert "no `tidemark up` runs 'base' on this machine" in answer.stderr
    assert "start it with `tidemark up FILE`" in answer.stderr


def test_a_wrong_manifest_names_all_its_problems(workplace: Any) -> None:
    workplace.write(replicas=-1, nonsense=True)
    process = workplace.up("--port", "0")
    assert process.wait(60) == 2
    assert "replicas" in workplace.output
    assert "nonsense" in workplace.output


def test_a_port_in_use_is_named_with_the_remedy(workplace: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = workplace.up("--port", str(port))
        assert process.wait(60) == 1
    assert f"port {port} of 127.0.0.1 is in use" in workplace.output
    assert "--port N" in workplace.output


def test_a_second_up_of_the_same_name_is_told_who_has_it(running: Any) -> None:
    second = running.up("--port", "0")
    assert second.wait(60) == 1
    assert f"'base' is already run by `tidemark up`, process {running.ups[0].pid}" in running.output
    assert running.overview()["ready"]


def test_a_model_that_cannot_be_fetched_ends_it(workplace: Any) -> None:
    workplace.write(model={"source": {"package": {"name": "nowhere"}}})
    process = workplace.up("--port", "0")
    assert process.wait(60) in (1, 2)
    assert "nowhere" in workplace.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_a_fetch_does_not_outlive_it(
    workplace: Any, gone: Callable[..., None], number: signal.Signals, code: int
) -> None:
    workplace.write(model={"source": {"package": {"name": "far-away"}}})
    process = workplace.up("--port", "0")
    workplace.until(lambda _: "process " in workplace.output)
    process.send_signal(number)
    assert process.wait(60) == code
    gone(int(workplace.output.rpartition("process ")[2]))


def test_a_crashing_engine_is_told_in_words_and_tried_again(workplace: Any) -> None:
    workplace.write(model={"name": "crashes", "source": {"hostPath": {"path": str(workplace.model)}}})
    workplace.up("--port", "0")
    found = workplace.until(lambda found: any(pod["restarts"] >= 2 for pod in found["pods"]))
    assert not found["ready"]
    assert "ModelNotFound: The engine ended with exit code 1" in workplace.output
    assert "there is no such model" in workplace.output
    assert f"its log: {found['pods'][0]['log']}" in workplace.output
    screen = workplace.tidemark("status", "base").stdout
    assert "What to do" in screen
    assert "ModelNotFound" in screen
    url = workplace.overview()["url"]
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"{url}/v1/models", timeout=10)
    assert answer.value.code == 503
    assert json.load(answer.value)["error"]["code"] == "no_ready_engine"
    answer.value.close()
    workplace.write(model={"name": "quick", "source": {"hostPath": {"path": str(workplace.model)}}})
    workplace.until(ready)


def test_exit_on_failure(workplace: Any) -> None:
    workplace.write(model={"name": "crashes", "source": {"hostPath": {"path": str(workplace.model)}}})
    process = workplace.up("--port", "0", "--exit-on-failure")
    assert process.wait(60) == 1
    assert "there is no such model" in workplace.output
    [log] = (workplace.state / "base" / "logs").iterdir()  # stays, so that the path that was printed can be read
    assert f"its log: {log}" in workplace.output
    assert "there is no such model" in log.read_text()


def test_keys_come_from_a_file_and_follow_it(workplace: Any) -> None:
    keys = workplace.folder / "keys"
    keys.write_text("one\n")
    workplace.write(access={"apiKeysSecretRef": {"name": "k"}})
    workplace.up("--port", "0", "--secret", f"k={keys}")
    workplace.until(ready)
    engine = workplace.ask()
    assert engine["keys"] == "one\n"
    keys.write_text("one\ntwo\n")
    workplace.until(lambda _: workplace.ask()["keys"] == "one\ntwo\n")
    assert workplace.ask()["pid"] == engine["pid"]


def test_a_missing_secret_is_named_with_the_remedy(workplace: Any) -> None:
    workplace.write(access={"apiKeysSecretRef": {"name": "k"}})
    workplace.up("--port", "0")
    remedy = "Secret 'k' does not exist. Give it to `tidemark up` with --secret k=FILE"
    workplace.until(lambda _: remedy in workplace.output)


def test_suspend_stops_the_pods_keeps_the_address_and_ends_when_it_is_taken_back(
    workplace: Any, gone: Callable[..., None]
) -> None:
    workplace.write(replicas=2)
    workplace.up("--port", "0")
    url = workplace.until(lambda found: ready(found) and sum(pod["ready"] for pod in found["pods"]) == 2)["url"]
    both = {workplace.ask()["pid"] for _ in range(10)}
    assert len(both) == 2
    assert workplace.tidemark("status", "base", "--wait", "30").returncode == 0

    workplace.write(replicas=2, suspend=True)
    found = workplace.until(lambda found: found["phase"].startswith("Suspended") and not found["pods"])
    gone(*both)
    assert found["url"] == url
    screen = workplace.tidemark("status", "base")
    assert screen.returncode == 1
    assert "spec.suspend is true; set it to false to start the pods." in screen.stdout
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"{url}/v1/models", timeout=10)
    assert answer.value.code == 503
    answer.value.close()

    workplace.write(replicas=2, suspend=False)
    workplace.until(lambda found: ready(found) and sum(pod["ready"] for pod in found["pods"]) == 2)
    assert workplace.overview()["url"] == url
    assert len({workplace.ask()["pid"] for _ in range(10)} - both) == 2


@pytest.mark.parametrize(
    ("source", "kind"),
    [({"pvc": {"claimName": "models"}}, "persistentVolumeClaim"), ({"image": {"reference": "r.bank/m:1"}}, "image")],
    ids=["pvc", "image"],
)
def test_a_source_that_only_a_cluster_has_is_named_with_the_remedy(
    workplace: Any, source: dict[str, Any], kind: str
) -> None:
    workplace.write(model={"source": source})
    workplace.up("--port", "0")
    found = workplace.until(lambda found: "FailedMount" in found.get("phase", ""))
    assert found["pods"][0]["restarts"] == 0
    assert kind in workplace.output
    assert "On this machine give `spec.model.source` as hostPath or package" in workplace.output


def test_more_cores_than_there_are_is_a_warning(workplace: Any) -> None:
    hardware = {"resourceName": "cpu", "count": 1000, "memory": "1Gi"}
    workplace.write(hardware=hardware)
    workplace.up("--port", "0")
    [warning] = workplace.until(ready)["status"]["warnings"]
    assert warning.startswith("spec.hardware.count: asks for 1000, but this machine has ")
    assert f"warning: {warning}" in workplace.output
    assert warning in workplace.tidemark("status", "base").stdout


def test_the_url_answers_through_a_whole_rollout(workplace: Any) -> None:
    slow = {"name": "wakes", "source": {"hostPath": {"path": str(workplace.model)}}}
    workplace.write(model=slow)
    workplace.up("--port", "0")
    workplace.until(ready)
    workplace.write(model=slow, scheduler={"maxNumSeqs": 3})
    seen = []

    def ask(found: dict[str, Any]) -> bool:
        seen.append(workplace.ask()["maxNumSeqs"])
        return settled(found, 2)

    workplace.until(ask)
    assert seen[0] == 16
    assert workplace.ask()["maxNumSeqs"] == 3
