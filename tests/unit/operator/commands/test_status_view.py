"""The screen of `tidemark status`."""

from __future__ import annotations

import copy
import datetime
from typing import Any

from tidemark_operator.commands import status_view

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)


CLUSTER = {"kind": "cluster", "context": "prod", "namespace": "team-a", "server": "https://10.0.0.1:6443"}
LONG = "0/3 nodes are available: 1 node(s) had an untolerated taint, 2 Insufficient nvidia.com/gpu. " * 3


def condition(type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T11:55:00Z",
    }


ENGINE: dict[str, Any] = {
    "state": "ready",
    "message": "serving",
    "load": None,
    "memory": {
        "pagesTotal": 2000,
        "pagesUsed": 500,
        "pageBytes": 1_048_576,
        "blockSize": 16,
        "partsBytes": {"weights": 90 * 2**20},
    },
    "queue": {"running": 3, "waiting": 2, "oldestWaitSeconds": 1.25, "preemptionsTotal": 4},
    "config": {"hash": "abc123"},
    "worker": {"kind": "torch", "threads": "2"},
    "kernelPaths": [
        {"op": "attention", "planned": "cpu-c", "path": "cpu-c", "dtype": "int8", "reason": ""},
        {"op": "attention", "planned": "cpu-c", "path": "cpu-c", "dtype": "bfloat16", "reason": ""},
        {"op": "sampler", "planned": "numpy", "path": "numpy", "dtype": "float32", "reason": ""},
    ],
}
GOOD: dict[str, Any] = {
    "source": {"kind": "local"},
    "name": "base",
    "ready": True,
    "phase": "Ready",
    "url": "http://127.0.0.1:8000",
    "generation": 3,
    "spec": {"model": {"source": {"package": {"name": "smollm2-135m"}}}, "replicas": 1},
    "status": {
        "observedGeneration": 3,
        "readyReplicas": 1,
        "model": "base",
        "devices": "2 cores",
        "conditions": [
            condition("Ready", "True", "Ready", "1 of 1 replicas answer."),
            condition("Degraded", "False", "AsExpected", "Nothing is wrong."),
        ],
        "warnings": [],
    },
    "pods": [
        {
            "name": "base-1",
            "ready": True,
            "terminating": False,
            "restarts": 0,
            "state": {"running": {}},
            "lastState": {},
            "pid": 42,
            "log": "/state/base/pods/base-1/log",
            "engine": ENGINE,
        }
    ],
    "events": [],
}


def screen(overview: dict[str, Any], columns: int | None = None) -> str:
    return status_view.render(overview, NOW, columns=columns).plain


def broken() -> dict[str, Any]:
    made = copy.deepcopy(GOOD)
    made.update(ready=False, phase="ModelNotFound: The engine ended")
    made["status"]["conditions"] = [
        condition("Available", "True", "Available", "fine"),
        condition("Degraded", "True", "ModelNotFound", "The engine ended. Check spec.model.source."),
        condition("Ready", "False", "ModelNotFound", "The engine ended. Check spec.model.source."),
    ]
    made["status"]["warnings"] = ["spec.rollout.canary has no effect yet."]
    made["pods"][0].update(
        ready=False,
        pid=None,
        engine=None,
        restarts=2,
        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2 s"}},
        lastState={"terminated": {}},
    )
    made["events"] = [
        {
            "object": "Pod",
            "type": "Warning",
            "reason": "BackOff",
            "message": "it ended\nsecond line",
            "count": 2,
            "lastTimestamp": "2026-01-01T11:59:50Z",
        }
    ]
    return made


def test_a_model_of_a_hub_is_told_how_to_bring() -> None:
    made = broken()
    made["spec"]["model"]["source"] = {"huggingFace": {"repo": "org/model"}}
    shown = screen(made)
    assert "this version fetches nothing from a hub: download the repository elsewhere" in shown
    assert "spec.model.source.hostPath.path instead of huggingFace" in shown
    assert "fetches nothing from a hub" not in screen(broken())


def test_a_long_message_stands_there_once_among_the_conditions() -> None:
    made = broken()
    long = "The engine ended with exit code 1. It said: " + "much, " * 20
    for item in made["status"]["conditions"][1:]:
        item["message"] = long
    lines = screen(made).partition("Conditions\n")[2].splitlines()
    assert [line.partition("): ")[2] for line in lines[:3]] == ["as above", "as above", "fine"]
    assert screen(made).count(long.rstrip()) == 1


