"""What the models refuse the API server refuses, and what they take it takes: the same tables through both."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bad_manifests
import crd_cases
import pytest

from tidemark_operator import api, errors

if TYPE_CHECKING:
    from bed.cluster import Cluster


BAD = [crd_cases.made(path, value) for path, value in crd_cases.bad()]
IDS = [f"{path}-{number}" for number, (path, _) in enumerate(crd_cases.bad())]
GOOD = [crd_cases.made(path, value) for path, value in crd_cases.GOOD]
GOOD_IDS = [f"{path}-{number}" for number, (path, _) in enumerate(crd_cases.GOOD)]
EXCEPTIONS = {
    number
    for number, (change, value, *_) in enumerate(bad_manifests.BAD)
    if (change, repr(value)) in crd_cases.NOT_REFUSED
}


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Cluster:
    crd_cases.install(api_cluster)
    return api_cluster


@pytest.fixture(scope="module")
def refused(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return crd_cases.refusals(cluster, BAD, tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="module")
def refused_of_good(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return crd_cases.refusals(cluster, GOOD, tmp_path_factory.mktemp("good"))


def by_models(document: dict[str, Any]) -> str:
    """What the models say against it; empty where they take it."""
    try:
        api.parse(document)
    except errors.ManifestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("number", range(len(BAD)), ids=IDS)
def test_what_the_models_refuse_the_api_server_refuses(refused: dict[int, str], number: int) -> None:
    assert by_models(BAD[number])
    assert (number in refused) == (number not in EXCEPTIONS), BAD[number]


def test_the_exceptions_are_exactly_those_with_a_reason(refused: dict[int, str]) -> None:
    assert set(range(len(BAD))) - set(refused) == EXCEPTIONS
    assert len(EXCEPTIONS) == len(crd_cases.NOT_REFUSED)


def test_no_rule_fails_instead_of_judging(refused: dict[int, str]) -> None:
    """A rule that cannot be computed refuses as well, but tells the user nothing."""
    failed = {IDS[number]: text for number, text in refused.items() if "evaluating rule" in text}
    assert failed == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "spec.watermarks.queue",
            "spec.watermarks.queue: Invalid value: got 0.95, expected at most watermarks.preempt",
        ),
        (
            "spec.kvCache.swapSpace",
            "spec.kvCache.swapSpace: Invalid value: got 2Gi, expected less than hardware.memory, 2Gi",
        ),
        (
            "spec.overload.degrade",
            "spec.overload.degrade[0]: Invalid value: got neither, expected maxTokens or maxRequests",
        ),
        (
            "spec.overload.degrade",
            "spec.overload.degrade: Invalid value: got names in keys, expected none, because access.apiKeysSecretRef",
        ),
        ("spec.speculative.method", "spec.speculative.draftModel: Invalid value: got nothing, expected a model"),
        ("metadata.name", f"metadata.name: got {'a' * 41}, expected at most 40 characters"),
        ("spec.model.source.hostPath", 'got ["hostPath", "package"], expected exactly one of pvc, hostPath'),
    ],
)
def test_a_message_has_the_value_and_what_was_expected(refused: dict[int, str], change: str, said: str) -> None:
    told = [refused[number] for number, row in enumerate(bad_manifests.BAD) if row[0] == change and number in refused]
    assert [text for text in told if said in text], told


@pytest.mark.parametrize("number", range(len(GOOD)), ids=GOOD_IDS)
def test_what_is_right_both_take(refused_of_good: dict[int, str], number: int) -> None:
    assert by_models(GOOD[number]) == ""
    assert refused_of_good.get(number) is None


@pytest.mark.slow
def test_odd_values_anywhere_are_judged_alike(cluster: Cluster, tmp_path: Path) -> None:
    documents = list(crd_cases.changed_at_random(seed=4, count=300))
    refused = crd_cases.refusals(cluster, documents, tmp_path)
    differing = [
        (document["spec"], by_models(document), refused.get(number, ""))
        for number, document in enumerate(documents)
        if bool(by_models(document)) != (number in refused)
    ]
    assert differing == []
    assert 10 < len(refused) < len(documents) - 10


@pytest.mark.parametrize("arguments", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_b059_a_null_means_the_default(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    """Every field that may be absent, as null at once: it is stored, and read as if it were not there."""
    document = crd_cases.made("metadata.name", f"nulls{len(arguments)}")
    plain = api.parse(document).spec
    with_null = copy.deepcopy(document)
    for path, always in crd_cases.optional_paths():
        *parents, last = path.split(".")
        if (always or not arguments) and not crd_cases.is_set(document, path):
            crd_cases.section(with_null, parents)[last] = None
    name = document["metadata"]["name"]
    cluster.kubectl("apply", *arguments, "-f", "-", stdin=json.dumps(with_null))
    try:
        stored = cluster.get("tide", name, crd_cases.NAMESPACE)
        assert stored is not None
        assert api.parse(stored).spec == plain
    finally:
        cluster.kubectl("delete", "tide", name, "-n", crd_cases.NAMESPACE)


@pytest.mark.parametrize("path", [path for path, always in crd_cases.optional_paths() if not always])
def test_a_null_that_server_side_apply_refuses_is_named(cluster: Cluster, path: str) -> None:
    """An API server cannot check a null against an enum, nor read one as replicas; otherwise it drops it first."""
    document = json.dumps(crd_cases.made(path, None))
    apply = [cluster.kubectl_program, "apply", "--dry-run=server", "-f", "-"]
    assert cluster.run(apply, stdin=document, check=False).returncode == 0
    refused = cluster.run([*apply, "--server-side"], stdin=document, check=False)
    assert f"{path}: " in refused.stderr
