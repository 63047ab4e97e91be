"""Manifests that are valid whatever is drawn, for properties that hold for every service."""

from __future__ import annotations

from typing import Any

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
        "scheduler": st.fixed_dictionaries({"maxNumSeqs": st.integers(1, 64)}),
        "overload": st.fixed_dictionaries({"maxQueuedRequests": st.integers(0, 10_000)}),
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
