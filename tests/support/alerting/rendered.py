"""The files that `tidemark render --monitoring --out` writes, and what a site or a drill changes in them."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from alerting import rule_clock

from tidemark_operator.monitoring import site


@dataclass(frozen=True)
class Files:
    """The folder that the command wrote."""

    folder: Path

    def document(self, name: str) -> dict[str, Any]:
        return dict(yaml.safe_load((self.folder / name).read_text(encoding="utf-8")))

    @functools.cached_property
    def rules(self) -> dict[str, Any]:
        return self.document(site.RULES)

    @functools.cached_property
    def alerts(self) -> dict[str, dict[str, Any]]:
        """Every alert, by name."""
        rules = (rule for group in self.rules["groups"] for rule in group["rules"])
        return {rule["alert"]: rule for rule in rules if "alert" in rule}


def write(folder: Path, runbook_base_url: str) -> Files:
    """By the command, in a process of its own."""
    command = [sys.executable, "-m", "tidemark_operator", "render", "--monitoring", "--out", str(folder)]
    words = [*command, "--runbook-base-url", runbook_base_url]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return Files(folder)


def alertmanager(files: Files, factor: float, webhook_url: str) -> dict[str, Any]:
    """The example. A site puts in its receivers: here one address for all of them."""
    config: dict[str, Any] = rule_clock.document(files.document(site.ALERTMANAGER), factor)
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": webhook_url, "send_resolved": True}]
    return config


def with_alertmanager(config: Mapping[str, Any], url: str) -> dict[str, Any]:
    """A site puts in the address of its Alertmanager."""
    target = url.removeprefix("http://")
    return {**config, "alerting": {"alertmanagers": [{"static_configs": [{"targets": [target]}]}]}}
