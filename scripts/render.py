"""Writes the reference pages, the CRD and the chart's roles from the code they describe.

With `--check` it compares instead and names what differs.

Run by `make render` and, with `--check`, by `make check`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import chart_files
import http_page
import metrics_page
import monitoring_files
import operator_metrics_page
from grafana import catalog as dashboards

from tidemark_operator.api import crd
from tidemark_operator.commands import reference
from tidemark_runtime import config_reference

ROOT = Path(__file__).resolve().parent.parent

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/engine-settings.md": config_reference.render,
    "docs/reference/http-api.md": http_page.render,
    "docs/reference/inferenceservice.md": reference.page,
    "docs/reference/metrics.md": metrics_page.render,
    operator_metrics_page.PATH: operator_metrics_page.render,
    crd.PATH: crd.render,
    **monitoring_files.PAGES,
    **dashboards.pages(),
    **chart_files.pages(dashboards.pages()),
}


def write(root: Path = ROOT) -> list[str]:
    """Write every page; return those that changed."""
    changed = differing(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(PAGES[path](), encoding="utf-8")
    return changed


def differing(root: Path = ROOT) -> list[str]:
    """Pages whose checked-in text is not what the code says now."""
    return [path for path, page in PAGES.items() if _read(root / path) != page()]


def main() -> int:
    if "--check" not in sys.argv[1:]:
        for path in write():
            sys.stdout.write(f"wrote {path}\n")
        return 0
    stale = differing()
    for path in stale:
        before, after = _read(ROOT / path).splitlines(), PAGES[path]().splitlines()
        sys.stderr.write("\n".join(difflib.unified_diff(before, after, path, "as the code says now", lineterm="")))
        sys.stderr.write(f"\n{path} is out of date: run `make render` and commit it\n")
    return 1 if stale else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
