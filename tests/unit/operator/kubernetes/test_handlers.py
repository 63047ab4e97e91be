from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import kopf
from kopf._core.intents import registries  # to see that nothing but `on.event` is registered

from tidemark_operator import handlers, names, settings
from tidemark_operator.cluster.kubernetes import kinds


class Fed:
    """What handlers need of a cluster."""

    def __init__(self) -> None:
        self.fed: list[tuple[Any, Any]] = []

    def feed(self, change: str | None, document: dict[str, Any]) -> None:
        self.fed.append((change, document))


def registry(fed: Any = None) -> registries.OperatorRegistry:
    return handlers._registry(fed or Fed(), None)  # type: ignore[arg-type]


def test_each_watched_kind_has_one_handler_and_there_is_no_other_kind_of_handler() -> None:
    found = registry()
    watching = found._watching.get_all_handlers()
    assert sorted(
        (h.selector.group, h.selector.version, h.selector.any_name) for h in watching if h.selector
    ) == sorted((kind.group, kind.version, kind.plural) for kind in kinds.WATCHED)
    for other in (found._changing, found._spawning, found._indexing, found._webhooks):
        assert list(other.get_all_handlers()) == []


async def test_a_handler_hands_on_what_it_is_told_and_returns_nothing() -> None:
    fed = Fed()
    handler = registry(fed)._watching.get_all_handlers()[0]
    result = await handler.fn(event={"type": "DELETED", "object": {"kind": "Pod"}}, patch={}, body={})  # type: ignore[misc]
    assert result is None  # kopf would write anything else into the status
    assert fed.fed == [("DELETED", {"kind": "Pod"})]


def test_kopf_is_kept_from_writing_and_from_looking_around() -> None:
    made = handlers._settings(settings.KubernetesSettings())
    assert made.posting.enabled is False
    assert made.scanning.disabled is True
    assert made.persistence.finalizer.startswith(f"kopf.{names.GROUP}/")
    body, patch = kopf.Body({"metadata": {}, "spec": {"replicas": 1}}), kopf.Patch()
    stores = made.persistence.diffbase_storage
    stores.store(body=body, patch=patch, essence=stores.build(body=body))
    progress = made.persistence.progress_storage
    progress.store(key=cast(Any, "changed"), record=cast(Any, {}), body=body, patch=patch)
    progress.touch(body=body, patch=patch, value="x")
    progress.purge(key=cast(Any, "changed"), body=body, patch=patch)
    assert not patch
    assert stores.fetch(body=body) is None
    assert progress.fetch(key=cast(Any, "changed"), body=body) is None


def test_watches_have_timeouts_and_select_our_label() -> None:
    ours = settings.KubernetesSettings()
    made = handlers._settings(ours).watching
    assert made.server_timeout == ours.watch_seconds < ours.watch_age_limit_seconds / 2
    assert made.client_timeout is not None
    assert made.client_timeout > ours.watch_seconds
    assert made.connect_timeout == ours.connect_seconds
    selectors = {selector.any_name: value for selector, value in made.label_selectors.items()}
    assert selectors == {kind.plural: names.SERVICE_LABEL for kind in kinds.WATCHED if kind.name != names.KIND}


def test_requests_are_tried_without_end_and_ever_slower() -> None:
    backoffs = handlers._Backoffs()
    assert list(itertools.islice(backoffs, 6)) == [0.5, 1, 2, 4, 8, 8]
    assert not hasattr(backoffs, "__len__")  # kopf counts tries where it can


async def test_kopf_may_end_its_own_tasks_only() -> None:
    from kopf._cogs.aiokits import aiotasks

    async def ours() -> None:
        await asyncio.sleep(0)

    mine = asyncio.create_task(ours())
    kopfs = asyncio.create_task(aiotasks.all_tasks())
    ignored = handlers._NotOfKopf()
    assert mine in ignored
    assert kopfs not in ignored
    await asyncio.gather(mine, kopfs)
