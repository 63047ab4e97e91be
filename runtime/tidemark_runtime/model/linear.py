"""Gives each weight matrix the form in which it computes: one policy for the whole model, chosen at start.

A policy names, per way a checkpoint stores matrices (`storage_of`), which form runs for steps of few rows and which
for many; `linear_choice` measures and makes one. Forms are in `linear_forms`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base, composed, dense, grouped, half, int8, packed4, rounding

Linear = base.Linear
Embedding = base.Embedding


class Form(StrEnum):
    """What a matrix can be turned into."""

    GROUPED = "grouped"
    """The checkpoint's own 4- or 8-bit groups, exactly; our kernel."""
    PACKED4 = "packed4"
    """4-bit groups in torch's packed kernel."""
    PLAIN = "plain"
    """Dense in the policy's dtype."""
    PANELS = "panels"
    """Dense float32 in our kernel's panels."""
    HALF = "half"
    """Dense, in the checkpoint's own 16 bits, in our kernel's panels; float32 panels where it has others."""
    BLOCKED_BFLOAT16 = "bfloat16"
    """Dense bfloat16 in oneDNN's layout."""
    INT8 = "int8"
    """The checkpoint's own groups, or dense weights in 8-bit groups, times 8-bit activations; our kernel."""


_KEEP_GROUPS = frozenset({Form.GROUPED, Form.PACKED4, Form.INT8})


class Storage(StrEnum):
    """How a checkpoint holds a matrix."""

    DENSE = "dense"
    GROUPED4 = "4-bit"
    GROUPED8 = "8-bit"


def storage_of(weight: tensors.HostTensor) -> Storage:
    if isinstance(weight, torch.Tensor):
        return Storage.DENSE
    return Storage.GROUPED4 if weight.bits == 4 else Storage.GROUPED8


@dataclass(frozen=True, slots=True)
class FormsByRows:
    """`few` runs while a step has at most `most_few_rows` rows, `many` for more; equal forms are held once."""

    few: Form
    many: Form
    most_few_rows: int = 0

    @classmethod
    def always(cls, form: Form) -> FormsByRows:
        return cls(form, form)

    def __str__(self) -> str:
        if self.few is self.many:
            return self.few.value
        return f"rows<={self.most_few_rows}: {self.few.value}, more: {self.many.value}"


@dataclass(frozen=True, slots=True)
class LinearPolicy:
    """One choice for the whole model."""

    dtype: torch.dtype
    """Of activations, and of dense weights."""
    forms: Mapping[Storage, FormsByRows] = field(default_factory=dict)
    """Storage -> forms. What is not named is expanded to `dtype`."""
    measured: str = ""
    """What was measured and why this was chosen, for `/status`; empty if nothing was."""
    rounding: str | None = None
    """`int8_weight_only` or `fp8_weight_only`: dense matrices, but not embedding and head, are rounded first."""
    half_tables: bool = False
    """Embedding and head stay in the checkpoint's 16 bits where activations are float32."""
    is_exact: bool = False
    """Tables that are expanded compute in our kernel, too: a row gets the same bits in every step."""

    def forms_for(self, storage: Storage) -> FormsByRows:
        return self.forms.get(storage, FormsByRows.always(Form.PLAIN))

    @property
    def has_int8(self) -> bool:
        return self.forms_for(Storage.DENSE).few is Form.INT8


