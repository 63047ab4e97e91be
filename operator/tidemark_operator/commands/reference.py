"""Prints the reference page of the resource: `python -m tidemark_operator.commands.reference`."""

from __future__ import annotations

import sys

from tidemark_operator import effects
from tidemark_operator.api import reference


def page() -> str:
    """The text of `docs/reference/inferenceservice.md`."""
    return reference.render(effects.no_effect_yet())


if __name__ == "__main__":
    sys.stdout.write(page())
