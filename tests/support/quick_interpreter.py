"""Triton's interpreter without the work that it repeats at every call of a jitted helper.

It replaces the functions of `triton.language` when a kernel begins, and again whenever one jitted function calls
another: some milliseconds each time, most of what a kernel of small functions takes.
Once a launch and module is enough.
"""

from __future__ import annotations

from typing import Any

import pytest
from triton.runtime import interpreter


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    replaced: set[str] = set()

    def patch_once(function: Any) -> Any:
        # Triton's own functions name `core`, ours `tl`.
        modules = {name for name in ("tl", "core") if name in function.__globals__}
        if modules and modules <= replaced:
            return None
        replaced.update(modules)
        return patch(function)

    def launch_afresh(self: Any, *args: Any, **kwargs: Any) -> None:
        replaced.clear()
        launch(self, *args, **kwargs)

    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch_afresh)