def test_a_good_service() -> None:
    shown = screen(GOOD)
    first, rest = shown.split("\n", 1)
    assert first == "local: `tidemark up` on this machine"
    assert rest.startswith("base: Ready\n  url       http://127.0.0.1:8000\n")
    assert "base from package smollm2-135m" in shown
    assert "generation 3" in shown
    assert "500 of 2000 pages of 16 tokens, 2.0 GiB" in shown
    assert "██████░░░░░░░░░░░░░░░░░░  25%" in shown
    assert "3 running, 2 waiting, the oldest for 1.2 s; 4 preempted so far" in shown
    assert "weights 90.0 MiB" in shown
    assert "abc123" in shown
    assert "kernels   cpu-c: attention (int8, bfloat16); numpy: sampler (float32)" in shown
    assert "SLOW" not in shown
    assert "process 42" in shown
    assert "✗" not in shown
    assert "What to do" not in shown


def test_a_loss_that_was_accepted_is_a_notice_and_no_problem() -> None:
    lossy = copy.deepcopy(GOOD)
    words = "int4 holds 100% of the KV memory, accepted by spec.kvCache.allowLossy."
    lossy["status"]["conditions"].append(condition("LossyKV", "True", "AcceptedByName", words))
    shown = screen(lossy)
    assert "! LossyKV        AcceptedByName" in shown
    assert words in shown
    assert "✗" not in shown


def test_slow_kernels_are_said_with_the_reason() -> None:
    slow = copy.deepcopy(GOOD)
    for each in slow["pods"][0]["engine"]["kernelPaths"][:2]:
        each |= {"path": "torch", "reason": "no C compiler found"}
    assert "SLOW      attention run on torch instead of cpu-c: no C compiler found" in screen(slow)


def test_a_broken_service_says_first_what_is_wrong_and_what_to_do() -> None:
    shown = screen(broken())
    assert shown.index("What to do") < shown.index("Conditions")
    assert "Check spec.model.source." in shown[: shown.index("Conditions")]
    assert "read its log: /state/base/pods/base-1/log" in shown
    bad, good = shown.index("✗ Degraded"), shown.index("✓ Available")
    assert bad < good
    assert shown.index("✗ Ready") < good
    assert "2 restarts" in shown
    assert "CrashLoopBackOff: back-off 2 s" in shown
    assert "10s  Pod BackOff ×2: it ended\n" in shown + "\n"
    assert "spec.rollout.canary has no effect yet." in shown


def test_before_the_first_status() -> None:
    made: dict[str, Any] = {
        **GOOD,
        "ready": False,
        "phase": "Starting",
        "url": None,
        "status": {},
        "pods": [],
        "events": [],
    }
    shown = screen(made)
    assert "none yet" in shown
    assert "wait: it is starting" in shown


def test_an_old_generation_is_told() -> None:
    made = copy.deepcopy(GOOD)
    made["generation"] = 4
    assert "generation 4, 3 acted on" in screen(made)
    made["ready"] = False
    assert "wait: the operator has not acted on generation 4 yet\n" in screen(made)
    made["source"] = CLUSTER
    assert "See whether it runs" not in screen(made)
    assert "If that stays, see whether it runs:\n    kubectl get deployments,pods -A" in screen(made)


def test_every_problem_of_a_wrong_spec_is_shown() -> None:
    made = broken()
    made["status"]["conditions"] = [condition("Ready", "False", "InvalidSpec", "spec.a: wrong\nspec.b: wrong, too")]
    shown = screen(made)
    assert "correct the values named below" in shown
    assert "spec.a: wrong" in shown
    assert "spec.b: wrong, too" in shown


def test_loading_shows_how_far() -> None:
    made = copy.deepcopy(GOOD)
    made["pods"][0]["engine"].update(state="loading", load={"phase": "weights", "fraction": 0.5})
    assert "████████████░░░░░░░░░░░░  50% weights" in screen(made)


def on_cluster(reason: str, message: str, **pod: Any) -> dict[str, Any]:
    """Not Ready for a reason."""
    made = copy.deepcopy(GOOD)
    made.update(source=CLUSTER, namespace="team-a", ready=False, phase=f"{reason}: {message[:120]}", kubectl="kubectl")
    made["status"]["conditions"] = [
        condition("Ready", "False", reason, message),
        condition("Degraded", "True", reason, message),
        condition("CapacityFit", "Unknown", "NotKnownYet", "Nothing is known yet."),
    ]
    log = "kubectl logs -n team-a base-1 -c engine --previous"
    made["pods"][0].update(ready=False, pid=None, engine=None, state={}, log=log, node="node-1")
    made["pods"][0].update(finding={"reason": reason, "message": message, "problem": True}, **pod)
    return made


def advice(overview: dict[str, Any]) -> str:
    return screen(overview).partition("What to do\n")[2].partition("\n\n")[0]


ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T11:59:00Z"}}
BAD = {
    "crash loop": on_cluster("OutOfMemory", "Killed. Raise it.", lastState=ENDED, restarts=3),
    "unschedulable": on_cluster("Unschedulable", LONG),
    "rolled back": on_cluster("RolledBack", f"{LONG} Change the spec."),
    "does not fit": on_cluster("DoesNotFit", f"{LONG} Give it 2 GiB."),
    "paused": on_cluster("Paused", "The annotation is set."),
    "refused": on_cluster("PodsRefused", "exceeded quota"),
}


