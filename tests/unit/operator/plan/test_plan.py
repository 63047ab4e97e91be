"""Rules that every plan keeps: pure, deterministic, nothing shared, hot changes leave the pods alone."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_operator import api, effects, names, plan
from tidemark_operator.cluster.local import translate
from tidemark_operator.plan import engine_config, layout
from tidemark_runtime.contract import settings as contract

ROOT = Path(__file__).resolve().parents[4]
FACTS = plan.Facts(image="tidemark-runtime:test", admin_token="t")


def wanted(document: dict[str, Any], facts: plan.Facts = FACTS) -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in plan.wanted(api.parse(document), facts)}


def engine_yaml(document: dict[str, Any]) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(wanted(document)["ConfigMap"]["data"][names.CONFIG_FILE])
    return loaded


def pod_spec(document: dict[str, Any], facts: plan.Facts = FACTS) -> dict[str, Any]:
    spec: dict[str, Any] = wanted(document, facts)["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.slow
def test_b061_a_thousand_plans_are_the_same_bytes() -> None:
    parsed = api.parse(manifests.full())
    assert len({json.dumps(plan.wanted(parsed, FACTS)) for _ in range(1000)}) == 1
    assert len({plan.to_yaml(plan.wanted(parsed, FACTS)) for _ in range(10)}) == 1


@pytest.mark.parametrize("text", ["1e3", "12345e678901", "0o17", ".5", "1.", "y", "on", "null", "0123", "1_000", "~"])
def test_b075_text_that_any_yaml_reader_takes_for_something_else_is_quoted(text: str) -> None:
    assert f"key: '{text}'" in plan.to_yaml([{"key": text}])


@pytest.mark.parametrize(
    "text", ["a\x85", "a\x85\nb", "\x85", "\u2028", "\ufeff", "\x07", "a\r\nb\t", " a\n\n", "\U0001f30a"]
)
def test_b075_odd_characters_come_back_as_they_were(text: str) -> None:
    assert yaml.safe_load(plan.to_yaml([{"key": text}])) == {"key": text}


def test_b061_hash_seeds_and_the_order_of_keys_do_not_matter(tmp_path: Path) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(list(value))}
        return [turned(item) for item in value] if isinstance(value, list) else value

    seen = set()
    for seed, document in (("1", manifests.full()), ("2", turned(manifests.full()))):
        file = tmp_path / f"{seed}.yaml"
        file.write_text(json.dumps(document))  # JSON is YAML, and leaves no doubt about 1e3
        done = subprocess.run(
            [sys.executable, "-m", "tidemark_operator", "render", str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def containers_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in containers_of(item))]
    return [value, *(found for item in value for found in containers_of(item))] if isinstance(value, list) else []


def test_nothing_mutable_is_shared_within_and_between_plans() -> None:
    parsed = api.parse(manifests.full())
    first, second = plan.wanted(parsed, FACTS), plan.wanted(parsed, FACTS)
    found = [*containers_of(first), *containers_of(second), *containers_of(parsed.model_dump())]
    assert len({id(item) for item in found}) == len(found)
    before = copy.deepcopy(second)
    for item in containers_of(first):
        item.clear()
    assert second == before == plan.wanted(parsed, FACTS)
    assert "&id" not in plan.to_yaml(second)


def test_every_child_belongs_to_the_service() -> None:
    for child in wanted(manifests.small()).values():
        assert child["metadata"]["namespace"] == "team-a"
        assert child["metadata"]["labels"][names.SERVICE_LABEL] == "demo"
        assert child["metadata"]["ownerReferences"] == [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": "demo",
                "uid": "0f0f-11",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_without_a_uid_there_is_no_owner() -> None:
    document = manifests.small()
    document["metadata"] = {"name": "demo"}
    for child in wanted(document).values():
        assert not {"ownerReferences", "namespace"} & set(child["metadata"])


def test_b077_selectors_are_small_and_know_no_user_label() -> None:
    objects = wanted(manifests.full())
    fixed = {names.SERVICE_LABEL: "contracts"}
    deployment = objects["Deployment"]["spec"]
    assert deployment["selector"]["matchLabels"] == objects["Service"]["spec"]["selector"] == fixed
    assert deployment["template"]["metadata"]["labels"].items() >= fixed.items()
    assert deployment["template"]["metadata"]["labels"]["spot"] == "true"


def test_b075_texts_arrive_unchanged() -> None:
    document = manifests.full()
    given_env = [{"name": item["name"], **item} for item in document["spec"]["podTemplate"]["env"]]
    objects = yaml.safe_load_all(plan.to_yaml(plan.wanted(api.parse(document), FACTS)))
    spec = next(item for item in objects if item["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert spec["containers"][0]["env"][-len(given_env) :] == given_env
    assert spec["tolerations"] == document["spec"]["hardware"]["tolerations"]
    assert spec["nodeSelector"] == document["spec"]["hardware"]["nodeSelector"]


HOT_CHANGES = {
    "spec.scheduler.maxNumBatchedTokens": 1234,
    "spec.overload.maxQueuedRequests": 7,
    "spec.overload.maxQueueSeconds": 5.5,
    "spec.scheduler.preemption.maxPerRequest": 9,
    "spec.watermarks.queue": 0.5,
    "spec.overload.degrade": [{"maxPriority": -1, "maxTokens": 64}],
}
RESTART_CHANGES: dict[str, Any] = {
    "spec.model.name": "other",
    "spec.model.source.package.name": "other",
    "spec.model.weights.dtype": "float32",
    "spec.model.weights.quantization": "int8",
    "spec.model.maxContextTokens": 100,
    "spec.kvCache.dtype": "float32",
    "spec.kvCache.blockSize": 32,
    "spec.kvCache.memoryUtilization": 0.5,
    "spec.kvCache.prefixCaching": False,
    "spec.kvCache.swapSpace": "1Gi",
    "spec.scheduler.maxNumSeqs": 3,
    "spec.hardware.count": 3,
    "spec.hardware.memory": "3Gi",
    "spec.access.apiKeysSecretRef": {"name": "k"},
    "spec.access.tlsSecretRef": {"name": "c"},
    "spec.podTemplate.env": [{"name": "A", "value": "b"}],
    # Hot in the engine, but the pod's grace period is fixed when it is made.
    "spec.rollout.drainSeconds": 11,
}


@pytest.mark.parametrize(("path", "value"), HOT_CHANGES.items())
def test_a_hot_change_leaves_the_pods_alone(path: str, value: Any) -> None:
    before, after = wanted(manifests.small()), wanted(manifests.changed(path, value))
    assert before["Deployment"] == after["Deployment"]
    assert before["ConfigMap"]["data"] != after["ConfigMap"]["data"]
    hashes = {item["ConfigMap"]["metadata"]["annotations"][names.CONFIG_HASH_ANNOTATION] for item in (before, after)}
    assert len(hashes) == 2


@pytest.mark.parametrize(("path", "value"), RESTART_CHANGES.items())
def test_a_restart_change_changes_the_pods(path: str, value: Any) -> None:
    before, after = wanted(manifests.small()), wanted(manifests.changed(path, value))
    assert before["Deployment"]["spec"]["template"] != after["Deployment"]["spec"]["template"]


def test_replicas_are_no_change_of_the_pods() -> None:
    before, after = wanted(manifests.small()), wanted(manifests.small(replicas=3))
    assert before["Deployment"]["spec"].pop("replicas") == 1
    assert after["Deployment"]["spec"].pop("replicas") == 3
    assert after.pop("PodDisruptionBudget")
    assert before == after


def test_the_engine_reads_exactly_what_the_spec_says() -> None:
    document = manifests.small(
        kvCache={"dtype": "float16", "blockSize": 8},
        scheduler={"maxNumSeqs": 5, "maxNumBatchedTokens": 77, "preemption": {"maxPerRequest": 2}},
        overload={"maxQueuedRequests": 6, "maxQueueSeconds": 30},
        access={"apiKeysSecretRef": {"name": "keys", "key": "tokens"}},
    )
    parsed = contract.parse(engine_yaml(document))
    assert parsed.model.source == "smollm2-135m"
    assert parsed.model.name == "demo"
    assert (parsed.kv_cache.dtype, parsed.kv_cache.block_size) == ("float16", 8)
    assert (parsed.scheduler.max_num_seqs, parsed.scheduler.max_num_batched_tokens) == (5, 77)
    assert (parsed.scheduler.max_queued_requests, parsed.scheduler.max_queue_seconds) == (6, 30.0)
    assert parsed.scheduler.max_preemptions_per_request == 2
    assert parsed.server.api_keys_file == "/run/tidemark/keys/tokens"
    assert (parsed.hardware.threads, parsed.hardware.memory) == (2, 2 * 2**30)
    assert plan.config_hash(api.parse(document)) == contract.config_hash(parsed)


@pytest.mark.parametrize(
    ("resource", "count", "ranks"), [("nvidia.com/gpu", 4, 4), ("nvidia.com/gpu", 1, 1), ("cpu", 4, 1)]
)
def test_devices_of_a_pod_share_the_model_and_cores_do_not(resource: str, count: int, ranks: int) -> None:
    document = manifests.small()
    document["spec"]["hardware"] = {"resourceName": resource, "count": count, "memory": "2Gi"}
    assert contract.parse(engine_yaml(document)).hardware.tensor_parallel == ranks


@pytest.mark.parametrize(
    ("resource", "count", "has_it"), [("nvidia.com/gpu", 4, True), ("nvidia.com/gpu", 1, False), ("cpu", 4, False)]
)
def test_devices_that_share_a_model_have_shared_memory(resource: str, count: int, has_it: bool) -> None:
    """/dev/shm of a container is 64 MiB, too little for what devices hand each other."""
    document = manifests.small()
    document["spec"]["hardware"] = {"resourceName": resource, "count": count, "memory": "2Gi"}
    pod = wanted(document)["Deployment"]["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert ("/dev/shm" in mounts) == has_it
    if has_it:
        assert "readOnly" not in mounts["/dev/shm"]
        volume = next(each for each in pod["volumes"] if each["name"] == mounts["/dev/shm"]["name"])
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_what_the_spec_does_not_say_is_left_to_the_engine() -> None:
    assert "maxNumSeqs" not in engine_yaml(manifests.small())["scheduler"]
    assert "maxContextTokens" not in engine_yaml(manifests.small())["model"]


def test_what_the_engine_cannot_do_is_not_written_but_warned_of() -> None:
    document = manifests.small()
    document["spec"]["model"]["weights"] = {"quantization": "fp8"}
    assert "quantization" not in engine_yaml(document)["model"]
    assert [warning.path for warning in effects.unsupported(api.parse(document))] == [
        "spec.model.weights.quantization: fp8",
    ]


def test_a_lossy_dtype_that_was_accepted_reaches_the_engine() -> None:
    written = engine_yaml(manifests.small(kvCache={"dtype": "int4", "allowLossy": True}))
    assert (written["kvCache"]["dtype"], written["kvCache"]["allowLossy"]) == ("int4", True)
    assert engine_yaml(manifests.small())["kvCache"]["allowLossy"] is False


def test_scales_are_mounted_and_read_from_there() -> None:
    document = manifests.small(kvCache={"dtype": "int8", "scalesRef": {"name": "calibrated"}})
    assert engine_yaml(document)["kvCache"]["scalesFile"] == "/run/tidemark/scales/scales.yaml"
    spec = pod_spec(document)
    assert {"name": "scales", "configMap": {"name": "calibrated"}} in spec["volumes"]
    mount = {"name": "scales", "mountPath": "/run/tidemark/scales", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]
    assert "scalesFile" not in engine_yaml(manifests.small())["kvCache"]


@settings(max_examples=60, deadline=None)
@given(
    seqs=st.integers(1, 4096),
    more_tokens=st.integers(0, 1_048_576 - 4096),
    block=st.integers(1, 256),
    share=st.floats(0.05, 1.0),
    wait=st.floats(0.001, 1e9),
    queued=st.integers(0, 10**9),
    drain=st.integers(0, 800),
)
def test_whatever_the_api_accepts_the_engine_accepts(
    seqs: int, more_tokens: int, block: int, share: float, wait: float, queued: int, drain: int
) -> None:
    document = manifests.small(
        scheduler={"maxNumSeqs": seqs, "maxNumBatchedTokens": seqs + more_tokens},
        kvCache={"blockSize": block, "memoryUtilization": share},
        overload={"maxQueueSeconds": wait, "maxQueuedRequests": queued},
        rollout={"drainSeconds": drain},
    )
    parsed = api.parse(document)
    text = engine_config.dump(engine_config.build(parsed))
    assert contract.parse(yaml.safe_load(text)) == engine_config.parse(parsed)


@pytest.mark.parametrize(
    ("source", "engine_source", "volume", "mount"),
    [
        ({"package": {"name": "smollm2-135m"}}, "smollm2-135m", None, None),
        (
            {"pvc": {"claimName": "m", "path": "qwen/7b/"}},
            "/models/qwen/7b",
            {"persistentVolumeClaim": {"claimName": "m", "readOnly": True}},
            "/models",
        ),
        (
            {"pvc": {"claimName": "m"}},
            "/models",
            {"persistentVolumeClaim": {"claimName": "m", "readOnly": True}},
            "/models",
        ),
        (
            {"hostPath": {"path": "/srv/qwen/"}},
            "/models",
            {"hostPath": {"path": "/srv/qwen", "type": "Directory"}},
            "/models",
        ),
        (
            {"hostPath": {"path": "/srv/a.gguf"}},
            "/models/a.gguf",
            {"hostPath": {"path": "/srv/a.gguf", "type": "File"}},
            "/models/a.gguf",
        ),
        (
            {"hostPath": {"path": "/srv/a.gguf/"}},
            "/models/a.gguf",
            {"hostPath": {"path": "/srv/a.gguf", "type": "File"}},
            "/models/a.gguf",
        ),
        (
            {"image": {"reference": "registry/model:1"}},
            "/models",
            {"image": {"reference": "registry/model:1", "pullPolicy": "IfNotPresent"}},
            "/models",
        ),
        ({"huggingFace": {"repo": "org/name"}}, "org/name", None, None),
    ],
)
def test_model_sources(
    source: dict[str, Any], engine_source: str, volume: dict[str, Any] | None, mount: str | None
) -> None:
    document = manifests.changed("spec.model.source", source)
    assert engine_yaml(document)["model"]["source"] == engine_source
    spec = pod_spec(document)
    volumes = {item["name"]: item for item in spec["volumes"]}
    mounts = {item["name"]: item for item in spec["containers"][0]["volumeMounts"]}
    assert set(volumes) == set(mounts)
    assert ("model" in volumes) == (volume is not None)
    if volume is not None:
        assert volumes["model"] == {"name": "model", **volume}
        assert mounts["model"] == {"name": "model", "mountPath": mount, "readOnly": True}


@pytest.mark.parametrize(
    "path", ["/srv/models/big.gguf", "/srv/models/big", "/srv/models/big/", "//srv/./models//big/."]
)
def test_with_a_draft_model_the_folder_of_both_is_mounted(path: str) -> None:
    document = manifests.small(speculative={"method": "draft", "draftModel": "small.gguf"})
    document = manifests.changed("spec.model.source", {"hostPath": {"path": path}}, document)
    written, spec = engine_yaml(document), pod_spec(document)
    assert written["model"]["source"] == f"/models/{'big.gguf' if path.endswith('.gguf') else 'big'}"
    assert written["speculative"]["draftModel"] == "/models/small.gguf"
    (volume,) = (item for item in spec["volumes"] if item["name"] == "model")
    (mount,) = (item for item in spec["containers"][0]["volumeMounts"] if item["name"] == "model")
    assert volume["hostPath"] == {"path": "/srv/models", "type": "Directory"}
    assert mount == {"name": "model", "mountPath": "/models", "readOnly": True}


SOURCES = (
    {"hostPath": {"path": "/srv/models/big.gguf"}},
    {"hostPath": {"path": "/srv/models/big"}},
    {"pvc": {"claimName": "models", "path": "qwen/big.gguf"}},
    {"pvc": {"claimName": "models"}},
    {"image": {"reference": "registry/models:1"}},
    {"package": {"name": "smollm2-135m"}},
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: "-".join(map(str, *source.values())))
@pytest.mark.parametrize("draft", [None, "small.gguf", "drafts/small"])
@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_kubelet_can_mount_every_volume(source: dict[str, Any], draft: str | None, kind: str) -> None:
    """Each once, none inside another (which would hide it, or need a folder in a read-only one), nothing of ours
    writable but scratch, no subPath (which would freeze a ConfigMap's files), and a claim once in a pod."""
    document = manifests.small(
        kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "m"}}, "scalesRef": {"name": "s"}},
        access={"apiKeysSecretRef": {"name": "keys"}, "tlsSecretRef": {"name": "tls"}},
        evaluation={"schedule": "0 3 * * 0"},
        speculative={"method": "draft", "draftModel": draft} if draft else {"method": "ngram"},
    )
    document = manifests.changed("spec.model.source", source, document)
    found = plan.wanted(api.parse(document), dataclasses.replace(FACTS, model_store_host_path="/srv/store"))
    (made,) = (item for item in found if item["kind"] == kind)
    spec = (made["spec"]["jobTemplate"] if kind == "CronJob" else made)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = container["volumeMounts"]
    assert sorted(volume["name"] for volume in spec["volumes"]) == sorted(mount["name"] for mount in mounts)
    paths = [mount["mountPath"] for mount in mounts]
    assert all(one != other and not f"{one}/".startswith(f"{other}/") for one, other in permutations(paths, 2))
    assert {mount["name"] for mount in mounts if not mount.get("readOnly")} == {"cache", "tmp"}
    assert not any("subPath" in mount for mount in mounts)
    claims = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == ([{"claimName": "models", "readOnly": True}] if "pvc" in source else [])
    written = engine_yaml(document)
    for inside in (written["model"]["source"], written["speculative"].get("draftModel")):
        if inside is not None and inside.startswith("/"):
            assert sum(f"{inside}/".startswith(f"{path}/") for path in paths) == 1, "it lies in one volume"


