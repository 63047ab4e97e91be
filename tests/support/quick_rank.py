"""The process of a rank that is not the first, as the engine starts it, without what takes Triton's interpreter long.

`python quick_rank.py`: no self-test (it has tests of its own), and the interpreter as `quick_interpreter` has it.
`python quick_rank.py killed`: killed in the middle of loading.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import quick_interpreter

from tidemark_runtime.engine import follower_process
from tidemark_runtime.worker import device_loading, device_selftest


def killed(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    patch = pytest.MonkeyPatch()
    quick_interpreter.install(patch)
    patch.setattr(device_selftest, "run", lambda subject: device_selftest.untested(subject.choices))
    if "killed" in sys.argv:
        patch.setattr(device_loading.model_loading, "load", killed)
    follower_process.main()


if __name__ == "__main__":
    main()
