"""Manifests that are valid whatever is drawn, for properties that hold for every service."""

from __future__ import annotations

from typing import Any

import manifests as manifests_
from hypothesis import strategies as st

from tidemark_operator import names

_LABEL_KEYS = st.from_regex(r"\A[a-z]([a-z0-9]{0,8}[a-z0-9])?(\.example\.com/[a-z]{1,5})?\Z")
_LABEL_VALUES = st.sampled_from(["", "true", "on", "0123", "1e3", "null", "a.b-c_D", "0x1f", "n"])
_OBJECT_NAMES = st.from_regex(r"\A[a-z]([-a-z0-9]{0,20}[a-z0-9])?\Z")
_LABELS = st.dictionaries(_LABEL_KEYS, _LABEL_VALUES, max_size=3)
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\x00"), max_size=40)
_SELECTORS = st.fixed_dictionaries({}, optional={"matchLabels": _LABELS})
_PEERS = st.one_of(
    st.fixed_dictionaries({"namespaceSelector": _SELECTORS}, optional={"podSelector": _SELECTORS}),
    st.fixed_dictionaries({"podSelector": _SELECTORS}),
    st.fixed_dictionaries({"ipBlock": st.fixed_dictionaries({"cidr": st.just("10.0.0.0/8")})}),
)
_SOURCES = st.one_of(
    st.just({"package": {"name": "smollm2-135m"}}),
    st.just({"pvc": {"claimName": "models", "path": "a/b"}}),
    st.just({"hostPath": {"path": "/srv/models/a.gguf"}}),
    st.just({"hostPath": {"path": "/srv/models"}}),
    st.just({"image": {"reference": "registry.example.com/model:1"}}),
)
_ENVIRONMENT = st.lists(
    st.fixed_dictionaries(
        {"name": st.from_regex(r"\A[A-Z][A-Z0-9_]{0,10}\Z")},
        optional={"value": _TEXT},
    ),
    unique_by=lambda item: str(item["name"]),
    max_size=4,
)
_TOLERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"key": _LABEL_KEYS, "value": _LABEL_VALUES, "effect": st.just("NoSchedule")}),
        st.fixed_dictionaries({"operator": st.just("Exists")}),
    ),
    max_size=3,
)
_HARDWARE = st.one_of(
    st.fixed_dictionaries(
        {"resourceName": st.just("cpu"), "count": st.integers(1, 64)},
        optional={"memory": st.sampled_from(["2Gi", "1024Mi", "4G"])},
    ),
    st.fixed_dictionaries(
        {"resourceName": st.sampled_from(["nvidia.com/gpu", "huawei.com/Ascend910"])},
        optional={"nodeSelector": _LABELS, "tolerations": _TOLERATIONS, "runtimeClassName": _OBJECT_NAMES},
    ),
)
_ACCESS = st.fixed_dictionaries(
    {},
    optional={
        "apiKeysSecretRef": st.fixed_dictionaries({"name": _OBJECT_NAMES}),
        "tlsSecretRef": st.fixed_dictionaries({"name": _OBJECT_NAMES}),
        "allowFrom": st.lists(_PEERS, max_size=3),
    },
)
_POD_TEMPLATE = st.fixed_dictionaries(
    {},
    optional={
        "env": _ENVIRONMENT,
        "labels": _LABELS,
        "annotations": st.dictionaries(_LABEL_KEYS, _TEXT, max_size=2),
        "serviceAccountName": _OBJECT_NAMES,
        "imagePullSecrets": st.lists(st.fixed_dictionaries({"name": _OBJECT_NAMES}), max_size=2),
    },
)
_ROLLOUT = st.fixed_dictionaries(
    {"drainSeconds": st.integers(0, 300), "progressDeadlineSeconds": st.integers(301, 900)},
    optional={"strategy": st.sampled_from(["auto", "surge", "replace"])},
)
_SCALE = st.one_of(
    st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 5)}),
    st.fixed_dictionaries({"autoscaling": st.fixed_dictionaries({"min": st.integers(1, 3), "max": st.integers(3, 6)})}),
)
_REST = st.fixed_dictionaries(
    {"hardware": _HARDWARE},
    optional={
        "access": _ACCESS,
        "podTemplate": _POD_TEMPLATE,
        "rollout": _ROLLOUT,
        "suspend": st.booleans(),
        "scheduler": st.fixed_dictionaries(
            {"maxNumSeqs": st.integers(1, 64)},
            optional={
                "longRequestShare": st.floats(0, 1),
                "fairness": st.sampled_from(["none", "apiKey"]),
                "targetStepSeconds": st.floats(0.001, 60),
            },
        ),
        "watermarks": st.fixed_dictionaries({"queue": st.floats(0.05, 0.5), "preempt": st.floats(0.5, 1)}),
        "overload": st.fixed_dictionaries(
            {"maxQueuedRequests": st.integers(0, 10_000)},
            optional={"degrade": st.lists(st.just({"maxPriority": 0, "maxRequests": 3}), max_size=2)},
        ),
        "kvCache": st.fixed_dictionaries({"swapSpace": st.sampled_from(["0", "1Mi", "0.5Gi"])}),
    },
)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """A whole document, as the API server gives it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": draw(st.from_regex(r"\A[a-z]([-a-z0-9]{0,38}[a-z0-9])?\Z")),
            "namespace": "team-a",
            "uid": "0f0f-11",
            "generation": 1,
        },
        "spec": {"model": {"source": draw(_SOURCES)}, **draw(_SCALE), **draw(_REST)},
    }


_SHARES = st.sampled_from([0.0, 0.04, 0.05, 0.3, 0.7, 0.9, 1.0]) | st.floats(0, 1)
_COUNTS = st.sampled_from([1, 2, 63, 64, 65, 512, 513, 4096]) | st.integers(1, 4096)
_KEY_NAMES = st.from_regex(r"\A[A-Za-z0-9][-A-Za-z0-9._]{0,62}\Z")
_DEGRADE_RULES = st.fixed_dictionaries(
    {},
    optional={
        "at": st.sampled_from(["queue", "preempt", "backlog"]),
        "keys": st.lists(_KEY_NAMES, max_size=3, unique=True),
        "maxPriority": st.integers(-100, 100),
        "maxTokens": st.integers(1, 10**9),
        "maxRequests": st.integers(0, 10**9),
    },
)
_SCHEDULERS = st.fixed_dictionaries(
    {},
    optional={
        "maxNumSeqs": _COUNTS,
        "maxNumBatchedTokens": _COUNTS | st.integers(1, 1_048_576),
        "maxConcurrencySoft": _COUNTS,
        "longRequestTokens": st.integers(1, 10**9),
        "longRequestShare": _SHARES,
        "agingSeconds": st.floats(0, 1e9),
        "fairness": st.sampled_from(["none", "apiKey"]),
        "preemption": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(["auto", "swap", "recompute"]),
                "maxPerRequest": st.integers(0, 10**9),
            },
        ),
        "targetStepSeconds": st.floats(0.001, 60),
    },
)
_ENGINE_SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "scheduler": _SCHEDULERS,
        "watermarks": st.fixed_dictionaries({}, optional={"queue": _SHARES, "preempt": _SHARES, "hysteresis": _SHARES}),
        "overload": st.fixed_dictionaries(
            {},
            optional={
                "maxQueuedRequests": st.integers(0, 10**9),
                "maxQueuedTokens": st.integers(1, 2**62),
                "maxQueueSeconds": st.floats(0.001, 1e9),
                "retryShare": _SHARES,
                "degrade": st.lists(_DEGRADE_RULES, max_size=2),
            },
        ),
        "kvCache": st.fixed_dictionaries(
            {},
            optional={
                "prefixCaching": st.booleans(),
                "swapSpace": st.sampled_from(["0", "1Ki", "1Mi", "1.5Gi", "2e9", "2Gi"]),
            },
        ),
        "access": st.just({"apiKeysSecretRef": {"name": "keys"}}),
    },
)


@st.composite
def engine_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Each value of the scheduler and of overload is right by itself; together they may contradict each other."""
    return manifests_.small(**draw(_ENGINE_SECTIONS))
