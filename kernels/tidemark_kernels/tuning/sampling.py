"""Blocks of the vocabulary for sampling, by its size, and every compiled form."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_kernels.jit import sampling, sampling_counts, sampling_logprobs
from tidemark_kernels.tuning import variant


@dataclass(frozen=True, slots=True)
class Form:
    max_vocab: int
    """Largest vocabulary of this row of the table."""
    block: int
    """Logits of one program of the first launch."""
    tile: int
    """Logits, or candidates, that a program of the second launch takes at a time; divides `block`."""
    group: int
    """Logits of which the largest is kept, for top-k and the most likely ones; divides `block`."""
    capacity: int
    """Places for the candidates of a filtered row: 8 bytes each. More candidates: the row is read at every question."""
    num_warps: int
    basis: str

    def num_blocks(self, vocab_size: int) -> int:
        return -(-vocab_size // self.block)

    def num_groups(self, vocab_size: int) -> int:
        return -(-vocab_size // self.group)


FORMS = (
    Form(64, 16, 16, 4, 8, 1, "predicted: models of tests; small enough that every path has more than one block"),
    Form(2048, 512, 256, 16, 256, 4, "predicted: models of tests and bytes as tokens"),
    Form(
        1 << 20,
        4096,
        2048,
        64,
        4096,
        8,
        "predicted: 16 registers a thread hold a block, 8 a tile (4096 spilled on sm_80); 131,072 logits make 32 "
        "programs a row, so that one row alone reads with 32 multiprocessors; candidates stay in the first-level "
        "cache (32 KiB) while they are bisected",
    ),
)
MAX_VOCAB = FORMS[-1].max_vocab
COUNT_BLOCK = 512
COUNT_SPLITS = 8
"""Predicted: 131,072 known tokens are 32 turns of each program, all atomics of one row go to its own 512 KiB."""
MAX_TOP = 20


def form(vocab_size: int) -> Form:
    return next(each for each in FORMS if vocab_size <= each.max_vocab)


def power_of_two(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


_VOCABULARY = 151_936
"""Qwen's: the one that forms are compiled for; only the two powers of two depend on it."""
_INTS = ("vocab_size", "num_blocks", "num_groups", "logits_stride", "table_stride")


def variants() -> tuple[variant.Variant, ...]:
    found = [_count()]
    for samples in (False, True):
        for adjusts in (False, True):
            found += [_scan(samples, adjusts, logprobs) for logprobs in (False, True)]
    return (*found, _choose(False), _choose(True), _logprobs())


def _label(**flags: bool) -> str:
    return ", ".join(name for name, is_on in flags.items() if is_on) or "greedy"


def _scan(samples: bool, adjusts: bool, logprobs: bool) -> variant.Variant:
    chosen = form(_VOCABULARY)
    floats = ("best", "tempered", "plain", "groups")
    signature = {
        "logits": "*fp32",
        "words": "*i32",
        "slots": "*i64",
        "table": "*i32",
        "bias_values": "*fp32",
        "best": "*fp32",
        "index": "*i32",
        "tempered": "*fp32",
        "plain": "*fp32",
        "groups": "*fp32",
        **dict.fromkeys(("num_rows", "vocab_size", "num_blocks", "num_groups"), "i32"),
        **dict.fromkeys(("logits_stride", "table_stride", "bias_stride"), "i32"),
    }
    return variant.Variant(
        name=f"sampling scan[{_label(samples=samples, adjusts=adjusts, logprobs=logprobs)}]",
        function=sampling.scan,
        signature=signature,
        constants={
            "BLOCK": chosen.block,
            "GROUP": chosen.group,
            "SAMPLES": samples,
            "ADJUSTS": adjusts,
            "LOGPROBS": logprobs,
        },
        aligned=("logits", "words", "table", "bias_values", *floats, "vocab_size", "logits_stride", "table_stride"),
        num_warps=chosen.num_warps,
        num_stages=1,
    )


def _choose(samples: bool) -> variant.Variant:
    chosen = form(_VOCABULARY)
    pointers = {
        "source": "*fp32",
        "slots": "*i64",
        "table": "*i32",
        "lengths": "*i64",
        "behind": "*i64",
        "best": "*fp32",
        "index": "*i32",
        "tempered": "*fp32",
        "groups": "*fp32",
        "buffer_values": "*fp32",
        "buffer_ids": "*i32",
        "token_ids": "*i64",
        "broken": "*i32",
    }
    sizes = [name.replace("logits", "source") for name in _INTS]
    return variant.Variant(
        name=f"sampling choose[{_label(samples=samples)}]",
        function=sampling.choose,
        signature={**pointers, **dict.fromkeys(("num_rows", *sizes, "adjusts"), "i32")},
        constants={
            "BLOCK": chosen.block,
            "TILE": chosen.tile,
            "BLOCKS": power_of_two(chosen.num_blocks(_VOCABULARY)),
            "CAPACITY": chosen.capacity,
            "SAMPLES": samples,
        },
        aligned=(
            *(name for name in pointers if name not in ("slots", "behind")),
            "vocab_size",
            "source_stride",
            "table_stride",
        ),
        num_warps=chosen.num_warps,
        num_stages=1,
        wide_loads=False,
        notes={"loads": "a part of one block of a row, as long as is known only when it runs; `scan` reads the rows"},
    )


def _count() -> variant.Variant:
    pointers = {
        "words": "*i32",
        "slots": "*i64",
        "table": "*i32",
        "bias_ids": "*i32",
        "tokens": "*i32",
        "lengths": "*i64",
        "behind": "*i64",
        "num_prompt_tokens": "*i64",
    }
    sizes = ("vocab_size", "table_stride", "bias_stride", "tokens_stride")
    return variant.Variant(
        name="sampling count",
        function=sampling_counts.count,
        signature={**pointers, **dict.fromkeys(sizes, "i32")},
        constants={"BLOCK": COUNT_BLOCK, "SPLITS": COUNT_SPLITS},
        aligned=("words", "table", "bias_ids", "tokens", "vocab_size", "table_stride", "bias_stride"),
        num_stages=1,
        wide_loads=False,
        notes={"loads": "a row of tokens has any length, so its address is a multiple of 4 bytes only"},
    )


def _logprobs() -> variant.Variant:
    chosen = form(_VOCABULARY)
    pointers = {
        "logits": "*fp32",
        "slots": "*i64",
        "table": "*i32",
        "best": "*fp32",
        "plain": "*fp32",
        "groups": "*fp32",
        "token_ids": "*i64",
        "broken": "*i32",
        "chosen": "*fp32",
        "top_ids": "*i64",
        "top_logprobs": "*fp32",
    }
    return variant.Variant(
        name="sampling logprobs",
        function=sampling_logprobs.logprobs,
        signature={**pointers, **dict.fromkeys(_INTS, "i32")},
        constants={
            "BLOCKS": power_of_two(chosen.num_blocks(_VOCABULARY)),
            "GROUPS": power_of_two(chosen.num_groups(_VOCABULARY)),
            "GROUP": chosen.group,
            "NUM_TOP": MAX_TOP,
        },
        aligned=(*(name for name in pointers if name != "slots"), "vocab_size", "logits_stride", "table_stride"),
        num_warps=chosen.num_warps,
        num_stages=1,
        is_hot=False,
        wide_loads=False,
        notes={"loads": "256 bytes for each of the most likely tokens"},
    )
