"""What can be proven of device kernels where no device is: by compiling them, and by counting what they touch.

- `discovery` finds every compiled form (`tuning/*.py`, `variants()`);
- `compiling` compiles one form for one target, without a device;
- `disassembly` makes text of many binaries in one run of the disassembler;
- `machine_code` reads the instructions: widths of loads, matrix instructions, spills;
- `occupancy` says how many programs a multiprocessor holds at a time;
- `readings` puts these together, in processes of their own and on all cores;
- `table` keeps the readings, says what moved, and which rule a kernel breaks;
- `bytes_moved` counts the bytes that a program loads and stores, under Triton's interpreter.

`scripts/kernel_code.py` and `benchmarks/kernel_bytes.py` are the doors. Nothing that serves
requests imports this package.
"""
