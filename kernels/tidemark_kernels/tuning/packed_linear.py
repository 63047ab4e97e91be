"""Tiles, warps and stages of products with packed weights, by the number of rows; and how inputs are split.

A row of the table is a class: within it the number of rows changes nothing but how many tiles there are, so a row of x
gives the same bits alone and beside others. Splits depend on the matrix and the class.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tidemark_kernels.jit import packed_formats as formats
from tidemark_kernels.jit import packed_linear as kernels
from tidemark_kernels.tuning import variant

NO_LIMIT = 1 << 30
PROGRAMS_WANTED = 528
"""Four for each of 132 multiprocessors (H100, H200): while some wait at their barriers, others ask for memory."""
LEAST_INPUTS_A_SPLIT = 512
"""Fewer, and filling the pipeline takes as long as running it."""
SUM_BLOCK = 512
ROWS_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One class of steps."""

    most_rows: int
    block_rows: int
    block_outputs: int
    block_inputs: int
    """Of one stage, of 4 bits; see `block_inputs`."""
    scale_first: bool
    """Weights are rounded to the dtype of x before they are multiplied, instead of sums after it."""
    most_splits: int
    num_warps: int
    num_stages: int
    basis: str


CONFIGS_16_BIT = (
    Config(
        most_rows=8, block_rows=8, block_outputs=128, block_inputs=128, scale_first=False, most_splits=16,
        num_warps=4, num_stages=4,
        basis="predicted: 8 KB of 4-bit codes a stage, 3 stages in flight, 2 to 4 programs a multiprocessor: 48 KB or "
        "more asked for where 4.8 TB/s x 0.8 us / 132 = 29 KB are needed. Instructions a weight, in the loop of "
        "sm_90: 3.1 (4 bits by 128), 4.1 (Q4_0), 4.6 (Q4_K), 6.6 (Q8_0), where an H200 has time for 3.7, 3.9, 4.0 and "
        "7.4: of its bandwidth all, 95 %, 87 % and all",
    ),
    Config(
        most_rows=16, block_rows=16, block_outputs=128, block_inputs=128, scale_first=False, most_splits=16,
        num_warps=4, num_stages=4,
        basis="predicted: as for 8 rows, with 3.5, 5.3 and 6.8 instructions a weight: sums of twice as many rows",
    ),
    Config(
        most_rows=64, block_rows=64, block_outputs=128, block_inputs=64, scale_first=True, most_splits=8,
        num_warps=8, num_stages=4,
        basis="predicted: unpacking costs 3.5 instructions a weight whatever the rows, products 128 FLOP: memory bound",
    ),
    Config(
        most_rows=256, block_rows=128, block_outputs=128, block_inputs=64, scale_first=True, most_splits=4,
        num_warps=8, num_stages=3,
        basis="predicted: 32 outputs tiles of 4096 are too few programs for 132 multiprocessors without a split",
    ),
    Config(
        most_rows=NO_LIMIT, block_rows=128, block_outputs=128, block_inputs=64, scale_first=True, most_splits=1,
        num_warps=8, num_stages=3,
        basis="predicted: 128 x 128 float32 sums are 64 registers a thread; unpacking is 1/36 cycle a weight and 128 "
        "rows, its products 1/16",
    ),
)  # fmt: skip
"""Of bfloat16 and float16 activations."""
CONFIGS_16_BIT_MMA_SYNC = (
    CONFIGS_16_BIT[0],
    # With four stages the compiler spills a register or two on sm_89.
    *(dataclasses.replace(row, num_stages=3) for row in CONFIGS_16_BIT[1:-2]),
    *(
        dataclasses.replace(
            row,
            block_outputs=64,
            num_warps=4,
            basis="predicted: half of wgmma's tile with half of its warps, because with all of it some formats spill; "
            "a weight is still unpacked for 128 rows",
        )
        for row in CONFIGS_16_BIT[-2:]
    ),
)
"""The same where products are `mma.sync` (sm_80, sm_89)."""
CONFIGS_32_BIT = (
    Config(
        most_rows=NO_LIMIT, block_rows=16, block_outputs=64, block_inputs=128, scale_first=False, most_splits=8,
        num_warps=4, num_stages=2,
        basis="predicted: products without tensor cores; for comparisons, nobody serves with it",
    ),
)  # fmt: skip


