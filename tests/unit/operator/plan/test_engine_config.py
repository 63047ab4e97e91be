"""Every setting that the resource has reaches the engine, and a change of it is what its declaration says."""

from __future__ import annotations

import json
from typing import Any

import manifests
import pytest
import random_manifests
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark_operator import api, errors, plan
from tidemark_operator.api import links
from tidemark_operator.commands import changes
from tidemark_operator.plan import engine_config
from tidemark_runtime.contract import settings as contract

FACTS = plan.Facts(image="tidemark-runtime:test")
LINKS = {link.path: link for link in api.engine_links()}

# A value that is not the default, and what the engine then has.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "model.name": ("other", "other"),
    "model.weights.dtype": ("float32", "float32"),
    "model.weights.quantization": ("int8", "int8"),
    "model.maxContextTokens": (100, 100),
    "kvCache.dtype": ("float16", "float16"),
    "kvCache.allowLossy": (True, True),
    "kvCache.blockSize": (32, 32),
    "kvCache.memoryUtilization": (0.5, 0.5),
    "kvCache.prefixCaching": (False, False),
    "kvCache.swapSpace": ("1.5Gi", 3 * 2**29),
    "scheduler.maxNumSeqs": (3, 3),
    "scheduler.maxNumBatchedTokens": (1234, 1234),
    "scheduler.maxConcurrencySoft": (2, 2),
    "scheduler.longRequestTokens": (2000, 2000),
    "scheduler.longRequestShare": (0.25, 0.25),
    "scheduler.agingSeconds": (5, 5.0),
    "scheduler.fairness": ("apiKey", "apiKey"),
    "scheduler.preemption.mode": ("recompute", "recompute"),
    "scheduler.preemption.maxPerRequest": (9, 9),
    "scheduler.targetStepSeconds": (0.1, 0.1),
    "hardware.strictKernels": (True, True),
    "watermarks.queue": (0.6, 0.6),
    "watermarks.preempt": (0.8, 0.8),
    "watermarks.hysteresis": (0.1, 0.1),
    "speculative.method": ("ngram", "ngram"),
    "speculative.tokens": (7, 7),
    "overload.maxQueuedRequests": (6, 6),
    "overload.maxQueuedTokens": (2_000_000, 2_000_000),
    "overload.maxQueueSeconds": (30, 30.0),
    "overload.retryShare": (0.2, 0.2),
    "overload.degrade": (
        [{"at": "backlog", "maxPriority": -1, "maxTokens": 5}, {"maxPriority": 3, "maxRequests": 0, "keys": None}],
        [
            {"at": "backlog", "keys": [], "maxPriority": -1, "maxTokens": 5, "maxRequests": None},
            {"at": "queue", "keys": [], "maxPriority": 3, "maxTokens": None, "maxRequests": 0},
        ],
    ),
}
GOES_WITH: dict[str, dict[str, Any]] = {"speculative.tokens": {"speculative": {"method": "ngram"}}}
"""What a field needs beside it, to have an effect."""
SECTIONS = ("scheduler", "overload")
"""Of the engine; every setting in them must be settable on the resource."""


def in_force(document: dict[str, Any]) -> dict[str, Any]:
    """The engine's settings as it reads them from the file of this service."""
    text = engine_config.engine(api.parse(document)).text
    parsed = contract.to_mapping(contract.parse(yaml.safe_load(text)))
    return {f"{section}.{key}": value for section, values in parsed.items() for key, value in values.items()}


def test_every_setting_of_the_scheduler_and_of_overload_is_on_the_resource() -> None:
    linked = {link.key for link in LINKS.values()}
    assert {entry.key for entry in contract.entries() if entry.section in SECTIONS} <= linked
    assert {"kvCache.prefixCaching", "kvCache.swapSpace"} <= linked
    assert len(linked) == len(LINKS)


def test_there_is_a_sample_for_each_linked_field() -> None:
    assert set(SAMPLES) == set(LINKS)


@pytest.mark.parametrize("path", SAMPLES)
def test_the_value_reaches_the_engine_and_nothing_else_changes(path: str) -> None:
    value, expected = SAMPLES[path]
    document = manifests.small(**GOES_WITH.get(path, {}))
    before, after = in_force(document), in_force(manifests.changed(f"spec.{path}", value, document))
    key = LINKS[path].key
    assert {name: value for name, value in after.items() if before[name] != value} == {key: expected}


@pytest.mark.parametrize("path", SAMPLES)
def test_hot_or_restart_is_what_apply_says_and_what_the_pods_do(path: str) -> None:
    before = manifests.small(**GOES_WITH.get(path, {}))
    after = manifests.changed(f"spec.{path}", SAMPLES[path][0], before)
    hot = links.is_hot(LINKS[path].key)
    told = {change.effect for change in changes.between(before, after, FACTS)}
    assert told == {changes.AT_ONCE if hot else changes.RESTART}
    old, new = api.parse(before), api.parse(after)
    assert (plan.restart_hash(old) == plan.restart_hash(new)) == hot
    assert plan.config_hash(old) != plan.config_hash(new)


