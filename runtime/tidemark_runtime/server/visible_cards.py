"""Which of the cards that NVML shows are this process's own: what the variables of CUDA and of the container say.

CUDA_VISIBLE_DEVICES is a list of numbers, or of UUIDs that may be cut short; the first entry that is no card ends it,
and an empty list is no card (CUDA C Programming Guide, "CUDA Environment Variables"). Numbers are taken in the order of
the bus, which is NVML's; CUDA's own order differs only where cards of different kinds are mixed.

NVIDIA_VISIBLE_DEVICES is for the container runtime. Inside the container its numbers mean nothing any more (the cards
are numbered anew), its UUIDs do, and `none` is no card.
"""

from __future__ import annotations

from collections.abc import Mapping

CUDA, CONTAINER = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
_UUID = "GPU-"
_MIG = "MIG-"
"""Old names of a part of a card are `MIG-GPU-UUID/x/y`."""


def of(uuids: Mapping[int, str], environment: Mapping[str, str]) -> list[int]:
    """Of the cards that NVML shows, index -> UUID, those that this process may use, in its own order."""
    allowed = _of_container(uuids, environment.get(CONTAINER, "all"))
    wanted = environment.get(CUDA)
    return allowed if wanted is None else _of_cuda({index: uuids[index] for index in allowed}, wanted)


def _of_container(uuids: Mapping[int, str], wanted: str) -> list[int]:
    entries = [entry.strip() for entry in wanted.split(",")]
    if entries == ["none"]:
        return []
    named = [entry for entry in entries if entry.startswith(_UUID)]
    return [index for index, uuid in uuids.items() if not named or uuid in named]


def _of_cuda(uuids: Mapping[int, str], wanted: str) -> list[int]:
    found: list[int] = []
    for entry in wanted.split(","):
        index = _card(uuids, entry.strip())
        if index is None:
            break
        if index not in found:
            found.append(index)
    return found


def _card(uuids: Mapping[int, str], entry: str) -> int | None:
    if entry.isdigit():
        indexes = list(uuids)
        return indexes[int(entry)] if int(entry) < len(indexes) else None
    name = entry.removeprefix(_MIG).partition("/")[0]
    matches = [index for index, uuid in uuids.items() if uuid.startswith(name)] if name.startswith(_UUID) else []
    return matches[0] if len(matches) == 1 else None
