"""The rendered rules on fast clocks, so that an alert that takes minutes and one that takes hours come together."""

from __future__ import annotations

import re
from typing import Any

from alerting import rule_clock

MINUTES = 100.0
"""Five minutes, the shortest window, become three seconds: six samples of a scrape twice a second."""
HOURS = 700.0
"""For alerts that wait for an hour or look back over hours: an hour becomes five seconds."""
DAYS = 2400.0
"""For alerts that look back over two hours at least: two hours become three seconds."""
_SLOW_SECONDS = 1800.0
_SLOWEST_SECONDS = 7200.0
_NAMES = {MINUTES: "minutes", HOURS: "hours", DAYS: "days"}


def clock_of(rules: dict[str, Any], alert: str) -> float:
    """How much faster the time of an alert passes."""
    shortest = min(rule_clock.windows(expressions(rules, alert)), default=0.0)
    waits = rule_clock.seconds(_alerts(rules)[alert].get("for", "0s"))
    if shortest >= _SLOWEST_SECONDS:
        return DAYS
    return HOURS if max(waits, shortest) >= _SLOW_SECONDS else MINUTES


def expressions(rules: dict[str, Any], alert: str) -> str:
    """That of an alert, and those of all recorded series behind it."""
    own: str = _alerts(rules)[alert]["expr"]
    return "\n".join([own, *(read["expr"] for read in _reads(rules, own))])


def files(rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A rule file for each clock, by name. Together they have every alert once."""
    found = {}
    for factor, name in _NAMES.items():
        own = _only(rules, {alert for alert in _alerts(rules) if clock_of(rules, alert) == factor})
        found[f"{name}.yaml"] = rule_clock.document(own if factor == MINUTES else _renamed(own, f"_{name}"), factor)
    return found


def _alerts(rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule}


def _recorded(rules: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in rules["groups"] for rule in group["rules"] if "record" in rule]


def _reads(rules: dict[str, Any], expression: str) -> list[dict[str, Any]]:
    """Recorded series that an expression names, and those that these name. `slo="..."` tells series of a name apart."""
    found = []
    for rule in _recorded(rules):
        own_labels = all(f'{label}="{value}"' in expression for label, value in rule.get("labels", {}).items())
        if re.search(rf"\b{re.escape(rule['record'])}\b", expression) and own_labels:
            found += [rule, *_reads(rules, rule["expr"])]
    return found


def _only(rules: dict[str, Any], alerts: set[str]) -> dict[str, Any]:
    """These alerts and what they read, in the order and the groups of the file."""
    wanted = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") in alerts]
    keep = [*wanted, *(read for rule in wanted for read in _reads(rules, rule["expr"]))]
    groups = ({**group, "rules": [rule for rule in group["rules"] if rule in keep]} for group in rules["groups"])
    return {"groups": [group for group in groups if group["rules"]]}


def _renamed(rules: dict[str, Any], suffix: str) -> dict[str, Any]:
    """With other names for recorded series and groups: the same are recorded on another clock."""
    names = sorted({rule["record"] for rule in _recorded(rules)}, key=len, reverse=True)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b" if names else r"(?!)")

    def new(rule: dict[str, Any]) -> dict[str, Any]:
        named = {"record": rule["record"] + suffix} if "record" in rule else {}
        return {**rule, **named, "expr": pattern.sub(rf"\1{suffix}", rule["expr"])}

    return {
        "groups": [
            {**group, "name": group["name"] + suffix, "rules": [new(rule) for rule in group["rules"]]}
            for group in rules["groups"]
        ]
    }
