"""The parts of the Helm chart that are made from code: the roles, from the permission table, and the CRD."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable

from tidemark_operator import permissions
from tidemark_operator.api import crd

RULES_PATH = "charts/tidemark/templates/_rules.tpl"
CRD_PATH = "charts/tidemark/templates/crd.yaml"

_MADE = "{{- /* Made by `make render` from %s; do not edit. */}}\n"


def rules() -> str:
    """One named template a scope: `tidemark.rules.services`, `.operator`, `.cluster`."""
    found = [_MADE % "operator/tidemark_operator/permissions.py"]
    for scope, rows in itertools.groupby(permissions.TABLE, lambda row: row.scope):
        found.append(f'{{{{- define "tidemark.rules.{scope.value}" -}}}}\n{_rules(rows)}{{{{- end }}}}\n')
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


def _rules(rows: Iterable[permissions.Permission]) -> str:
    lines = []
    for row in rows:
        lines += textwrap.wrap(row.why, 110, initial_indent="# ", subsequent_indent="# ")
        verbs = ", ".join(row.verbs)
        lines.append(f'- {{apiGroups: ["{row.group}"], resources: ["{row.resource}"], verbs: [{verbs}]}}')
    return "".join(f"{line}\n" for line in lines)