def table_of(k_run: int, is_float32: bool) -> tuple[Config, ...]:
    """`k_run`: of the packed weight, which says what it is multiplied with."""
    if is_float32:
        return CONFIGS_32_BIT
    return CONFIGS_16_BIT if k_run == 2 else CONFIGS_16_BIT_MMA_SYNC


def config(num_rows: int, k_run: int, is_float32: bool) -> Config:
    """The class of a step of so many rows."""
    table = table_of(k_run, is_float32)
    return next(row for row in table if num_rows <= row.most_rows)


def splits(chosen: Config, num_outputs: int, padded_inputs: int) -> int:
    """Programs that share the inputs of one tile: as many as fill the device at the fewest rows of the class."""
    tiles = -(-num_outputs // chosen.block_outputs)
    wanted = -(-PROGRAMS_WANTED // tiles) if tiles < PROGRAMS_WANTED else 1
    return max(1, min(chosen.most_splits, wanted, padded_inputs // LEAST_INPUTS_A_SPLIT))


def block_inputs(chosen: Config, kind: int) -> int:
    """Of one stage: with 8 bits half as many, for the same bytes, as far as a product of tiles stays long enough."""
    return chosen.block_inputs if kind == formats.INT4.value else max(64, chosen.block_inputs // 2)


def part_of(kind: int, group_size: int, num_inputs: int) -> int:
    """Inputs of one product of tiles: a whole group, or the largest part of it that has a power of two inputs."""
    piece = 64 if kind == formats.INT4.value else 32
    if group_size == num_inputs:
        return piece
    return min(piece, group_size & -group_size)


@dataclass(frozen=True, slots=True)
class Format:
    """A way to pack that checkpoints lead to."""

    name: str
    kind: int
    offset: int
    scales: int
    group: int
    """Inputs that share a scale; 0: all of them."""


_INT4, _INT8, _E4M3 = (int(each.value) for each in (formats.INT4, formats.INT8, formats.E4M3))
_NONE, _MIN, _ZERO = (int(each.value) for each in (formats.NO_OFFSET, formats.MIN, formats.ZERO))
_FLOAT, _HALF, _SUPER = (int(each.value) for each in (formats.FLOAT_SCALES, formats.HALF_SCALES, formats.SUPER_SCALES))
FORMATS = (
    Format("Q4_0", _INT4, _NONE, _HALF, 32),
    Format("Q4_1", _INT4, _MIN, _HALF, 32),
    Format("Q4_K", _INT4, _MIN, _SUPER, 32),
    Format("AWQ, GPTQ 128", _INT4, _ZERO, _HALF, 128),
    Format("AWQ, GPTQ row", _INT4, _ZERO, _HALF, 0),
    Format("Q8_0", _INT8, _NONE, _HALF, 32),
    Format("Q6_K", _INT8, _NONE, _SUPER, 16),
    Format("GPTQ 8 bits 128", _INT8, _ZERO, _HALF, 128),
    Format("fp8", _E4M3, _NONE, _FLOAT, 0),
)
"""Others (float32 scales where float16 would round them, other groups) are compiled when a checkpoint asks for them."""
_RUNS = ((4, (80, 89)), (2, (90,)))
"""Neighbouring inputs a thread holds, and where."""
_WITH_FLOAT16 = ("AWQ, GPTQ 128",)
_OF_TABLES = ("Q4_K", "Q6_K", "Q8_0")
"""What GGUF files hold embeddings in."""


def variants() -> tuple[variant.Variant, ...]:
    """Every format in every class of steps with bfloat16; one with float16, and one with float32."""
    found = []
    for run, targets in _RUNS:
        for one in FORMATS:
            found += [_linear(one, row, "bf16", run, targets) for row in table_of(run, False)]
            if one.name in _WITH_FLOAT16:
                found += [_linear(one, row, "fp16", run, targets) for row in table_of(run, False)]
            if one.name in _OF_TABLES:
                found.append(_rows(one, run, targets))
        found += [_linear(FORMATS[0], row, "fp32", run, targets) for row in table_of(run, True)]
    return (*found, _sums())


def _linear(one: Format, row: Config, dtype: str, run: int, targets: tuple[int, ...]) -> variant.Variant:
    is_split = row.most_splits > 1
    affine = "*fp32" if one.scales == _FLOAT else "*i32"
    supers = {"supers_ptr": "*i32"} if one.scales == _SUPER else {}
    sizes = ("num_rows", "num_outputs", "num_inputs", "padded_outputs", "num_pieces", "steps_a_split")
    signature = {
        "x_ptr": f"*{dtype}", "codes_ptr": "*i32", "scales_ptr": affine, **supers,
        "out_ptr": "*fp32" if is_split else f"*{dtype}",
        **dict.fromkeys((*sizes, "x_stride", "out_stride"), "i32"),
    }  # fmt: skip
    constants = {
        "bias_ptr": None, **({} if supers else {"supers_ptr": None}),
        "KIND": one.kind, "OFFSET": one.offset, "SCALES": one.scales, "GROUP": one.group,
        "PART": part_of(one.kind, one.group or 1 << 12, 1 << 12), "K_RUN": run,
        "SCALE_FIRST": row.scale_first, "PARTIAL": is_split,
        "BLOCK_ROWS": row.block_rows, "BLOCK_OUTPUTS": row.block_outputs, "BLOCK_INPUTS": block_inputs(row, one.kind),
        "STAGES": row.num_stages,
    }  # fmt: skip
    most = "any" if row.most_rows == NO_LIMIT else f"<= {row.most_rows}"
    return variant.Variant(
        name=f"packed_linear[{one.name}, {dtype}, {most} rows{', mma.sync' if run == 4 else ''}]",
        function=kernels.packed_linear_kernel,
        signature=signature,
        constants=constants,
        aligned=tuple(
            name
            for name in signature
            if name.endswith("_ptr")
            or name in ("num_outputs", "num_inputs", "padded_outputs", "x_stride", "out_stride")
        ),
        num_warps=row.num_warps,
        num_stages=row.num_stages,
        targets=targets,
        is_hot=dtype != "fp32",
        # Q6_K has a scale for every 16 inputs: beside short stages these are most of the instructions.
        wide_loads=not (one.name == "Q6_K" and row.most_rows == 64),
        tensor_cores=dtype != "fp32",
        notes={"basis": row.basis},
    )


def _rows(one: Format, run: int, targets: tuple[int, ...]) -> variant.Variant:
    affine = "*fp32" if one.scales == _FLOAT else "*i32"
    supers = {"supers_ptr": "*i32"} if one.scales == _SUPER else {}
    sizes = ("num_outputs", "num_inputs", "padded_outputs", "num_pieces")
    signature = {
        "ids_ptr": "*i64", "codes_ptr": "*i32", "scales_ptr": affine, **supers, "out_ptr": "*bf16",
        **dict.fromkeys(sizes, "i32"),
    }  # fmt: skip
    return variant.Variant(
        name=f"packed_rows[{one.name}{', mma.sync order' if run == 4 else ''}]",
        function=kernels.packed_rows_kernel,
        signature=signature,
        constants={
            **({} if supers else {"supers_ptr": None}),
            "KIND": one.kind, "OFFSET": one.offset, "SCALES": one.scales, "GROUP": one.group, "K_RUN": run,
            "BLOCK_INPUTS": ROWS_BLOCK,
        },
        aligned=tuple(name for name in signature if name != "num_pieces"),
        targets=targets,
        is_hot=False,
        wide_loads=False,
        notes={"basis": "predicted: a row of a table is a thousandth of a step's bytes"},
    )  # fmt: skip


def _sums() -> variant.Variant:
    return variant.Variant(
        name="packed_linear_sums[bf16]",
        function=kernels.sum_splits_kernel,
        signature={
            "partial_ptr": "*fp32", "out_ptr": "*bf16",
            "num_rows": "i32", "num_outputs": "i32", "splits": "i32", "out_stride": "i32",
        },
        constants={"bias_ptr": None, "BLOCK_OUTPUTS": SUM_BLOCK},
        aligned=("partial_ptr", "out_ptr", "num_outputs", "out_stride"),
        notes={"basis": "predicted: 16 bytes a thread, of partial sums that are still in L2"},
    )  # fmt: skip
