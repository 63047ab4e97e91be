"""Runbooks: one Markdown file an alert and language, beside this module. They travel with the package."""

from __future__ import annotations

from importlib import resources

from tidemark_operator.monitoring.rules.model import Language

PATH = "/runbooks"
"""Where the operator serves them."""


def url(base: str, alert: str, language: Language) -> str:
    """Where `runbook_url` leads."""
    return f"{base.rstrip('/')}/{language.value}/{alert}.md"


def names(language: Language) -> tuple[str, ...]:
    """Alerts with a runbook in this language, sorted."""
    folder = resources.files(__name__) / language.value
    return tuple(sorted(item.name.removesuffix(".md") for item in folder.iterdir() if item.name.endswith(".md")))


def text(alert: str, language: Language) -> str | None:
    """The Markdown; None where there is no such runbook. `alert` may come from a URL: only listed names are read."""
    if alert not in names(language):
        return None
    return (resources.files(__name__) / language.value / f"{alert}.md").read_text(encoding="utf-8")
