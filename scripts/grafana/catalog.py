"""All dashboards, and the text of each in each language."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grafana import compute, frame, memory, operator, overview, requests, scheduling
from grafana.words import Say
from tidemark_operator.monitoring import dashboard_files
from tidemark_operator.monitoring.rules.model import Language

CONTENTS: Mapping[str, Callable[[Say], frame.Content]] = {
    "overview": overview.content,
    "memory": memory.content,
    "scheduling": scheduling.content,
    "requests": requests.content,
    "compute": compute.content,
    "operator": operator.content,
}
"""By the name that `dashboard_files` has."""


def pages() -> Mapping[str, Callable[[], str]]:
    """Path in the checkout -> what makes the text."""
    return {
        f"{dashboard_files.FOLDER}/{dashboard_files.file_name(name, language.value)}": _page(name, language)
        for name in CONTENTS
        for language in Language
    }


def _page(name: str, language: Language) -> Callable[[], str]:
    return lambda: frame.render(name, CONTENTS[name](Say(language)), language)
