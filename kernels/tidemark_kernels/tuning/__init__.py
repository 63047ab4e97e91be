"""In which form a kernel is launched: tile sizes, warps and stages, as data, each with how it was found out.

`<family>.py` has a table and a function that looks up a row for dtypes and shapes, and `variants()`: every form that a
launch can ask for, to be compiled ahead of time and read (registers, spills, loads, tensor cores).
"""
