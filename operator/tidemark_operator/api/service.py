"""The whole resource: `apiVersion`, `kind`, `metadata`, `spec`, and the `status` of the last time."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
import pydantic.alias_generators

from tidemark_operator import names
from tidemark_operator.api import base, engine, models, operations

Replicas = Annotated[int, pydantic.Field(ge=0, le=256)]


class Spec(base.Section):
    """What is wanted."""

    model: models.Model = base.field(..., "Which model, and how clients call it.")
    hardware: models.Hardware = base.field(models.Hardware, "What one pod computes on.")
    replicas: Replicas | None = base.field(
        None, "Pods with the model.", default_text="1, or what `autoscaling` decides"
    )
    autoscaling: operations.Autoscaling | None = base.field(
        None, "Replicas by the time that requests wait.", default_text="a fixed number"
    )
    kv_cache: engine.KVCache = base.field(engine.KVCache, "The memory of keys and values.")
    scheduler: engine.Scheduler = base.field(engine.Scheduler, "What one step may hold.")
    watermarks: engine.Watermarks = base.field(engine.Watermarks, "Lines of memory use.")
    overload: engine.Overload = base.field(engine.Overload, "When a request is answered 429.")
    speculative: engine.Speculative = base.field(engine.Speculative, "Guessing several tokens at once.")
    rollout: operations.Rollout = base.field(operations.Rollout, "How a change reaches the pods.")
    evaluation: operations.Evaluation | None = base.field(None, "Accuracy regression.", default_text="none")
    access: operations.Access = base.field(operations.Access, "Who may use the service.")
    monitoring: operations.Monitoring = base.field(operations.Monitoring, "PodMonitor, rules and dashboard.")
    pod_template: operations.PodTemplate = base.field(operations.PodTemplate, "What a site may set on the pods.")
    suspend: bool = base.field(False, "true: no pods, everything else stays.")


class Metadata(pydantic.BaseModel):
    """Kubernetes' own; the parts we read are typed, the rest is known by name and left alone."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=pydantic.alias_generators.to_camel
    )

    name: str = base.field(..., "The service's name; pods, Service and URL carry it.")
    namespace: base.Namespace | None = base.field(None, "Namespace.", default_text="that of the command, or default")
    labels: base.Labels | None = base.field(None, "Labels.")
    annotations: base.Annotations | None = base.field(None, "Annotations.")
    uid: str | None = base.field(None, "Set by the cluster.")
    generation: int | None = base.field(None, "Set by the cluster; counts changes of the spec.")
    resource_version: str | None = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    finalizers: Any = None
    owner_references: Any = None
    managed_fields: Any = None
    generate_name: Any = None
    self_link: Any = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def null_means_default(cls, values: Any) -> Any:
        return base.without_nulls(values)

    @pydantic.field_validator("name")
    @classmethod
    def valid_name(cls, value: str) -> str:
        if len(value) > names.MAX_NAME_LENGTH:
            raise ValueError(f"It has {len(value)} characters.")
        if not names.NAME_PATTERN.fullmatch(value):
            raise ValueError("")
        return value


class InferenceService(pydantic.BaseModel):
    """One parsed document. `api.parse` makes it; it never changes afterwards."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=pydantic.alias_generators.to_camel
    )

    api_version: str = names.API_VERSION
    kind: str = names.KIND
    metadata: Metadata = base.field(..., "Name, namespace, labels.")
    spec: Spec = base.field(..., "What is wanted.")
    status: dict[str, Any] = base.field(dict, "What the operator last wrote.")

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def model_name(self) -> str:
        """What clients send as `model`."""
        return self.spec.model.name or self.metadata.name

    @property
    def replicas(self) -> int:
        """Pods wanted now: none when suspended, the lower bound where a scaler decides."""
        if self.spec.suspend:
            return 0
        if self.spec.replicas is not None:
            return self.spec.replicas
        return self.spec.autoscaling.min if self.spec.autoscaling else 1
