"""A dashboard around its panels: name, variables, links to the others, and where each panel stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from grafana_foundation_sdk.cog import encoder
from grafana_foundation_sdk.models import dashboard

from grafana import parts, queries
from grafana.words import Say
from tidemark_operator.monitoring import dashboard_files
from tidemark_operator.monitoring.rules import conditions
from tidemark_operator.monitoring.rules.model import Language
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL
from tidemark_runtime.contract import metrics

SCHEMA_VERSION = 38
"""Of Grafana 10.0; later ones read it."""
_COLUMNS = 24
_LABEL_VALUES = 1
"""How Grafana's editor of such variables calls this kind of query."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: Sequence[dashboard.Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What differs from one dashboard to another."""

    title: str
    description: str
    rows: Sequence[Row]
    with_pods: bool = True
    """Whether single pods can be chosen."""


def render(name: str, content: Content, language: Language) -> str:
    """The JSON text of one dashboard."""
    say = Say(language)
    made = dashboard.Dashboard(
        uid=dashboard_files.uid(name, language.value),
        title=f"Tidemark / {content.title}",
        description=content.description,
        tags=["tidemark", _tag(language)],
        timezone="browser",
        editable=True,
        graph_tooltip=dashboard.DashboardCursorSync.CROSSHAIR,
        refresh="30s",
        time=dashboard.DashboardDashboardTime("now-3h", "now"),
        schema_version=SCHEMA_VERSION,
        panels=[*_placed(content.rows)],
        templating=dashboard.DashboardDashboardTemplating(list(_variables(say, with_pods=content.with_pods))),
        annotations=dashboard.AnnotationContainer(list_val=[]),
        links=[_others(say, language)],
    )
    return dashboard_files.dump(json.loads(json.dumps(made, cls=encoder.JSONEncoder)))


def _tag(language: Language) -> str:
    return f"tidemark-{language.value}"


def _placed(rows: Iterable[Row]) -> Iterable[dashboard.Panel | dashboard.RowPanel]:
    """From left to right, then below. Raises ValueError for a panel that does not fit what is left of its line."""
    number, y = 1, 0
    for row in rows:
        yield dashboard.RowPanel(title=row.title, grid_pos=dashboard.GridPos(1, _COLUMNS, 0, y), id_val=number)
        number, x, y, height = number + 1, 0, y + 1, 0
        for panel in row.panels:
            place = cast(dashboard.GridPos, panel.grid_pos)
            if x == _COLUMNS:
                x, y, height = 0, y + height, 0
            if x + place.w > _COLUMNS or height not in (0, place.h):
                room = f"{_COLUMNS - x} wide and {height} high"
                raise ValueError(f"{panel.title}: got {place.w} x {place.h}, expected what is left of its line: {room}")
            panel.grid_pos = dashboard.GridPos(place.h, place.w, x, y)
            panel.id_val = number
            number, x, height = number + 1, x + place.w, place.h
            yield panel
        y += height


def _others(say: Say, language: Language) -> dashboard.DashboardLink:
    """To the other dashboards of the same language; time and choice go along."""
    return dashboard.DashboardLink(
        title=say("Tidemark dashboards", "Tidemark 仪表盘"),
        type_val=dashboard.DashboardLinkType.DASHBOARDS,
        icon="external link",
        tooltip=say("The other dashboards, for the same time and services", "其他仪表盘（沿用所选时间与服务）"),
        tags=[_tag(language)],
        include_vars=True,
        keep_time=True,
    )


def _variables(say: Say, *, with_pods: bool) -> Iterable[dashboard.VariableModel]:
    yield dashboard.VariableModel(
        type_val=dashboard.VariableType.DATASOURCE,
        name="datasource",
        label=say("Data source", "数据源"),
        description=say("The Prometheus that scrapes Tidemark.", "抓取 Tidemark 的 Prometheus。"),
        query="prometheus",
        current=dashboard.VariableOption(text="default", value="default"),
        refresh=dashboard.VariableRefresh.ON_DASHBOARD_LOAD,
    )
    known = f'__name__=~"{metrics.CONFIG_INFO.name}|{conditions.CONDITION}"'
    yield _choice("cluster", say("Cluster", "集群"), f"{{{known}}}")
    yield _choice("namespace", say("Namespace", "命名空间"), f'{{{known},cluster=~"$cluster"}}')
    yield _choice("service", say("Service", "服务"), f'{{{known},cluster=~"$cluster",namespace=~"$namespace"}}')
    if with_pods:
        yield _choice("pod", "Pod", queries.of_services(metrics.CONFIG_INFO.name))
    yield dashboard.VariableModel(
        type_val=dashboard.VariableType.CONSTANT,
        name=dashboard_files.RUNBOOKS_VARIABLE,
        label=say("Runbooks", "运维手册"),
        description=say("Where links to runbooks begin.", "运维手册链接的前缀。"),
        hide=dashboard.VariableHide.HIDE_VARIABLE,
        query=RUNBOOK_BASE_URL,
        current=dashboard.VariableOption(text=RUNBOOK_BASE_URL, value=RUNBOOK_BASE_URL),
    )


def _choice(name: str, label: str, series: str) -> dashboard.VariableModel:
    """Values of a label, several or all. All is `.*`, so that series without the label are not left out."""
    return dashboard.VariableModel(
        type_val=dashboard.VariableType.QUERY,
        name=name,
        label=label,
        datasource=parts.DATASOURCE,
        query={
            "qryType": _LABEL_VALUES,
            "query": f"label_values({series}, {name})",
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        current=dashboard.VariableOption(text=["All"], value=["$__all"]),
        multi=True,
        include_all=True,
        all_value=".*",
        refresh=dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED,
        sort=dashboard.VariableSort.ALPHABETICAL_ASC,
    )