def test_every_hot_setting_of_the_resource_is_in_what_is_pushed() -> None:
    document = manifests.small(access={"apiKeysSecretRef": {"name": "keys"}})
    for path, (value, _) in SAMPLES.items():
        document = manifests.changed(f"spec.{path}", value, document)
    pushed = plan.engine_document(api.parse(document))
    for link in LINKS.values():
        if link.key in contract.HOT_KEYS:
            assert link.name in pushed[link.section]
    assert json.loads(json.dumps(pushed)) == pushed


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ({"package": {"name": "smollm2-135m"}}, "small", "small"),
        ({"huggingFace": {"repo": "org/big"}}, "org/small", "org/small"),
        ({"image": {"reference": "r/m:1"}}, "small.gguf", "/models/small.gguf"),
        ({"hostPath": {"path": "/srv/big.gguf"}}, "small.gguf", "/models/small.gguf"),
        ({"hostPath": {"path": "/srv/models"}}, "small", "/models/small"),
        ({"pvc": {"claimName": "m", "path": "qwen/big"}}, "small", "/models/qwen/small"),
        ({"pvc": {"claimName": "m"}}, "draft/small.gguf", "/models/draft/small.gguf"),
        ({"pvc": {"claimName": "m", "path": "./qwen//big/."}}, "small", "/models/qwen/small"),
        ({"pvc": {"claimName": "m", "path": "./"}}, "small", "/models/small"),
    ],
)
def test_the_draft_model_is_a_name_or_lies_beside_the_model(source: Any, name: str, expected: str) -> None:
    document = manifests.changed("spec.model.source", source)
    document["spec"]["speculative"] = {"method": "draft", "draftModel": name, "tokens": 3}
    found = in_force(document)
    assert found["speculative.method"] == "draft"
    assert found["speculative.draftModel"] == expected
    assert found["speculative.tokens"] == 3


def test_names_of_keys_go_with_the_secret() -> None:
    rule = {"keys": ["batch", "night.jobs"], "maxTokens": 5}
    document = manifests.small(overload={"degrade": [rule]}, access={"apiKeysSecretRef": {"name": "keys"}})
    (written,) = in_force(document)["overload.degrade"]
    assert written["keys"] == ["batch", "night.jobs"]


@settings(max_examples=300, deadline=None)
@example(manifests.small(scheduler={"maxConcurrencySoft": 65}))
@example(manifests.small(watermarks={"queue": 0.5, "preempt": 0.4}))
@given(random_manifests.engine_settings())
def test_what_the_api_accepts_the_engine_accepts_and_what_the_engine_refuses_the_api_refuses(
    document: dict[str, Any],
) -> None:
    if contradictory(document):
        with pytest.raises(errors.ManifestError):
            api.parse(document)
    else:
        service = api.parse(document)
        text = engine_config.engine(service).text
        assert contract.parse(yaml.safe_load(text)) == engine_config.parse(service)


def contradictory(document: dict[str, Any]) -> bool:
    """Whether the engine's own parser refuses what the document says, told it without our code; or it breaks a rule
    about swap space that only the resource has, because only there the pod's memory is known."""
    spec = document["spec"]
    scheduler, marks, overload = (spec.get(name, {}) for name in ("scheduler", "watermarks", "overload"))
    swap = spec.get("kvCache", {}).get("swapSpace", "0")
    if swap in ("2Gi", "1Ki") or (scheduler.get("preemption", {}).get("mode") == "swap" and swap == "0"):
        return True
    written: dict[str, Any] = {
        "scheduler": {
            **{key: value for key, value in scheduler.items() if key != "preemption"},
            **{f"{key}Watermark": marks[key] for key in ("queue", "preempt") if key in marks},
            **({"watermarkHysteresis": marks["hysteresis"]} if "hysteresis" in marks else {}),
        },
        "overload": {"degrade": overload.get("degrade", [])},
        "server": {"apiKeysFile": "keys"} if spec.get("access") else {},
    }
    try:
        contract.parse(written)
    except contract.ConfigError:
        return True
    return False


def test_the_random_documents_are_of_both_kinds() -> None:
    """Else the property above says nothing."""
    found = {True: 0, False: 0}

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(random_manifests.engine_settings())
    def count(document: dict[str, Any]) -> None:
        found[contradictory(document)] += 1

    count()
    assert min(found.values()) >= 10, found


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.sampled_from(sorted(SAMPLES)))
def test_two_changes_do_not_disturb_each_other(first: str, second: str) -> None:
    document = manifests.small(**GOES_WITH.get(first, {}), **(GOES_WITH.get(second, {}) if second != first else {}))
    document = manifests.changed(f"spec.{first}", SAMPLES[first][0], document)
    document = manifests.changed(f"spec.{second}", SAMPLES[second][0], document)
    after = in_force(document)
    assert {path: after[LINKS[path].key] for path in (first, second)} == {
        path: SAMPLES[path][1] for path in (first, second)
    }