def test_a_gguf_in_capitals_is_a_file_too() -> None:
    spec = pod_spec(manifests.changed("spec.model.source", {"hostPath": {"path": "/srv/BIG.GGUF"}}))
    (volume,) = (item for item in spec["volumes"] if item["name"] == "model")
    assert volume["hostPath"] == {"path": "/srv/BIG.GGUF", "type": "File"}


@pytest.mark.parametrize("name", ["big.gguf", "big"])
def test_a_process_of_this_machine_has_the_hash_of_the_pod(name: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/{name}"
    document = manifests.small(
        kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "m"}}, "scalesRef": {"name": "s"}},
        speculative={"method": "draft", "draftModel": "small.gguf"},
    )
    document = manifests.changed("spec.model.source", {"hostPath": {"path": path}}, document)
    pod = {"spec": pod_spec(document)}
    mounted = translate.mounts(pod, pod["spec"]["containers"][0], Path("/state/p"))
    here = translate.config_document(engine_yaml(document), mounted, 4711)
    assert here["model"]["source"] == path
    assert here["speculative"]["draftModel"] == f"{tmp_path}/small.gguf"
    assert here["kvCache"]["scalesFile"].startswith("/state/p/")
    assert contract.config_hash(contract.parse(here)) == plan.config_hash(api.parse(document))


