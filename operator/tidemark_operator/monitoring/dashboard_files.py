"""Grafana's dashboards as rendered text, for whoever hands them on: the operator, and `tidemark render --monitoring`.

They are made by `scripts/grafana/`, which needs a library of developers. What runs on a site reads the files only: from
`dashboards/grafana/` of the checkout, or from the same path in the installed package's folder `_data`.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tidemark_operator import errors
from tidemark_operator.monitoring.rules.model import Language
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL

FOLDER = "dashboards/grafana"
LANGUAGES = tuple(language.value for language in Language)
RUNBOOKS_VARIABLE = "runbooks"
"""Name of the dashboards' variable with the address that links to runbooks begin with."""

_OF_OPERATOR = "operator"
_NAMES = ("overview", "memory", "scheduling", "requests", "compute", _OF_OPERATOR)


def names() -> tuple[str, ...]:
    """Every dashboard, the overview first."""
    return _NAMES


def file_name(name: str, language: str) -> str:
    """`overview.en.json`."""
    return f"{name}.{language}.json"


def uid(name: str, language: str) -> str:
    """By which Grafana knows it, and links name it; it never changes. At most 40 characters."""
    return f"tidemark-{name}-{language}"


def read(name: str, language: str, runbook_base_url: str = RUNBOOK_BASE_URL) -> str:
    """The JSON that Grafana imports. Links to runbooks begin with `runbook_base_url`.

    Raises `errors.ManifestFileError` for a name or language that there is not, and where the files are missing.
    """
    if name not in _NAMES or language not in LANGUAGES:
        raise errors.ManifestFileError(
            f"dashboard: got {name!r} in {language!r}, expected one of {', '.join(_NAMES)} in {' or '.join(LANGUAGES)}"
        )
    text = _text(folder() / file_name(name, language))
    return text if runbook_base_url == RUNBOOK_BASE_URL else _with_runbooks(text, runbook_base_url)


@functools.cache
def _text(path: Path) -> str:
    """Read once: an operator makes a dashboard for each service, again and again."""
    return path.read_text(encoding="utf-8")


def files(runbook_base_url: str, *, with_operator: bool = True) -> dict[str, str]:
    """All of them for a site's Grafana, by path: `dashboards/overview.en.json`. Raises `errors.ManifestFileError`."""
    wanted = [name for name in _NAMES if with_operator or name != _OF_OPERATOR]
    return {
        f"dashboards/{file_name(name, language)}": read(name, language, runbook_base_url)
        for name in wanted
        for language in LANGUAGES
    }


def folder() -> Path:
    """Where the files lie. Raises `errors.ManifestFileError` where they are not."""
    here = Path(__file__).resolve().parent.parent
    for root in (here.parent.parent, here / "_data"):
        if (root / FOLDER / file_name(_NAMES[0], LANGUAGES[0])).is_file():
            return root / FOLDER
    raise errors.ManifestFileError(
        f"{here}: the dashboards are neither in a checkout around it nor in its folder _data. Install the wheel again, "
        "or run `make render` in a checkout"
    )


def dump(content: object) -> str:
    """JSON as these files are written."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _with_runbooks(text: str, base_url: str) -> str:
    """The same dashboard with another address in its variable."""
    content = json.loads(text)
    address = base_url.rstrip("/")
    for variable in content["templating"]["list"]:
        if variable["name"] == RUNBOOKS_VARIABLE:
            variable["query"] = address
            variable["current"] = {"text": address, "value": address}
    return dump(content)
