"""`spec.model` and `spec.hardware`: what runs, and on what."""

from __future__ import annotations

from typing import Literal

from tidemark_operator.api import base


class PvcSource(base.Section):
    """A model on a PersistentVolumeClaim, mounted read-only."""

    claim_name: base.ObjectName = base.field(..., "Claim in the service's own namespace.")
    path: base.RelativePath | None = base.field(
        None, "Folder or `.gguf` file inside the volume.", default_text="the volume's top"
    )


class HostPathSource(base.Section):
    """A model on the machine itself, mounted read-only."""

    path: base.AbsolutePath = base.field(..., "Folder or `.gguf` file; must exist on every machine that may run a pod.")


class ImageSource(base.Section):
    """A model in an OCI image, mounted as an image volume (Kubernetes 1.33 and later)."""

    reference: base.Word = base.field(..., "Image with registry and tag or digest.")
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = base.field("IfNotPresent", "When the image is pulled.")


class HuggingFaceSource(base.Section):
    """A model of a Hugging Face hub, fetched once before the pods start."""

    repo: base.Word = base.field(..., "`organization/name`.")
    revision: base.Word | None = base.field(None, "Branch, tag or commit.", default_text="the hub's default branch")


class PackageSource(base.Section):
    """A model out of the Python package index, by the name that `tidemark models list` shows."""

    name: base.ModelName = base.field(..., "For example `smollm2-135m`.")


class Source(base.Section):
    """Where the model lies. Exactly one of these."""

    pvc: PvcSource | None = base.field(None, "A PersistentVolumeClaim.")
    host_path: HostPathSource | None = base.field(
        None, "A path of the machine; the baseline and restricted Pod Security levels refuse it."
    )
    image: ImageSource | None = base.field(None, "An OCI image.")
    hugging_face: HuggingFaceSource | None = base.field(None, "A Hugging Face repository.")
    package: PackageSource | None = base.field(None, "A model that `tidemark models` knows by name.")


Quantization = Literal["auto", "none", "int8", "int8_weight_only", "fp8_weight_only", "fp8", "awq", "gptq"]


class Weights(base.Section):
    """How the weights are held."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = base.field(
        "auto",
        "Of activations and of unquantized weights. auto: the model's own 16 bits on a device, float32 on a processor.",
        engine="model.dtype",
    )
    quantization: Quantization = base.field(
        "auto",
        "auto: as the files hold them. none: expanded to `dtype`. int8_weight_only, fp8_weight_only: unquantized "
        "matrices are rounded to 8 bits while loading, activations are not. awq, gptq: as auto, and refused where the "
        "files are something else. int8: as the files hold them, unquantized ones rounded to 8 bits, and activations "
        "rounded to 8 bits: faster, and less exact.",
        engine="model.quantization",
    )


class Model(base.Section):
    """Which model, and how clients call it."""

    name: base.Text | None = base.field(
        None, "What clients send as `model`.", default_text="`metadata.name`", engine="model.name"
    )
    source: Source = base.field(..., "Where the model lies. Exactly one of pvc, hostPath, image, huggingFace, package.")
    weights: Weights = base.field(Weights, "How the weights are held.")
    max_context_tokens: int | None = base.field(
        None,
        "Longest request, prompt and output together. A longer one is answered 400 with both numbers.",
        unit="tokens",
        default_text="the model's own limit",
        engine="model.maxContextTokens",
        ge=1,
    )


class Toleration(base.Section):
    """Kubernetes' own toleration; every value is text."""

    key: base.LabelKey | None = base.field(None, "Taint key.", default_text="every taint")
    operator: Literal["Equal", "Exists"] = base.field("Equal", "How `value` is compared.")
    value: base.LabelValue | None = base.field(None, "Taint value.", default_text="empty")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = base.field(
        None, "Taint effect.", default_text="every effect"
    )
    toleration_seconds: int | None = base.field(
        None, "How long a NoExecute taint is tolerated.", unit="seconds", default_text="for ever", ge=0
    )


class Hardware(base.Section):
    """What one pod computes on."""

    resource_name: base.ResourceName = base.field(
        "nvidia.com/gpu", "Device resource as the node reports it, or `cpu` for a pod without a device."
    )
    count: int = base.field(1, "Devices of one pod; with `cpu`, cores.", ge=1, le=1024)
    memory: base.Quantity | None = base.field(
        None,
        "Memory of one device to plan with; with `cpu`, the memory of the pod (request and limit).",
        unit="bytes",
        default_text="what the device reports; with `cpu`, no limit",
    )
    strict_kernels: bool | None = base.field(
        None,
        "Whether an engine that finds the planned kernels missing stays not ready, instead of serving slowly.",
        default_text="true on a device, false with `cpu`",
        engine="hardware.strictKernels",
    )
    node_selector: base.Labels = base.field(dict, "Labels a node must have.")
    tolerations: list[Toleration] = base.field(list, "Taints the pods accept.", max_length=64)
    runtime_class_name: base.ObjectName | None = base.field(
        None, "RuntimeClass of the pods, for example `nvidia`.", default_text="the cluster's"
    )
