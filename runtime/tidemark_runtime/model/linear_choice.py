"""Which form the weights get on this machine: the candidates that the settings allow, timed on the model's own layers.

One policy for the whole model. A second form for steps of many rows is held only where it is clearly faster, because
it costs memory; all timings and the decision are text in the policy, shown in `/status`.

A text must not depend on what else runs, nor on which form won a race at the start. So with float32 activations only
forms compete that give a row the same bits, however many rows a step has: those of our own kernels. torch's products
sum in an order that follows the number of rows. They compete where somebody asks for bfloat16, or where the kernels
could not be compiled, and the policy says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tidemark_runtime.model import linear, tensors
from tidemark_runtime.model.linear_forms import dense, half, int8, packed4, rounding

FEW_ROWS = 1
MANY_ROWS = 64
_ROWS_BETWEEN = (2, 4, 8, 16, 32)
_FIRST_CHOICE_MARGIN = 0.8
"""Another form than the first candidate must take less than this share of its time: timings are noisy."""
_HOPELESS_FACTOR = 6.0
"""So much slower than the best at FEW_ROWS, a form is not tried with more: that alone could take seconds."""
_SECOND_FORM_MARGIN = 0.8
"""A second form, held beside the first, must take less than this share of its time at MANY_ROWS."""
_SECOND_FORM_MEMORY_RATIO = 0.25
"""... and less than this share of the memory limit."""
_ROUNDS = 8
"""Runs of each form, in turns, so that a disturbance meets all alike; the fastest counts."""
_BUDGET_SECONDS = 1.0
"""No further round begins after so long."""
_SAMPLE_ELEMENTS = 4_000_000
"""Of one sampled matrix at most so many elements are timed."""

_INEXACT = "sums depend on how many rows a step has, so that the same request can get another text beside others"

Matrix = Sequence[tensors.HostTensor]
"""Parts [N_i, K] that make one layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings and the machine allow."""

    dtype: torch.dtype
    """Of activations, resolved."""
    quantization: str
    """As in `model.quantization`."""
    num_elements: int
    """Of all matrices together: what a second form would cost."""
    memory_limit_bytes: int
    has_kernels: bool
    """Our own are compiled; without them the forms that use them are plain torch, many times slower."""

    @property
    def is_exact(self) -> bool:
        """Whether a row gets the same bits in every step."""
        return self.has_kernels and self.dtype is torch.float32

    @property
    def rounding(self) -> str | None:
        """What makes groups of dense matrices, if anything does."""
        return self.quantization if self.quantization in rounding.WEIGHT_ONLY else None


Timer = Callable[[linear.Form, Matrix, int], float]
"""Seconds of one product of a matrix in a form at so many rows."""


def resolve_dtype(wanted: str) -> torch.dtype:
    """`auto`: float32, on every processor, for only that is exact (above)."""
    return {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}[wanted]


def choose(sample: Sequence[Matrix], rules: Rules, timer: Timer | None = None) -> linear.LinearPolicy:
    """The policy for a model of which `sample` holds some layers. `timer` is given by tests only."""
    if rules.quantization == "int8":
        forms = {storage: linear.FormsByRows.always(linear.Form.INT8) for storage in linear.Storage}
        return linear.LinearPolicy(rules.dtype, forms)
    chosen: dict[linear.Storage, linear.FormsByRows] = {}
    reports: list[str] = []
    by_storage = _by_storage(sample, rules)
    for storage, matrices in by_storage.items():
        bench = _Bench(matrices, timer or _Stopwatch(rules.dtype), _BUDGET_SECONDS / len(by_storage))
        chosen[storage], report = _choose_one(_candidates(storage, matrices, rules), bench, rules)
        reports += [f"{storage.value} weights: {report}"] if report else []
    if not rules.is_exact:
        reports.append(_INEXACT)
    return linear.LinearPolicy(
        rules.dtype,
        _complete(chosen, rules),
        "; ".join(reports),
        rounding=rules.rounding,
        half_tables=rules.dtype is torch.float32 and rules.quantization != "none",
        is_exact=rules.is_exact,
    )


class _Bench:
    """Times forms of some matrices against each other."""

    def __init__(self, matrices: Sequence[Matrix], timer: Timer, budget_seconds: float) -> None:
        self._matrices = matrices
        self._timer = timer
        self._deadline = time.perf_counter() + budget_seconds

    def seconds(self, forms: Sequence[linear.Form], num_rows: int) -> dict[linear.Form, float]:
        """The fastest of some runs of each form at `num_rows`, all matrices together."""
        best = dict.fromkeys(forms, float("inf"))
        for _ in range(_ROUNDS):
            for form in forms:
                best[form] = min(best[form], sum(self._timer(form, matrix, num_rows) for matrix in self._matrices))
            if time.perf_counter() > self._deadline:
                break
        return best


def _by_storage(sample: Sequence[Matrix], rules: Rules) -> Mapping[linear.Storage, list[Matrix]]:
    """Sampled matrices by how they are stored; with quantization none all will be dense."""
    found: dict[linear.Storage, list[Matrix]] = {}
    for matrix in sample:
        for part in matrix:
            loaded = _as_loaded(_shortened(part), rules)
            storage = linear.Storage.DENSE if rules.quantization == "none" else linear.storage_of(loaded)
            found.setdefault(storage, []).append([loaded])
    return found


def _as_loaded(part: tensors.HostTensor, rules: Rules) -> tensors.HostTensor:
    """Rounded where all will be. What cannot be is left: the factory says which matrix that is."""
    if rules.rounding is None or isinstance(part, tensors.Grouped) or not int8.supports(part):
        return part
    return rounding.WEIGHT_ONLY[rules.rounding](part)


def _candidates(storage: linear.Storage, matrices: Sequence[Matrix], rules: Rules) -> list[linear.Form]:
    """In order of preference where times are equal."""
    if storage is linear.Storage.DENSE:
        held = [linear.Form.HALF] if rules.quantization != "none" and all(map(half.supports, matrices)) else []
        fast_bfloat16 = rules.dtype is torch.bfloat16 and dense.bfloat16_is_fast()
        if fast_bfloat16:
            return [linear.Form.BLOCKED_BFLOAT16, linear.Form.PLAIN]
        if rules.dtype is torch.float32:
            inexact = [] if rules.is_exact else [linear.Form.PLAIN]
            return [*held, linear.Form.PANELS, *inexact]
        return [linear.Form.PLAIN]
    candidates = [linear.Form.GROUPED]
    if rules.is_exact:
        return candidates
    parts = [part for matrix in matrices for part in matrix if isinstance(part, tensors.Grouped)]
    if all(packed4.supports(part) for part in parts):
        candidates.append(linear.Form.PACKED4)
    if rules.dtype is torch.bfloat16 and dense.bfloat16_is_fast():
        candidates.append(linear.Form.BLOCKED_BFLOAT16)
    return candidates


def _choose_one(candidates: Sequence[linear.Form], bench: _Bench, rules: Rules) -> tuple[linear.FormsByRows, str]:
    if len(candidates) == 1:
        return linear.FormsByRows.always(candidates[0]), ""
    at_few = bench.seconds(candidates, FEW_ROWS)
    hopeful = [form for form in candidates if at_few[form] <= _HOPELESS_FACTOR * min(at_few.values())]
    at_many = bench.seconds(hopeful, MANY_ROWS)
    few = hopeful[0]
    for form in hopeful[1:]:
        if form is not linear.Form.BLOCKED_BFLOAT16 and at_few[form] < _FIRST_CHOICE_MARGIN * at_few[few]:
            few = form
    many = min(hopeful, key=lambda form: at_many[form])
    extra_bytes = rules.num_elements * _item_bytes(many, rules)
    affordable = extra_bytes <= _SECOND_FORM_MEMORY_RATIO * rules.memory_limit_bytes
    if at_many[many] >= _SECOND_FORM_MARGIN * at_many[few] or not affordable:
        many = few
    forms = linear.FormsByRows(few, many, _border(few, many, bench))
    figures = ", ".join(f"{form.value} {_ms(at_few[form])}/{_ms(at_many.get(form))}" for form in candidates)
    return forms, f"{forms} (ms of sampled layers at {FEW_ROWS}/{MANY_ROWS} rows: {figures})"


def _item_bytes(form: linear.Form, rules: Rules) -> int:
    """Of one weight; groups, with their scales, count as a byte."""
    if form is linear.Form.PLAIN:
        return rules.dtype.itemsize
    sizes = {linear.Form.PANELS: 4, linear.Form.HALF: 2, linear.Form.BLOCKED_BFLOAT16: 2}
    return sizes.get(form, 1)


def _ms(seconds: float | None) -> str:
    return "not tried" if seconds is None else f"{seconds * 1e3:.3g}"


def _border(few: linear.Form, many: linear.Form, bench: _Bench) -> int:
    """Most rows at which `few` is still the faster one; 0 where both are the same."""
    if few is many:
        return 0
    border = FEW_ROWS
    for num_rows in _ROWS_BETWEEN:
        times = bench.seconds((few, many), num_rows)
        if times[few] > times[many]:
            break
        border = num_rows
    return border


def _complete(
    chosen: Mapping[linear.Storage, linear.FormsByRows], rules: Rules
) -> Mapping[linear.Storage, linear.FormsByRows]:
    """Storages that the sample does not have but some other layer might."""
    plain = linear.FormsByRows.always(linear.Form.PANELS if rules.is_exact else linear.Form.PLAIN)
    kept = plain if rules.quantization == "none" else linear.FormsByRows.always(linear.Form.GROUPED)
    if rules.quantization == "none":
        return {storage: chosen.get(linear.Storage.DENSE, plain) for storage in linear.Storage}
    defaults = {linear.Storage.DENSE: plain, linear.Storage.GROUPED4: kept, linear.Storage.GROUPED8: kept}
    return {**defaults, **chosen}


def _shortened(part: tensors.HostTensor) -> tensors.HostTensor:
    """The first rows, so many that timing a large model stays short; a multiple of 64 rows suits every form."""
    num_rows = min(part.shape[0], max(64, _SAMPLE_ELEMENTS // part.shape[1] // 64 * 64))
    if isinstance(part, torch.Tensor):
        return part[:num_rows]
    return part.rows(slice(num_rows))


class _Stopwatch:
    """Builds each form of each matrix once, and times one product."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._layers: dict[tuple[linear.Form, int], linear.Linear] = {}

    def __call__(self, form: linear.Form, matrix: Matrix, num_rows: int) -> float:
        x = torch.ones(num_rows, matrix[0].shape[1], dtype=self._dtype)
        key = (form, id(matrix))
        if key not in self._layers:
            self._layers[key] = linear.make_form(form, matrix, None, self._dtype)
            self._layers[key](x)  # the first product may set things up
        layer = self._layers[key]
        start = time.perf_counter()
        layer(x)
        return time.perf_counter() - start