def test_what_to_do_is_the_condition_and_a_command_that_says_more() -> None:
    said = {name: advice(made) for name, made in BAD.items()}
    assert said["crash loop"] == "  Killed. Raise it.\n    kubectl logs -n team-a base-1 -c engine --previous"
    assert said["unschedulable"].endswith("\n    kubectl describe -n team-a pods -l tidemark.dev/service=base")
    assert said["rolled back"].endswith("Change the spec.")
    assert said["does not fit"].endswith("Give it 2 GiB.")
    assert said["paused"].endswith("\n    kubectl annotate -n team-a tide base tidemark.dev/paused-")
    assert "    kubectl describe -n team-a pods,replicasets -l" in said["refused"]


def test_a_screen_fits_and_breaks_no_command() -> None:
    for made in BAD.values():
        made["events"] = [{**broken()["events"][0], "message": LONG, "name": "base-1"}]
        made["notRead"] = [f"events (not asked: {LONG})"]
        made["revisions"] = [
            {"number": 7, "goodSince": None, "failed": LONG, "current": True, "pods": 0, "name": "base-1"}
        ]
        lines = screen(made, columns=100).splitlines()
        assert max(map(len, lines)) <= 100
        assert LONG.strip() in " ".join(" ".join(lines).split())
    narrow = screen(BAD["crash loop"], columns=40)
    assert "    kubectl logs -n team-a base-1 -c engine --previous\n" in narrow


def test_a_pod_of_a_cluster() -> None:
    shown = screen(BAD["crash loop"])
    assert shown.startswith("cluster: context prod, namespace team-a (https://10.0.0.1:6443)\nbase: OutOfMemory\n")
    assert "Pod base-1: not ready, on node-1, 3 restarts" in shown
    assert "last exit code 137 (OOMKilled), 1m ago" in shown
    shown = screen(BAD["unschedulable"])
    assert "  waits     Unschedulable\n" in shown
    assert "kubectl logs" not in shown  # there is nothing to read yet


def test_bad_conditions_come_before_those_that_are_not_known() -> None:
    marks = [line.split()[0] for line in screen(BAD["paused"]).partition("Conditions\n")[2].splitlines()[:3]]
    assert marks == ["✗", "✗", "?"]


def test_many_pods_stay_on_one_screen_with_the_troubled_first() -> None:
    made = copy.deepcopy(GOOD)
    made["pods"] = [{**made["pods"][0], "name": f"base-{number}", "ready": number != 8} for number in range(9)]
    shown = screen(made)
    heads = [line for line in shown.splitlines() if line.startswith("Pod ")]
    assert [head.split(":")[0] for head in heads] == ["Pod base-8", "Pod base-0", "Pod base-1", "Pod base-2"]
    assert "... and 5 more pods, 5 ready; `--output json` has all" in shown


def test_lines_of_memory_are_shown_where_they_are_set() -> None:
    made = copy.deepcopy(GOOD)
    assert "  lines " not in screen(made)
    made["spec"]["watermarks"] = {"queue": 0.7, "preempt": 0.9}
    assert "  lines     queue from 70%, preempt from 90%\n" in screen(made)
    made["spec"]["watermarks"] = {"preempt": 0.8, "queue": None}
    assert "  lines     preempt from 80%\n" in screen(made)


def test_revisions_and_configuration() -> None:
    made = copy.deepcopy(GOOD)
    row = {"goodSince": "2026-01-01T11:00:00Z", "failed": None, "current": False, "pods": 0}
    made["revisions"] = [{**row, "number": number, "pods": int(number == 2)} for number in range(1, 8)]
    made["revisions"][-1].update(goodSince=None, failed="It crashed.", current=True)
    shown = screen(made).partition("Revisions\n")[2].splitlines()
    assert shown == [
        "     2  served, first 1h ago, 1 pod",
        "     4  served, first 1h ago",
        "     5  served, first 1h ago",
        "     6  served, first 1h ago",
        "     7  failed: It crashed., the spec of now",
    ]
    pods = [{"name": "a", "state": "inForce", "hash": "1"}, {"name": "b", "state": "olderRevision", "hash": "0"}]
    pods.append({"name": "c", "state": "unknown"})
    made["configuration"] = {"hash": "1", "configMap": "base-9", "reason": "Pending", "pods": pods}
    shown = screen(made)
    assert "wanted    1 (ConfigMap base-9), in force in 1 of 3 pods, not known of 1" in shown
    assert "pod       b runs 0: started for an older revision, will be replaced" in shown


def test_a_paused_service_says_so_even_when_it_is_ready() -> None:
    assert "  paused    by tidemark.dev/paused: nothing is changed or repaired\n" in screen({**GOOD, "paused": True})
    assert "paused" not in screen(GOOD)
