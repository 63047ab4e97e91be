"""What `tidemark profile` prints, from its document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import rich.text

from tidemark_operator.commands import plan_text, status_text

_MOST_CHANGES = 4


def screen(document: Mapping[str, Any]) -> Iterator[plan_text.Renderable]:
    """Heading, parts planned and measured, load, bottleneck, changes."""
    model, worker = document["model"], document["worker"]
    where = f"{worker.get('kind', '?')} on {worker.get('device', '?')}, {worker.get('threads', '?')} threads"
    yield rich.text.Text(f"{model['name']} ({model['source']}), {model['state']}: {where}", style="bold")
    yield _parts(document)
    yield rich.text.Text(_slab(document["kv"]))
    yield rich.text.Text(_load(document["load"]))
    for part, ratio in document["misses"].items():
        text = f"{part}: {ratio:.0%} of the plan was measured, more than the tolerance apart"
        yield rich.text.Text(text, style="yellow")
    yield rich.text.Text(f"Bottleneck: {document['bottleneck']['because']}", style="bold")
    changes = document["changes"]
    for index, change in enumerate(changes[:_MOST_CHANGES]):
        yield rich.text.Text(f"{'Would buy most' if index == 0 else 'then'}: {change['setting']} {change['what']}")
    if not changes:
        yield rich.text.Text("No setting that this look knows of would buy more.")


def _parts(document: Mapping[str, Any]) -> plan_text.Renderable:
    made = plan_text.table("part", "planned", "measured", "measured\n/ planned", "share of\nthe limit")
    limit = document["limitBytes"]
    for row in document["parts"]:
        planned, measured = row["plannedBytes"], row["measuredBytes"]
        # Of the workspace only the tables are measured, and the plan holds room for the heap, too.
        compared = planned and measured is not None and row["part"] != "workspace"
        ratio = f"{measured / planned:.1%}" if compared else ""
        share = f"{(measured if measured is not None else planned) / limit:.1%}" if limit else ""
        seen = "not measured" if measured is None else status_text.num_bytes(measured)
        made.add_row(row["part"], "" if planned is None else status_text.num_bytes(planned), seen, ratio, share)
    if document["freeBytes"] is not None:
        made.add_section()
        made.add_row(
            "free", "", status_text.num_bytes(document["freeBytes"]), "", f"{document['freeBytes'] / limit:.1%}"
        )
    return made


def _slab(kv: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{dtype} {status_text.num_bytes(size)}" for dtype, size in kv["bytesByDtype"].items())
    free = kv["pages"] - kv["pagesUsed"] - kv["pagesCached"]
    return (
        f"Slab: {sizes}; {kv['tokens']:,} tokens in {kv['pages']:,} pages: {kv['pagesUsed']:,} used, "
        f"{kv['pagesCached']:,} cached, {free:,} free."
    )


def _load(load: Mapping[str, Any]) -> str:
    batch, step = load["meanBatch"], load["meanStepSeconds"]
    steps = "no step" if step is None else f"steps of {step * 1e3:.0f} ms with {batch or 0:.1f} sequences on average"
    refused = sum(load["rejectedByReason"].values())
    return (
        f"Last {load['seconds']:.0f} s: {steps}, {load['generatedTokens']:,.0f} tokens generated, mean wait "
        f"{load['meanWaitSeconds']:.2f} s, {load['preemptions']:.0f} preempted, {refused:.0f} refused. Now "
        f"{load['running']} of {load['places']} places taken, {load['waiting']} waiting."
    )
