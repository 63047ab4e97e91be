"""Gives each weight matrix the form in which it computes: one policy for the whole model, chosen at start.

A policy names, per way a checkpoint stores matrices (`storage_of`), which form runs for steps of few rows and which
for many; `linear_choice` measures and makes one. Forms are in `linear_forms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base, dense, grouped, int8, packed4

Linear = base.Linear
Embedding = base.Embedding


class Form(StrEnum):
    """What a matrix can be turned into."""

    GROUPED = "grouped"
    """The checkpoint's own 4- or 8-bit groups, exactly; our kernel."""
    PACKED4 = "packed4"
    """4-bit groups of 32 in torch's packed kernel."""
    PLAIN = "plain"
    """Dense in the policy's dtype."""
    PANELS = "panels"
    """Dense float32 in our kernel's panels."""
    BLOCKED_BFLOAT16 = "bfloat16"
    """Dense bfloat16 in oneDNN's layout."""
    INT8 = "int8"
    """The checkpoint's own groups, or dense weights in 8-bit groups, times 8-bit activations; our kernel."""


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

        Raises UnsupportedModel where the policy is int8 and a part cannot be cut into groups.
        """
        return self._note("linear", self._make(name, parts, bias))

    def embedding(self, table: tensors.HostTensor) -> Embedding:
        """`table` [V, H], exactly as stored where it is grouped and the policy keeps groups.

        Raises UnsupportedModel where the policy is int8 and the table cannot be cut into groups.
        """
        made: Embedding
        if self.policy.has_int8:
            _check_int8("the embedding", table)
            groups = table if isinstance(table, tensors.Grouped) else int8.quantize(table)
            made, path = int8.Int8Embedding(groups, self.policy.dtype), f"grouped{groups.bits}"
        elif isinstance(table, tensors.Grouped) and self._keeps_groups(table):
            made, path = grouped.GroupedEmbedding(table, self.policy.dtype), f"grouped{table.bits}"
        else:
            made = dense.PlainEmbedding(expand([table], self.policy.dtype))
            path = str(self.policy.dtype).removeprefix("torch.")
        self._paths.setdefault("embedding", set()).add(path)
        self._num_bytes += made.num_bytes
        return made

    def head(self, source: tensors.HostTensor | Embedding) -> Linear:
        """The output layer, logits in float32; given an embedding it shares its memory (tied weights)."""
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
                _check_int8(name, part)
        runs = _runs(parts, self.policy)
        layers: list[Linear] = []
        start = 0
        for run in runs:
            stop = start + sum(part.shape[0] for part in run)
            layers.append(self._make_run(run, None if bias is None else bias[start:stop]))
            start = stop
        return layers[0] if len(layers) == 1 else SideBySide(layers)

    def _make_run(self, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None) -> Linear:
        forms = self.policy.forms_for(storage_of(parts[0]))
        few = make_form(forms.few, parts, bias, self.policy.dtype)
        if forms.few is forms.many:
            return few
        many = make_form(forms.many, parts, bias, self.policy.dtype)
        return few if few.path == many.path else ByRows(few, many, forms.most_few_rows)


def make_form(form: Form, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None, dtype: torch.dtype) -> Linear:
    """`parts` of one storage as one matrix in `form`. Groups that torch's kernel cannot hold stay grouped in ours."""
    if form is Form.PLAIN:
        return dense.PlainLinear(expand(parts, dtype), None if bias is None else bias.to(dtype))
    if form is Form.PANELS:
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


class ByRows:
    """Two forms of one matrix: one for steps of few rows, one for many."""

    def __init__(self, few: Linear, many: Linear, most_few_rows: int) -> None:
        self._few = few
        self._many = many
        self._most_few_rows = most_few_rows
        self.num_outputs: int = few.num_outputs
        self.num_bytes: int = few.num_bytes + many.num_bytes
        self.path: str = f"rows<={most_few_rows}: {few.path}, more: {many.path}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._few(x) if x.shape[0] <= self._most_few_rows else self._many(x)


class SideBySide:
    """Parts stored differently (a Q6_K V beside Q4_K Q and K): computed apart, outputs concatenated."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self._layers = tuple(layers)
        self.num_outputs: int = sum(layer.num_outputs for layer in layers)
        self.num_bytes: int = sum(layer.num_bytes for layer in layers)
        self.path: str = " | ".join(dict.fromkeys(layer.path for layer in layers))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([layer(x) for layer in self._layers], dim=1)


def _runs(parts: Sequence[tensors.HostTensor], policy: LinearPolicy) -> list[list[tensors.HostTensor]]:
    """Neighbours that can be one matrix: all that get expanded anyway, or groups of equal bits and size."""
    runs: list[list[tensors.HostTensor]] = []
    previous: object = None
    for part in parts:
        key = _run_key(part, policy)
        if runs and key == previous:
            runs[-1].append(part)
        else:
            runs.append([part])
        previous = key
    return runs


def _run_key(part: tensors.HostTensor, policy: LinearPolicy) -> object:
    forms = policy.forms_for(storage_of(part))
    keeps_groups = {forms.few, forms.many} & {Form.GROUPED, Form.PACKED4, Form.INT8}
    if isinstance(part, tensors.Grouped) and keeps_groups:
        return (part.bits, part.group_size, forms)
    return forms


def _joined(parts: Sequence[tensors.Grouped]) -> tensors.Grouped:
    if len(parts) == 1:
        return parts[0]
    has_mins = any(part.mins is not None for part in parts)
    mins = [torch.zeros_like(part.scales) if part.mins is None else part.mins for part in parts]
    return tensors.Grouped(
        quants=torch.cat([part.quants for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        mins=torch.cat(mins) if has_mins else None,
        bits=parts[0].bits,
        group_size=parts[0].group_size,
    )


def _check_int8(name: str, part: tensors.HostTensor) -> None:
    if not int8.supports(part):
        raise errors.UnsupportedModel(
            f"{name}: a matrix of {part.shape[0]} x {part.shape[1]} cannot become 8-bit groups: model.quantization "
            f"int8 needs a multiple of {int8.WIDTH_MULTIPLE} inputs. Choose auto or none"
        )
