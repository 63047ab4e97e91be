"""Debian's Prometheus and Alertmanager as processes of a test: started, asked, ended."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import live
import yaml

Value = TypeVar("Value")

PACKAGES = {"prometheus": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager"}
"""Program -> the Debian package that has it. Elsewhere the second is called `alertmanager`."""
START_SECONDS = 60.0


def missing() -> str:
    """What this machine lacks, in a sentence; empty when it has both."""
    lacking = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    return f"not on this machine: Debian's {' and '.join(lacking)}" if lacking else ""


def until(what: str, ask: Callable[[], Value | None], seconds: float, pause: float = 0.1) -> Value:
    """Asks until the answer is something true. Raises `AssertionError`."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
    return answer


@dataclass(frozen=True)
class Program:
    """One that runs and answers HTTP."""

    url: str
    log: Path

    def get(self, path: str, **query: str) -> Any:
        """JSON."""
        answer = httpx.get(f"{self.url}{path}", params=query, timeout=30, trust_env=False, verify=live.CERTIFICATES)
        answer.raise_for_status()
        return answer.json()


class Prometheus(Program):
    def targets(self) -> list[dict[str, Any]]:
        """Those that are scraped, with labels, health and the last error."""
        return list(self.get("/api/v1/targets", state="active")["data"]["activeTargets"])

    def alerts(self) -> dict[str, str]:
        """Name -> `pending` or `firing`, the worse where there are several."""
        found: dict[str, str] = {}
        for alert in self.get("/api/v1/alerts")["data"]["alerts"]:
            name = alert["labels"]["alertname"]
            found[name] = "firing" if found.get(name) == "firing" else alert["state"]
        return found

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series with labels and value. Raises `httpx.HTTPStatusError` for an expression that is wrong."""
        return list(self.get("/api/v1/query", query=expression)["data"]["result"])

    def value(self, expression: str) -> float | None:
        """Of the one series; None where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def rule_problems(self) -> list[str]:
        """Rules that could not be evaluated, each with its error."""
        groups = self.get("/api/v1/rules")["data"]["groups"]
        return [
            f"{rule['name']}: {rule['lastError']}" for each in groups for rule in each["rules"] if "lastError" in rule
        ]


class Alertmanager(Program):
    def alerts(self) -> list[dict[str, Any]]:
        """All that it knows, those that are inhibited too."""
        return list(self.get("/api/v2/alerts"))


@contextlib.contextmanager
def prometheus(folder: Path, config: Mapping[str, Any], *flags: str) -> Iterator[Prometheus]:
    """`folder` has the rule files that `config` names."""
    command = ["prometheus", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn", *flags]
    with _running("prometheus", folder, config, command) as (url, log):
        yield Prometheus(url, log)


@contextlib.contextmanager
def alertmanager(folder: Path, config: Mapping[str, Any]) -> Iterator[Alertmanager]:
    """Alone: no cluster of several."""
    command = ["prometheus-alertmanager", f"--storage.path={folder / 'alerts'}", "--log.level=warn"]
    with _running("alertmanager", folder, config, [*command, "--cluster.listen-address="]) as (url, log):
        yield Alertmanager(url, log)


@contextlib.contextmanager
def _running(name: str, folder: Path, config: Mapping[str, Any], command: Sequence[str]) -> Iterator[tuple[str, Path]]:
    file, log, address = folder / f"{name}.yaml", folder / f"{name}.log", f"127.0.0.1:{live.free_port()}"
    file.write_text(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--config.file={file}", f"--web.listen-address={address}"], stdout=output, stderr=output
        )
        try:
            _wait(process, f"http://{address}", log)
            yield f"http://{address}", log
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"{process.args!r} ended with {process.returncode}:\n{log.read_text()}")
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}/-/ready", timeout=5, trust_env=False).status_code == 200
        return False

    until(f"{url} is ready", answers, START_SECONDS)