class LinearFactory:
    """Turns a checkpoint's tensors into layers according to `policy`, and remembers what it made."""

    def __init__(self, policy: LinearPolicy) -> None:
        self.policy = policy
        self._paths: dict[str, set[str]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Memory of everything made so far, shared tables once."""
        return self._num_bytes

    @property
    def kernel_paths(self) -> dict[str, str]:
        """What runs, by use: `linear`, `embedding`, `head`."""
        return {use: "; ".join(sorted(seen)) for use, seen in sorted(self._paths.items())}

    def make(self, name: str, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None) -> Linear:
        """One layer from `parts` [N_i, K], concatenated along N; `bias` [sum N_i]. `name` is for error messages.

        Raises UnsupportedModel where the policy rounds and a part cannot be cut into groups, CorruptModel where it
        rounds what is no number.
        """
        if self.policy.rounding is not None:
            parts = [rounding.rounded(name, part, self.policy.rounding) for part in parts]
        return self._note("linear", self._make(name, parts, bias))

    def embedding(self, table: tensors.HostTensor) -> Embedding:
        """`table` [V, H], exactly as stored where it is grouped and the policy keeps groups.

        Raises UnsupportedModel where the policy is int8 and the table cannot be cut into groups.
        """
        made: Embedding
        if self.policy.has_int8:
            rounding.check_width("the embedding", table, "int8")
            groups = table if isinstance(table, tensors.Grouped) else int8.quantize(table)
            made, path = int8.Int8Embedding(groups, self.policy.dtype), f"grouped{groups.bits}"
        elif isinstance(table, tensors.Grouped) and self._keeps_groups(table):
            made, path = grouped.GroupedEmbedding(table, self.policy.dtype), f"grouped{table.bits}"
        elif self.policy.half_tables and isinstance(table, torch.Tensor) and half.supports([table]):
            made = half.HalfEmbedding(table, self.policy.dtype)
            path = made.path
        elif self.policy.is_exact:
            made = grouped.PanelEmbedding(expand([table], torch.float32))
            path = made.path
        else:
            made = dense.PlainEmbedding(expand([table], self.policy.dtype))
            path = str(self.policy.dtype).removeprefix("torch.")
        self._paths.setdefault("embedding", set()).add(path)
        self._num_bytes += made.num_bytes
        return made

    def head(self, source: tensors.HostTensor | Embedding) -> Linear:
        """The output layer, logits in float32; given an embedding it shares its memory (tied weights)."""
        if isinstance(source, torch.Tensor) and self.policy.half_tables and half.supports([source]):
            return self._note("head", half.HalfLinear(source, None))
        if isinstance(source, torch.Tensor | tensors.Grouped):
            return self._note("head", dense.Float32Output(self._make("head", [source], None)))
        return self._note("head", source.as_head())

    def _note(self, use: str, layer: Linear) -> Linear:
        self._paths.setdefault(use, set()).add(layer.path)
        self._num_bytes += layer.num_bytes
        return layer

    def _keeps_groups(self, table: tensors.Grouped) -> bool:
        forms = self.policy.forms_for(storage_of(table))
        return Form.GROUPED in (forms.few, forms.many) or Form.PACKED4 in (forms.few, forms.many)

    def _make(self, name: str, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None) -> Linear:
        widths = {part.shape[1] for part in parts}
        if len(widths) != 1:
            raise ValueError(f"{name}: parts have different input widths {sorted(widths)}")
        if self.policy.has_int8:
            for part in parts:
                rounding.check_width(name, part, "int8")
        runs = _runs(parts, self.policy)
        layers: list[Linear] = []
        start = 0
        for run in runs:
            stop = start + sum(part.shape[0] for part in run)
            layers.append(self._make_run(run, None if bias is None else bias[start:stop]))
            start = stop
        return layers[0] if len(layers) == 1 else composed.SideBySide(layers)

    def _make_run(self, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None) -> Linear:
        forms = self.policy.forms_for(storage_of(parts[0]))
        few = make_form(forms.few, parts, bias, self.policy.dtype)
        if forms.few is forms.many:
            return few
        many = make_form(forms.many, parts, bias, self.policy.dtype)
        return few if few.path == many.path else composed.ByRows(few, many, forms.most_few_rows)


def make_form(form: Form, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None, dtype: torch.dtype) -> Linear:
    """`parts` of one storage as one matrix in `form`. Groups that torch's kernel cannot hold stay grouped in ours."""
    order = _order_of(parts[0])
    if order is not None and form in _KEEP_GROUPS:
        in_order = [dataclasses.replace(part, order=None) for part in parts if isinstance(part, tensors.Grouped)]
        return composed.Reordered(make_form(form, in_order, bias, dtype), order)
    if form is Form.PLAIN:
        return dense.PlainLinear(expand(parts, dtype), None if bias is None else bias.to(dtype))
    if form is Form.HALF and half.supports(parts):
        return half.HalfLinear(torch.cat([part for part in parts if isinstance(part, torch.Tensor)]), bias)
    if form in (Form.PANELS, Form.HALF):
        return grouped.PanelLinear(expand(parts, torch.float32), bias)
    if form is Form.BLOCKED_BFLOAT16:
        return dense.BlockedLinear(expand(parts, torch.bfloat16), bias, torch.bfloat16)
    if form is Form.INT8:
        return int8.Int8Linear(
            _joined([part if isinstance(part, tensors.Grouped) else int8.quantize(part) for part in parts]), bias
        )
    weight = _joined([part for part in parts if isinstance(part, tensors.Grouped)])
    if form is Form.PACKED4 and packed4.supports(weight):
        return packed4.Packed4Linear(weight, bias, dtype)
    return grouped.GroupedLinear(weight, bias)


def expand(parts: Sequence[tensors.HostTensor], dtype: torch.dtype) -> torch.Tensor:
    """`parts` as one dense matrix, filled part by part so that no second copy of the whole exists."""
    if len(parts) == 1 and isinstance(parts[0], torch.Tensor) and parts[0].dtype == dtype:
        return parts[0].contiguous()
    matrix = torch.empty(sum(part.shape[0] for part in parts), parts[0].shape[1], dtype=dtype)
    start = 0
    for part in parts:
        matrix[start : start + part.shape[0]] = part if isinstance(part, torch.Tensor) else part.dequantize()
        start += part.shape[0]
    return matrix


def _runs(parts: Sequence[tensors.HostTensor], policy: LinearPolicy) -> list[list[tensors.HostTensor]]:
    """Neighbours that can be one matrix: all that get expanded anyway, or groups of equal bits, size and order."""
    runs: list[list[tensors.HostTensor]] = []
    previous: object = None
    for part in parts:
        key = _run_key(part, policy)
        if runs and key == previous and _same_order(runs[-1][0], part, policy):
            runs[-1].append(part)
        else:
            runs.append([part])
        previous = key
    return runs


def _run_key(part: tensors.HostTensor, policy: LinearPolicy) -> object:
    forms = policy.forms_for(storage_of(part))
    if isinstance(part, tensors.Grouped):
        if not {forms.few, forms.many} & _KEEP_GROUPS:
            return forms
        return (part.quants.dtype, part.group_size, part.zeros is None, forms)
    return (part.dtype, forms) if Form.HALF in (forms.few, forms.many) else forms


def _same_order(left: tensors.HostTensor, right: tensors.HostTensor, policy: LinearPolicy) -> bool:
    """Whether two parts of one run can read the same activations."""
    forms = policy.forms_for(storage_of(left))
    if not {forms.few, forms.many} & _KEEP_GROUPS:
        return True
    mine, other = _order_of(left), _order_of(right)
    return mine is other or (mine is not None and other is not None and torch.equal(mine, other))


def _order_of(part: tensors.HostTensor) -> torch.Tensor | None:
    return part.order if isinstance(part, tensors.Grouped) else None


def _joined(parts: Sequence[tensors.Grouped]) -> tensors.Grouped:
    if len(parts) == 1:
        return parts[0]
    has_mins = any(part.mins is not None for part in parts)
    mins = [torch.zeros_like(part.scales) if part.mins is None else part.mins for part in parts]
    zeros = [part.zeros for part in parts if part.zeros is not None]
    return dataclasses.replace(
        parts[0],
        quants=torch.cat([part.quants.view(torch.uint8) for part in parts]).view(parts[0].quants.dtype),
        scales=torch.cat([part.scales for part in parts]),
        mins=torch.cat(mins) if has_mins else None,
        zeros=torch.cat(zeros) if zeros else None,
    )
