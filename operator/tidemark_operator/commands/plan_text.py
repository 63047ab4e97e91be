"""What `tidemark plan` prints, from its document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import rich.box
import rich.console
import rich.table
import rich.text

from tidemark_operator.commands import status_text
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_runtime.planning import footprint

Renderable = rich.console.RenderableType


def screen(document: Mapping[str, Any]) -> Iterator[Renderable]:
    """Heading, parts, concurrency, goals, notes, verdict."""
    yield _heading(document)
    yield _parts(document)
    yield _concurrency(document)
    if document["goals"]:
        yield _goals(document)
    yield from _notes(document)
    good = document["fits"] and not document["refusals"]
    yield rich.text.Text(document["verdict"], style="green" if good else "bold red")


def table(*columns: str) -> rich.table.Table:
    """With the first column to the left and figures to the right. Long headings have two lines: what is wider than a
    terminal is cut, and of a cut figure nothing is left."""
    made = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=column != "what")
    return made


def _heading(document: Mapping[str, Any]) -> Renderable:
    device, model = document["device"], document["model"]
    size = status_text.num_bytes(device["bytes"])
    if device["resourceName"] == plan_capacity.CPU:
        where = f"a pod of {size} on {device['count']} cores"
    elif device["count"] == 1:
        where = f"one {device['resourceName']} of {size}"
    else:
        where = f"{device['count']} {device['resourceName']} of {size} each; figures are of one"
    return rich.text.Text(f"{document['service']}: {model['name']}, {model['weights']}, on {where}", style="bold")


def _parts(document: Mapping[str, Any]) -> Renderable:
    made = table("part", "bytes", "share", "what")
    made.columns[-1].justify = "left"
    limit = document["device"]["bytes"]

    def row(name: str, size: int, what: str) -> None:
        made.add_row(name, status_text.num_bytes(size), f"{size / limit:.1%}", what)

    for part in footprint.PARTS:
        if part != "speculation" or document["partsBytes"][part]:  # few ask for guesses
            row(part, document["partsBytes"][part], _what(part, document))
    made.add_section()
    row("free", document["freeBytes"], "neither used nor reserved")
    reserved = f"what memoryUtilization {document['device']['memoryUtilization']:g} leaves"
    row("reserve", document["reserveBytes"], reserved)
    return made


_GUESSES = {
    "none": "no guesses",
    "ngram": "logits of guesses; on a processor an index of each text",
    "draft": "logits of guesses; weights, pages and step of a draft model",
}


def _what(part: str, document: Mapping[str, Any]) -> str:
    kv = document["kv"]
    room = f"room for {kv['tokens']:,} tokens in {kv['pages']:,} pages of {status_text.num_bytes(kv['pageBytes'])}"
    weights: str = document["model"]["weights"]
    decided = f", decided by {kv['decidedBy']}" if kv["decidedBy"] else ""
    return {
        "weights": weights,
        "kv": f"{kv['dtype']}, {room}{decided}" if kv["pages"] else f"{kv['dtype']}: one page, and not even that fits",
        "activations": "peak of the largest step",
        "graphs": _graphs(document),
        "workspace": "tables kept between steps, and what the heap keeps beside tensors",
        "overhead": "framework, interpreter, HTTP process",
        "swap": "pages of preempted requests" if document["partsBytes"]["swap"] else "no swap space in this memory",
        "speculation": _GUESSES[document["speculation"]["method"]],
    }[part]


def _graphs(document: Mapping[str, Any]) -> str:
    if document["partsBytes"]["graphs"]:
        return "recorded steps"
    on_processor = document["device"]["resourceName"] == plan_capacity.CPU
    return "none on a processor" if on_processor else "none: every step is launched there"


def _concurrency(document: Mapping[str, Any]) -> Renderable:
    made = table(
        "prompt+output", "pages\neach", "memory\nholds", "places", "at once", "before\nthe line", "rule of\nthumb"
    )
    for row in document["concurrency"]:
        most = row["ruleOfThumbMost"]
        rule = f"{row['ruleOfThumb']}" if most == row["ruleOfThumb"] else f"{row['ruleOfThumb']} to {most}"
        at_once = "too long" if row["tooLong"] else str(row["requests"])
        cells = (f"{row['pages']:,.0f}", str(row["byMemory"]), str(row["byPlaces"]), at_once)
        made.add_row(row["length"], *cells, str(row["beforeLine"]), rule)
    return made


def _goals(document: Mapping[str, Any]) -> Renderable:
    made = table("users", "of", "KV dtype", "KV", "memory\nneeded", "fits", "rule of\nthumb wants")
    for goal in document["goals"]:
        for index, need in enumerate(goal["needs"]):
            made.add_row(
                *((str(goal["users"]), goal["length"]) if index == 0 else ("", "")),
                need["kvDtype"],
                status_text.num_bytes(need["kvBytes"]),
                status_text.num_bytes(need["deviceBytes"]),
                "yes" if need["fits"] else "no",
                status_text.num_bytes(goal["ruleOfThumbBytes"]) if index == 0 else "",
            )
    return made


def _notes(document: Mapping[str, Any]) -> Iterator[Renderable]:
    rows: Sequence[Mapping[str, Any]] = document["concurrency"]
    if rows:
        yield rich.text.Text(f"Rule of thumb, for {rows[-1]['length']}: {rows[-1]['ruleVerdict']}")
    if document["undivided"]:
        yield rich.text.Text(f"Not divided among the devices: {'; '.join(document['undivided'])}.")
    for sentence in document["refusals"]:
        yield rich.text.Text(f"Beside the memory: {sentence}", style="bold red")
    for sentence in document["assumptions"]:
        yield rich.text.Text(f"Assumed: {sentence}", style="dim")
