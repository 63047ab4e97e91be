"""What `tidemark up` says while it runs: one line at every turn of events, a spinner in between on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich.console
import rich.status
import rich.text

from tidemark_operator.commands import changes
from tidemark_runtime.contract import http

_NEXT_TRY = " It was started again."


class View:
    """Use as a context manager."""

    def __init__(self, console: rich.console.Console, name: str) -> None:
        self._console = console
        self._name = name
        self._spinner: rich.status.Status | None = None
        self._said: tuple[str, ...] = ()
        self._warned: list[str] = []
        self._announced = False

    def __enter__(self) -> View:
        if self._console.is_terminal:
            self._spinner = self._console.status(f"{self._name}: starting")
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rest()

    def status(self, service: Mapping[str, Any], log: Path | None) -> None:
        """A new status of the service. `log`: of the pod that has a problem, if one has."""
        status: Mapping[str, Any] = service.get("status") or {}
        conditions = {item["type"]: item for item in status.get("conditions") or ()}
        ready = conditions.get("Ready")
        if ready is None:
            return
        self.warnings(status.get("warnings") or ())
        bad = conditions.get("Degraded", {}).get("status") == "True" or ready["reason"] == "InvalidSpec"
        said = (ready["status"], ready["reason"], _cause(ready["message"]) if bad else "")
        if self._spinner is not None:
            self._spinner.update(f"{self._name}: {_first_line(ready['message'])}")
        if said == self._said:
            return
        self._said = said
        if ready["status"] == "True":
            self._ready(service)
        elif bad:
            self.problem(f"{ready['reason']}: {ready['message']}", log)
        else:
            self._line(f"{ready['reason']}: {_first_line(ready['message'])}")

    def warnings(self, warnings: Sequence[str]) -> None:
        """Each once."""
        for warning in warnings:
            if warning not in self._warned:
                self._warned.append(warning)
                self._line(f"warning: {warning}", "yellow")

    def problem(self, text: str, log: Path | None = None) -> None:
        self._line(text, "red")
        if log is not None:
            self._line(f"  its log: {log}")

    def submitted(self, origin: str, answer: Mapping[str, Any]) -> None:
        """A manifest was taken over."""
        if answer["result"] == "unchanged":
            return
        self._line(f"{origin}: {answer['result']}")
        for change in answer["changes"]:
            self._line(f"  {change_line(change)}")

    def stopping(self, grace_seconds: float) -> None:
        """The last thing said."""
        self._rest()
        self._line(f"stopping; running requests have up to {grace_seconds:g} s (Ctrl-C again stops at once)")

    def _ready(self, service: Mapping[str, Any]) -> None:
        url, model = service["status"].get("url"), service["status"].get("model", self._name)
        if self._announced or url is None:
            self._line("Ready", "green")
            return
        self._announced = True
        self._line(f"Ready at {url}", "bold green")
        body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'
        self._plain(f"  ask:    curl {url}{http.CHAT_PATH} -H 'Content-Type: application/json' -d '{body}'")
        self._plain(f"  watch:  {url}{http.CONSOLE_PATH} in a browser")
        self._plain(f"  look:   tidemark status {self._name}")
        self._plain("  change: edit the file and save, or tidemark apply FILE")
        self._plain("  stop:   Ctrl-C")

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(rich.text.Text(f"{self._name}: {text}", style=style), soft_wrap=True)

    def _plain(self, text: str) -> None:
        self._console.print(rich.text.Text(text), soft_wrap=True)

    def _rest(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def change_line(change: Mapping[str, Any]) -> str:
    """`spec.scheduler.maxNumSeqs: 16 -> 32 (the engine restarts)`"""
    before, after = changes.written(change["before"]), changes.written(change["after"])
    return f"{change['path']}: {before} -> {after} ({change['effect']})"


def _cause(message: str) -> str:
    """A message without what only says that the next try has begun: each end of a process is told once."""
    return message.removesuffix(_NEXT_TRY)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
