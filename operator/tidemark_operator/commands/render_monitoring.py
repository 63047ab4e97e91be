"""`tidemark render --monitoring`: rules, examples, runbooks and dashboards for a site with a plain Prometheus."""

from __future__ import annotations

from pathlib import Path

import typer

from tidemark_operator import errors
from tidemark_operator.commands import operator_inputs
from tidemark_operator.monitoring import dashboard_files, site
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL, Thresholds


def run(out: Path | None, runbook_base_url: str | None, *, with_operator: bool) -> None:
    """Print the rules, or write everything into the folder `out`. Raises `errors.ManifestFileError`."""
    thresholds = Thresholds(runbook_base_url=_address(runbook_base_url), with_operator=with_operator)
    if out is None:
        typer.echo(site.rules(thresholds)[site.RULES].rstrip("\n"))
        return
    dashboards = dashboard_files.files(thresholds.runbook_base_url, with_operator=with_operator)
    files = {**site.files(thresholds), **dashboards}
    for path, text in files.items():
        _write(out / path, text)
    typer.echo(f"wrote {len(files)} files to {out}: {site.RULES} for `rule_files:`, examples, runbooks, and dashboards")


def _address(given: str | None) -> str:
    if given is None:
        return RUNBOOK_BASE_URL
    return operator_inputs.url("--runbook-base-url", given)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.ManifestFileError(
            f"--out: cannot write {path}: {error.strerror}. Name a folder that you may write to"
        ) from error
