"""Triton code and nothing else: kernels and the functions they are made of. `device` launches them.

A kernel's file begins with what it computes, the layout it reads, and the bytes it must move. The same source runs on a
device, is compiled ahead of time for devices that are not here (`tuning` lists every form), and runs under Triton's
interpreter (`TRITON_INTERPRET=1` before the first import), where tests compare it with `reference`.
"""

from __future__ import annotations

from triton import knobs

# Said, so that Triton does not choose (and warn): a product and a sum are rounded once, as in the C kernels.
knobs.language.default_fp_fusion = True
