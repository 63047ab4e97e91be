"""The page of alerts: what each means, how urgent it is, and where its runbook lies."""

from __future__ import annotations

import re

from tidemark_operator.monitoring import inhibition
from tidemark_operator.monitoring.rules import catalog, promql
from tidemark_operator.monitoring.rules.model import Alert, Group
from tidemark_operator.monitoring.rules.thresholds import Thresholds

PATH = "docs/operations/alerts.md"
_RUNBOOKS = "../../operator/tidemark_operator/monitoring/runbooks"

_HEADER = """\
# Alerts

<!-- Written by `make render` from operator/tidemark_operator/monitoring/. Change the code, not this page. -->

Alerts and recording rules are code, rendered to `dashboards/rules/tidemark.rules.yaml` (plain Prometheus, 2.42 or
later) and `dashboards/rules/prometheusrule.yaml` (its operator). `critical`: somebody gets up for it. `warning`:
somebody looks at it today. `info`: somebody should know. Each alert has a runbook in English and Chinese: what it
means, how to look, which field to set to what.

## A site with a plain Prometheus

```
tidemark render --monitoring --out monitoring --runbook-base-url http://wiki.example.com/tidemark
promtool check rules monitoring/tidemark.rules.yaml
```

writes the rules, examples of `prometheus.yml` and `alertmanager.yml` to copy from, the runbooks to put behind that
address, and [dashboards](dashboards.md) for Grafana. Without `--out` the rules are printed; `--no-operator` leaves out
what only makes sense beside one. What the rules rely on:

- engines are scraped with job `tidemark-engine` and carry the labels `namespace` and `service`; the operator with job
  `tidemark-operator`. A label `cluster` is kept where there is one. Other labels do no harm;
- alerts about promises need traffic: below one request a minute (or one token a second) shares are noise, and no share
  is judged;
- at zero traffic nothing fires. When series vanish, `TidemarkEngineDown`, `TidemarkEngineMetricsAbsent`,
  `TidemarkOperatorDown` and `TidemarkNothingScraped` do, and nothing else: look at them first;
- by default `runbook_url` leads to the operator itself, which serves the runbooks at `/runbooks` of its metrics port,
  in English and Chinese, without the internet.
"""

_ANY = (
    ("service", "the service", "服务"),
    ("kind", "a kind of object", "某类对象"),
    ("key", "its name", "（名称）"),
    ("xid", "79, for example", " 编号"),
)
"""What stands in place of a label's value, in English and Chinese."""

_COLUMNS = "| alert | severity | for | meaning | 含义 | runbook |\n|---|---|---|---|---|---|"


def render() -> str:
    """The whole page, with the default thresholds."""
    groups = catalog.groups(Thresholds())
    parts = [_HEADER]
    for group in groups:
        if group.alerts:
            parts.append(f"## {_title(group)}\n\n{_COLUMNS}")
            parts.extend(map(_row, group.alerts))
            parts.append("")
    parts.append(
        "## What is silent while another fires\n\nIn the example for Alertmanager; each pair for the same service.\n\n"
        "| while this fires | these are not sent |\n|---|---|"
    )
    parts.extend(f"| `{rule.by}` | {', '.join(f'`{name}`' for name in rule.silenced)} |" for rule in inhibition.RULES)
    parts.append("\n## Recorded series\n\nFor dashboards and reports, too.\n\n| series | meaning |\n|---|---|")
    recorded = {rule.record: rule.help for group in groups for rule in group.recording}
    parts.extend(f"| `{name}` | {text} |" for name, text in recorded.items())
    return "\n".join(parts) + "\n"


def meanings(alert: Alert) -> tuple[str, str]:
    """What it means, of any service: in English and Chinese."""
    return _plain(alert.summary), _plain(alert.summary_zh)


def _title(group: Group) -> str:
    return group.name.removeprefix("tidemark-").capitalize()


def _row(alert: Alert) -> str:
    meaning, meaning_zh = meanings(alert)
    held = promql.duration(alert.for_seconds) if alert.for_seconds else "at once"
    links = f"[English]({_RUNBOOKS}/en/{alert.name}.md), [中文]({_RUNBOOKS}/zh/{alert.name}.md)"
    return f"| `{alert.name}` | {alert.severity.value} | {held} | {meaning} | {meaning_zh} | {links} |"


def _plain(text: str) -> str:
    """Without the template's braces, and as a sentence."""
    for label, english, chinese in _ANY:
        braces = f"{{{{ $labels.{label} }}}}"
        text = text.replace(braces, english) if text.isascii() else re.sub(f" ?{re.escape(braces)} ?", chinese, text)
    return text[:1].upper() + text[1:]
