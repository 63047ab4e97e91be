"""What guesses take, with a draft model whose size is known, and what is said of one whose size is not."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator import api
from tidemark_operator.plan import shapes
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import capacity, page_layout


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft model of a service, as far as it is known; a service without one has none of both."""

    shape: capacity.ModelShape | None = None
    unread: str = ""
    """Why its size is not known, behind "The draft model NAME"."""


def by_name(service: api.InferenceService) -> Draft:
    """Of a service whose volumes nobody looks into."""
    name = service.spec.speculative.draft_model
    if name is None:
        return Draft()
    is_name = service.spec.model.source.package is not None  # else it is a file of that name
    shape = shapes.named(name, service) if is_name else None
    return Draft(shape, "" if shape else "is not read by the operator, nor known by its name")


def sentences(service: api.InferenceService, draft: Draft) -> tuple[str, ...]:
    """What the sum says of it: nothing where it counts all of it."""
    if not draft.unread:
        return ()
    return (
        f"The draft model {service.spec.speculative.draft_model} {draft.unread}. Of guesses only their logits are "
        "counted: the draft model's weights, pages and step come on top. The engine does the whole sum.",
    )


def speculation(
    service: api.InferenceService, parsed: settings.EngineConfig, draft: Draft, kv_dtype: str
) -> capacity.Speculation:
    """Of one device, or of a processor's pod, in whose memory the index of each text lies."""
    asked, on_device = parsed.speculative, service.spec.hardware.resource_name != shapes.CPU
    if asked.method == "none":
        return capacity.Speculation()
    if draft.shape is None:
        return capacity.guessing(asked.tokens, has_index=asked.method == "ngram" and not on_device)
    pages = page_layout.PageLayout(capacity.kv_shape(draft.shape), parsed.kv_cache.block_size, kv_dtype)
    return capacity.guessing(
        asked.tokens, draft=draft.shape, draft_page_bytes=pages.page_bytes, item_bytes=2 if on_device else 4
    )
