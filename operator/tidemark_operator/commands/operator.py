"""`tidemark operator`: the operator, against the cluster of a kubeconfig or in a pod."""

from __future__ import annotations

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidemark_operator import errors
from tidemark_operator.cluster.kubernetes import connection
from tidemark_operator.commands import operator_inputs, operator_key, operator_logging, operator_process
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL


class PullPolicy(StrEnum):
    """As Kubernetes spells them."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def command(
    image: Annotated[
        str, typer.Option(envvar="TIDEMARK_ENGINE_IMAGE", help="Container image of the engine", show_default=False)
    ] = "",
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="Watch services of this namespace only; may be given more than once", show_default="all"),
    ] = None,
    image_pull_policy: Annotated[PullPolicy, typer.Option(help="Of engine pods")] = PullPolicy.IF_NOT_PRESENT,
    image_pull_secret: Annotated[
        list[str] | None,
        typer.Option(help="Secret with which engine pods pull their image; may be given more than once"),
    ] = None,
    model_store_host_path: Annotated[
        str, typer.Option(help="Folder on every node with models that `tidemark models` fetched", show_default=False)
    ] = "",
    monitoring_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Label by which a site selects PodMonitors, rules and dashboards; may be given more than once",
        ),
    ] = None,
    monitoring_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Where Prometheus runs: services with access.allowFrom let it in; may be given more than once"
        ),
    ] = None,
    runbook_base_url: Annotated[
        str, typer.Option(help="What the links of alerts begin with, unless a service says otherwise")
    ] = RUNBOOK_BASE_URL,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="16 or more random bytes from which admin tokens are derived",
            show_default="~/.config/tidemark/operator.key, outside a cluster",
        ),
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(help="Where the lease is that tells who leads", show_default="the operator's own")
    ] = "",
    listen: Annotated[str, typer.Option(help="HOST:PORT for /health and /metrics")] = "0.0.0.0:8080",
    context: Annotated[str, typer.Option(help="Of the kubeconfig", show_default="its current one")] = "",
    log_format: Annotated[LogFormat, typer.Option(help="For people or for what collects logs")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="The least that is logged")] = LogLevel.INFO,
) -> None:
    """Turn every InferenceService of a cluster into running engines, and keep them so."""
    if not image:
        raise errors.ManifestFileError(
            "--image: got nothing, expected the container image of the engine. Give --image or set "
            "TIDEMARK_ENGINE_IMAGE"
        )
    operator_logging.configure(log_format, log_level)
    source = connection.Source(os.environ, context or None)
    options = operator_process.Options(
        source=source,
        key=operator_key.load(key_file, Path.home(), source.in_pod),
        image=image,
        image_pull_policy=image_pull_policy,
        image_pull_secrets=tuple(image_pull_secret or ()),
        model_store_host_path=model_store_host_path or None,
        monitoring_labels=operator_inputs.labels("--monitoring-label", monitoring_label or ()),
        monitoring_namespaces=operator_inputs.namespaces("--monitoring-namespace", monitoring_namespace or ()),
        runbook_base_url=operator_inputs.url("--runbook-base-url", runbook_base_url),
        namespaces=tuple(dict.fromkeys(namespace or ())) or ("",),
        lease_namespace=lease_namespace or None,
        listen=listen,
    )
    asyncio.run(operator_process.run(options))
