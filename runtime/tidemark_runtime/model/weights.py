"""What a family takes its weights from while it is built: one tensor at a time, shapes checked, pages given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import linear, parallel, probes, tensors
from tidemark_runtime.model.backends import base as backends
from tidemark_runtime.model.backends import processor

Progress = Callable[[str, float], None]
"""Called with what was just loaded and the share of the checkpoint's bytes that is done, 0 to 1."""


class Weights:
    """Hands a checkpoint's tensors to the linear factory and remembers which were used."""

    def __init__(
        self,
        checkpoint: checkpoints.Checkpoint,
        factory: linear.LinearFactory,
        progress: Progress,
        kept: probes.Probes | None = None,
        backend: backends.Backend | None = None,
        group: parallel.Group = parallel.ALONE,
    ) -> None:
        """`kept`: where some rows of the matrices go, for the self-test. `backend`: the processor, where not said.
        `group`: of the ranks that share the model; `checkpoint` then holds this one's part."""
        self.group = group
        self.backend: backends.Backend = processor.Processor() if backend is None else backend
        self._probes = probes.Probes() if kept is None else kept
        self._checkpoint = checkpoint
        self._factory = factory
        self._progress = progress
        self._used: set[str] = set()
        self._bytes_done = 0

    @property
    def dtype(self) -> torch.dtype:
        """Of activations."""
        return self._factory.policy.dtype

    def embedding(self, name: str, shape: tuple[int, int]) -> linear.Embedding:
        """The table `name` [V, H]."""
        table = self._matrix(name, shape)
        made = self._factory.embedding(table)
        self._probes.embedding(self._factory.kernel_paths["embedding"], made, table)
        del table
        self._done([name])
        return made

    def head(self, name: str, shape: tuple[int, int]) -> linear.Linear:
        """The output layer from its own matrix `name` [V, H]."""
        matrix = self._matrix(name, shape)
        made = self._factory.head(matrix)
        self._probes.head(made.path, made, matrix)
        del matrix
        self._done([name])
        return made

    def tied_head(self, embedding: linear.Embedding) -> linear.Linear:
        """The output layer that is the embedding table, in the same memory."""
        made = self._factory.head(embedding)
        self._probes.head(made.path, made, None)
        return made

    def vector(self, name: str, size: int) -> torch.Tensor:
        """The dense vector `name` [size], as float32, in memory of its own on the backend's device."""
        made = self._vector(name, size).to(self.backend.device)
        self._done([name])
        return made

    def linear(
        self, name: str, part_names: Sequence[str], num_rows: Sequence[int], width: int, *, bias: bool = False
    ) -> linear.Linear:
        """One layer `name` from the matrices `part_names` [num_rows[i], width], on top of each other."""
        names = [f"{part}.weight" for part in part_names]
        parts = [self._matrix(part, (rows, width)) for part, rows in zip(names, num_rows, strict=True)]
        joined_bias: torch.Tensor | None = None
        if bias:
            bias_names = [f"{part}.bias" for part in part_names]
            joined_bias = torch.cat([self._vector(part, rows) for part, rows in zip(bias_names, num_rows, strict=True)])
            names += bias_names
        made = self._factory.make(name, parts, joined_bias)
        self._probes.linear(name, made.path, made, parts, joined_bias)
        del parts
        self._done(names)
        return made

    def refuse_leftovers(self, ignored: Callable[[str], bool]) -> None:
        """Raise UnsupportedModel for tensors nobody asked for: they would change the answer, had we a use for them."""
        left = sorted(name for name in self._checkpoint.names() - self._used if not ignored(name))
        if left:
            raise errors.UnsupportedModel(
                f"the checkpoint has {len(left)} tensors that the architecture {self._checkpoint.spec.architecture} "
                f"has no place for: {', '.join(left[:5])}{', ...' if len(left) > 5 else ''}"
            )

    def _matrix(self, name: str, shape: tuple[int, int]) -> tensors.HostTensor:
        found = self._checkpoint.tensor(name)
        _check_shape(name, found, shape)
        return found

    def _vector(self, name: str, size: int) -> torch.Tensor:
        found = self._checkpoint.tensor(name)
        if isinstance(found, tensors.Grouped):
            raise errors.UnsupportedModel(f"the tensor {name} is quantized, expected a dense vector")
        _check_shape(name, found, (size,))
        return found.to(torch.float32, copy=True)

    def _done(self, names: Sequence[str]) -> None:
        for name in names:
            self._used.add(name)
            self._bytes_done += self._checkpoint.tensor_bytes(name)
            self._checkpoint.release(name)
        self._progress(names[-1], min(1.0, self._bytes_done / max(1, self._checkpoint.num_bytes)))


def _check_shape(name: str, found: tensors.HostTensor, expected: tuple[int, ...]) -> None:
    if tuple(found.shape) != expected:
        raise errors.CorruptModel(f"the tensor {name} has the shape {list(found.shape)}, expected {list(expected)}")
