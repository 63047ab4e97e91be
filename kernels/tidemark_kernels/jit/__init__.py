"""Triton code and nothing else: kernels and the functions they are made of. `device` launches them.

A kernel's file begins with what it computes, the layout it reads, and the bytes it must move. The same source runs on a
device, is compiled ahead of time for devices that are not here (`tuning` lists every form), and runs under Triton's
interpreter (`TRITON_INTERPRET=1` before the first import), where tests compare it with `reference`.
"""

from __future__ import annotations

import os

# A product and a sum are rounded once, as in the C kernels. Triton has this one way of saying so for all launches;
# unsaid, it warns, since its next version chooses otherwise.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
