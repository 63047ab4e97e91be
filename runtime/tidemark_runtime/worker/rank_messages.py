"""What the first rank of a model tells the others, and what they answer. Plain data, as msgpack.

Tokens and activations do not travel here, but by the group (`process_group`): what is here is needed once a step, or
once a start.
"""

from __future__ import annotations

import msgspec

from tidemark_runtime.contract import status
from tidemark_runtime.core import step_plan


class Agreed(msgspec.Struct, frozen=True, tag=True):
    """The least of all ranks' `Sized`."""

    slab_pages: int
    host_pages: int


class Meet(msgspec.Struct, frozen=True, tag=True):
    """Leave whatever group there is, and meet all ranks in a new one."""

    generation: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """A step has come to nothing on some device: leave the group, and compute nothing before the next `Meet`."""


class Execute(msgspec.Struct, frozen=True, tag=True):
    """The next step. No answer, but on a processor where the plan copies pages."""

    plan: step_plan.StepPlan


class Tell(msgspec.Struct, frozen=True, tag=True):
    """On a processor, once the steps of the start have run: which paths they ran on."""


class Close(msgspec.Struct, frozen=True, tag=True):
    """Nothing follows."""


ToRank = Agreed | Meet | Leave | Execute | Tell | Close


class Here(msgspec.Struct, frozen=True, tag=True):
    """The process has begun and will answer; on devices, whose ranks meet before they load."""

    rank: int


class Sized(msgspec.Struct, frozen=True, tag=True):
    """Weights are loaded; pages there is room for."""

    rank: int
    slab_pages: int
    host_pages: int


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """Ready to meet."""

    rank: int
    memory_bytes: dict[str, int]
    planned_bytes: dict[str, int]
    page_bytes_by_dtype: dict[str, int]
    kernel_paths: tuple[status.KernelPath, ...]
    """Those known so far: on a processor they are counted in steps (`Told`)."""


class Told(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Tell`."""

    rank: int
    kernel_paths: tuple[status.KernelPath, ...]


class Met(msgspec.Struct, frozen=True, tag=True):
    """In the group of that generation."""

    rank: int
    generation: int


class Copied(msgspec.Struct, frozen=True, tag=True):
    """A step that copies pages has been computed."""

    rank: int
    step: int


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """A step has come to nothing here; the rank has left the group and goes on once all meet again."""

    rank: int
    step: int
    message: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The last words of a rank."""

    rank: int
    kind: str
    """Name of the exception class."""
    message: str


FromRank = Here | Sized | Loaded | Told | Met | Copied | OutOfMemory | Failed
