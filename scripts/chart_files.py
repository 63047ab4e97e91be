"""The parts of the Helm chart that are made from code: the roles, from the permission table, and the CRD."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tidemark_operator import permissions
from tidemark_operator.api import crd
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules import render as rules_render
from tidemark_operator.monitoring.rules.model import About
from tidemark_operator.monitoring.rules.thresholds import Thresholds

RULES_PATH = "charts/tidemark/templates/_rules.tpl"
CRD_PATH = "charts/tidemark/templates/crd.yaml"

Page = Callable[[], str]

OPERATOR_RULES_PATH = "charts/tidemark/files/operator-rules.yaml"
DASHBOARDS_FOLDER = "charts/tidemark/files/dashboards"

_NAMED = '{{ include "%s" . | quote }}'
_MADE = "{{- /* Made by `make render` from %s; do not edit. */}}\n"


def rules() -> str:
    """One named template a scope: `tidemark.rules.services`, `.operator`, `.cluster`; and `tidemark.inspection...`."""
    found = [_MADE % "operator/tidemark_operator/permissions.py"]
    for name, table in (("rules", permissions.TABLE), ("inspection", permissions.INSPECTION)):
        for scope, rows in itertools.groupby(table, lambda row: row.scope):
            found.append(f'{{{{- define "tidemark.{name}.{scope.value}" -}}}}\n{_rules(rows)}{{{{- end }}}}\n')
    return "".join(found)


def definition() -> str:
    """The CRD as a template: upgraded with the chart, and kept when the chart is removed, for with it would go every
    service of the cluster (B093). Raises `ValueError` where its text would be taken for a template's."""
    text = crd.render()
    if "{{" in text or "}}" in text:
        raise ValueError("the CRD holds {{ or }}, which Helm would take for a template of its own")
    kept = "  annotations:\n    helm.sh/resource-policy: keep\n"
    metadata = "metadata:\n"
    if text.count(f"\n{metadata}") != 1:
        raise ValueError("the CRD has no single `metadata:` at the top")
    text = text.replace(f"\n{metadata}", f"\n{metadata}{kept}", 1)
    return f"{_MADE % crd.PATH}{{{{- if .Values.crds.create }}}}\n{text}{{{{- end }}}}\n"


def operator_rules() -> str:
    """`spec` of a PrometheusRule. A file and no template: Prometheus has its own braces. The chart puts the address of
    runbooks in."""
    thresholds = Thresholds()
    groups = catalog.groups(thresholds, About.OPERATOR)
    made = "# Made by `make render` from operator/tidemark_operator/monitoring/rules/; do not edit.\n"
    return made + rules_render.to_yaml(rules_render.body(groups, thresholds))


def _compact(page: Page) -> Page:
    """A dashboard without the space that makes the checked-in one easy to compare."""
    return lambda: json.dumps(json.loads(page()), ensure_ascii=False, separators=(",", ":")) + "\n"


def _rules(rows: Iterable[permissions.Permission]) -> str:
    lines = []
    for row in rows:
        lines += textwrap.wrap(row.why, 110, initial_indent="# ", subsequent_indent="# ")
        verbs = ", ".join(row.verbs)
        named = f", resourceNames: [{_NAMED % row.template}]" if row.template else ""
        lines.append(f'- {{apiGroups: ["{row.group}"], resources: ["{row.resource}"], verbs: [{verbs}]{named}}}')
    return "".join(f"{line}\n" for line in lines)


def pages(dashboards: Mapping[str, Page]) -> Mapping[str, Page]:
    """`dashboards`: the rendered ones by path; the chart has all of them, for it must be whole by itself."""
    return {
        CRD_PATH: definition,
        RULES_PATH: rules,
        OPERATOR_RULES_PATH: operator_rules,
        **{f"{DASHBOARDS_FOLDER}/{Path(path).name}": _compact(page) for path, page in dashboards.items()},
    }
