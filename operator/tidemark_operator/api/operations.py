"""`spec.autoscaling`, `rollout`, `evaluation`, `access`, `monitoring` and `podTemplate`: how the service is run."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidemark_operator import names
from tidemark_operator.api import base, engine

Percent = Annotated[int, pydantic.Field(ge=1, le=100)]


class Autoscaling(base.Section):
    """Replicas by the time that requests wait."""

    min: int = base.field(1, "Fewest replicas.", ge=1, le=256)
    max: int = base.field(..., "Most replicas.", ge=1, le=256)
    target_queue_seconds: float = base.field(1.0, "Wait that more replicas are added at.", unit="seconds", gt=0)


class Gate(base.Section):
    """What a canary must hold to be promoted."""

    max_error_ratio: engine.Ratio = base.field(0.01, "Most failed requests, as a share.")
    max_latency_rise: float = base.field(0.2, "Most rise of the time to first token over the old revision.", ge=0)
    evaluation: bool = base.field(True, "The evaluation must pass, too.")


class Canary(base.Section):
    """A new model or dtype takes a small share of the traffic first."""

    steps: list[Percent] = base.field(
        lambda: [5, 25, 100],
        "Shares of the traffic, rising, the last one 100.",
        unit="percent",
        min_length=1,
        max_length=20,
    )
    hold_seconds: int = base.field(300, "How long each step is watched.", unit="seconds", ge=1)
    gate: Gate = base.field(Gate, "What must hold.")


class Rollout(base.Section):
    """How a change reaches the pods."""

    strategy: Literal["auto", "surge", "replace"] = base.field(
        "auto",
        "surge: the new pod starts first and needs a spare device. replace: the old pod drains first. "
        "auto: surge where a device is spare.",
    )
    drain_seconds: int = base.field(
        60, "How long running requests may go on when a pod ends.", unit="seconds", ge=0, le=86_400
    )
    progress_deadline_seconds: int = base.field(
        900, "A rollout that takes longer has failed.", unit="seconds", ge=1, le=86_400
    )
    auto_rollback: bool = base.field(True, "A failed revision is replaced by the last good one.")
    canary: Canary | None = base.field(None, "Step-wise traffic for a new model or dtype.", default_text="no canary")


class Evaluation(base.Section):
    """Accuracy regression against the unquantized model, as a CronJob."""

    schedule: base.Schedule | None = base.field(None, "When it runs.", default_text="only before a promotion")
    max_kl: float = base.field(0.02, "Most mean KL divergence.", unit="nats", ge=0)
    max_perplexity_rise: float = base.field(0.01, "Most rise of the perplexity, as a share.", ge=0)


class ApiKeysRef(base.Section):
    """A Secret with the API keys."""

    name: base.ObjectName = base.field(..., "Secret in the service's own namespace.")
    key: base.SecretKey = base.field(names.KEYS_FILE, "Entry of the Secret that holds the keys, one a line.")


class SecretRef(base.Section):
    """A Secret of the service's own namespace."""

    name: base.ObjectName = base.field(..., "Its name.")


class Selector(base.Section):
    """Chooses by labels."""

    match_labels: base.Labels = base.field(dict, "Labels that must be there; none: everything.")


class IpBlock(base.Section):
    """A range of addresses."""

    cidr: base.Cidr = base.field(..., "For example `10.0.0.0/8`.")


class Peer(base.Section):
    """Who may connect, as in a NetworkPolicy."""

    namespace_selector: Selector | None = base.field(None, "Namespaces.", default_text="the service's own")
    pod_selector: Selector | None = base.field(None, "Pods.", default_text="all pods of those namespaces")
    ip_block: IpBlock | None = base.field(None, "Addresses outside the cluster.")


class Access(base.Section):
    """Who may use the service."""

    api_keys_secret_ref: ApiKeysRef | None = base.field(None, "API keys.", default_text="no key is asked for")
    tls_secret_ref: SecretRef | None = base.field(None, "Certificate (`kubernetes.io/tls`).", default_text="plain HTTP")
    allow_from: list[Peer] = base.field(list, "Who may connect; empty: everybody in the cluster.", max_length=64)


class Monitoring(base.Section):
    """What Prometheus and Grafana watch the service with: PodMonitor, PrometheusRule and a dashboard."""

    enabled: bool = base.field(True, "Whether they are made.")
    labels: base.Labels = base.field(
        dict, "Put on them, so that your Prometheus and Grafana select them; over those that the operator was given."
    )
    runbook_base_url: base.Url | None = base.field(
        None,
        "What the links of alerts and dashboard begin with.",
        default_text="the runbooks that the operator itself serves",
    )
    language: Literal["en", "zh"] = base.field("en", "Of the runbooks that alerts link to, and of the dashboard.")


class KeyRef(base.Section):
    """One entry of a Secret or ConfigMap."""

    name: base.ObjectName = base.field(..., "Its name.")
    key: base.SecretKey = base.field(..., "Its entry.")


class EnvSource(base.Section):
    """Where a variable's value comes from. Exactly one of these."""

    secret_key_ref: KeyRef | None = base.field(None, "A Secret.")
    config_map_key_ref: KeyRef | None = base.field(None, "A ConfigMap.")


class EnvVar(base.Section):
    """One environment variable."""

    name: base.EnvName = base.field(..., "Its name.")
    value: base.EnvValue | None = base.field(None, "Its value, always text.", default_text="empty")
    value_from: EnvSource | None = base.field(None, "Instead of `value`.")


ResourceValue = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[0-9]+(?:\.[0-9]+)?(?:m|[KMGTPE]i|[kMGTPE])?$", max_length=40),
    base.Expected('an amount in quotes, such as "500m", "2" or "4Gi"'),
]


class Resources(base.Section):
    """Adds to, or replaces, what `hardware` asks for."""

    requests: dict[base.LabelKey, ResourceValue] = base.field(dict, "What the scheduler reserves.", max_length=64)
    limits: dict[base.LabelKey, ResourceValue] = base.field(dict, "What the container may use at most.", max_length=64)


class PodTemplate(base.Section):
    """The few things of the pods that a site may set itself."""

    env: list[EnvVar] = base.field(list, "Environment variables of the engine.", max_length=256)
    labels: base.Labels = base.field(dict, "Labels of the pods.")
    annotations: base.Annotations = base.field(dict, "Annotations of the pods.", max_length=64)
    resources: Resources = base.field(Resources, "Requests and limits beside `hardware`.")
    priority_class_name: base.ObjectName | None = base.field(
        None, "PriorityClass of the pods.", default_text="the cluster's"
    )
    service_account_name: base.ObjectName | None = base.field(
        None, "An existing ServiceAccount.", default_text="one of its own, without rights"
    )
    image_pull_secrets: list[SecretRef] = base.field(list, "For a registry that asks for a password.", max_length=16)