def test_suspended_means_no_pods_and_everything_else_stays() -> None:
    objects = wanted(manifests.small(suspend=True, replicas=4))
    assert objects["Deployment"]["spec"]["replicas"] == 0
    assert set(objects) == {"ServiceAccount", "Secret", "ConfigMap", "PodDisruptionBudget", "Deployment", "Service"}


def test_devices_and_cores() -> None:
    assert pod_spec(manifests.small())["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "2Gi"},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }
    assert pod_spec(manifests.full())["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"},
    }


def test_a_named_service_account_is_used_and_not_made() -> None:
    document = manifests.changed("spec.podTemplate.serviceAccountName", "theirs")
    assert "ServiceAccount" not in wanted(document)
    assert pod_spec(document)["serviceAccountName"] == "theirs"


def test_a_sites_variable_replaces_ours() -> None:
    env = [{"name": "TRITON_CACHE_DIR", "value": "/tmp/t"}]
    assert pod_spec(manifests.changed("spec.podTemplate.env", env))["containers"][0]["env"] == env


def test_the_model_store_of_the_nodes_is_mounted() -> None:
    spec = pod_spec(manifests.small(), plan.Facts(image="x", model_store_host_path="/srv/store"))
    assert {"name": names.MODEL_STORE_VARIABLE, "value": layout.STORE_DIR} in spec["containers"][0]["env"]
    assert {"name": "model-store", "hostPath": {"path": "/srv/store", "type": "Directory"}} in spec["volumes"]


def test_planning_imports_no_client() -> None:
    code = "import sys, tidemark_operator.plan, tidemark_operator.status; print([m for m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"kopf", "kubernetes", "torch", "httpx"} & set(done.stdout.split("'"))


def test_layers_and_heads_that_stay_at_16_bits_reach_the_engine_as_rules() -> None:
    kept = {"keepLayers": [0, 3], "keepHeads": {"7": [2], "9": [0, 1]}}
    written = engine_yaml(manifests.small(kvCache={"dtype": "int8", "precision": kept}))
    assert written["kvCache"]["precision"] == [
        {"layers": "0,3"},
        {"layers": "7", "heads": "2"},
        {"layers": "9", "heads": "0,1"},
    ]


def test_a_precision_map_is_mounted_and_read_from_there() -> None:
    document = manifests.small(kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "found"}}})
    assert engine_yaml(document)["kvCache"]["precisionFile"] == "/run/tidemark/precision/precision.yaml"
    spec = pod_spec(document)
    assert {"name": "precision", "configMap": {"name": "found"}} in spec["volumes"]
    mount = {"name": "precision", "mountPath": "/run/tidemark/precision", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]
