"""Questions to everybody who takes part: Prometheus, Alertmanager, its receiver, the resource, the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from alerting import inbox
from drill.site import NAME, SOFT_LIMIT, Site
from drill.timeline import unix

from tidemark_runtime.contract import http

QUEUE, PREEMPT = "TidemarkMemoryQueueLine", "TidemarkMemoryPreemptLine"
_LOOKBACK = "2h"
"""Longer than any drill."""


class Watch:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.first_hash = str(self._config()["hash"])

    # -- now --

    def crossed(self, line: str) -> bool:
        return self._site.prometheus.value(f"max({_line(line)})") == 1.0

    def firing(self, alert: str) -> bool:
        return self._site.prometheus.alerts().get(alert) == "firing"

    def note(self, alert: str, is_firing: bool) -> inbox.Note | None:
        return self._site.mail.first(alert, is_firing=is_firing)

    def is_inhibited(self, alert: str) -> bool:
        """Alertmanager knows it, and does not send it."""
        return any(
            found["labels"]["alertname"] == alert and found["status"]["inhibitedBy"]
            for found in self._site.alertmanager.alerts()
        )

    def is_silent(self) -> bool:
        return not {QUEUE, PREEMPT} & {found["labels"]["alertname"] for found in self._site.alertmanager.alerts()}

    def pressure(self) -> dict[str, Any]:
        """The condition."""
        conditions = self._site.service().get("status", {}).get("conditions", [])
        return next((item for item in conditions if item["type"] == "MemoryPressure"), {})

    def limit(self) -> int:
        tightened = self._site.service().get("status", {}).get("tightened") or {}
        return int(tightened.get("maxConcurrencySoft", SOFT_LIMIT))

    def is_as_the_spec_says(self) -> bool:
        """What the engine runs."""
        return bool(self._config()["hash"] == self.first_hash)

    def scraped_config(self, *, is_first: bool) -> bool:
        """Whether the last scrape of the engine had its first configuration, or another one."""
        return bool(self._site.prometheus.query(self._of_config(is_first=is_first)))

    def _of_config(self, *, is_first: bool) -> str:
        sign = "=" if is_first else "!="
        return f'tidemark_config_info{{service="{NAME}",hash{sign}"{self.first_hash}"}}'

    def _config(self) -> dict[str, Any]:
        answer = httpx.get(f"{self._site.engine_url}{http.STATUS_PATH}", timeout=30, trust_env=False, verify=False)
        answer.raise_for_status()
        return dict(answer.json()["config"])

    # -- when it was --

    def events(self) -> dict[str, dict[str, Any]]:
        """Reason -> its first event."""
        found = sorted(self._site.events(), key=lambda event: str(event["eventTime"]), reverse=True)
        return {event["reason"]: event for event in found}

    def when_event(self, *reasons: str) -> float:
        """The first of any of them."""
        events = self.events()
        return min(unix(events[reason]["eventTime"]) for reason in reasons if reason in events)

    def when_crossed(self, line: str, since: float) -> float:
        """When the time above the line was first seen to have grown. That is what the alert goes by; the state, looked
        at once a scrape, misses what is short."""
        selector = f'tidemark_watermark_seconds_total{{service="{NAME}",level="{line}"}}'
        samples = sorted(self._samples(selector))
        before = max((value for at, value in samples if at < since), default=0.0)
        found = [at for at, value in samples if at >= since and value > before]
        assert found, f"no sample of {selector} is above {before:g}"
        return min(found)

    def when_left(self, line: str, since: float) -> float:
        return self._first(_line(line), since, 0.0)

    def when_alert(self, alert: str, state: str, since: float) -> float:
        return self._first(f'ALERTS{{alertname="{alert}",alertstate="{state}"}}', since)

    def when_config(self, since: float, *, is_first: bool) -> float:
        """When the engine was first seen with another configuration than its first one, or with that again."""
        return self._first(self._of_config(is_first=is_first), since)

    def _first(self, selector: str, since: float, value: float = 1.0) -> float:
        """Time of the first sample with this value. Raises `AssertionError` when there is none."""
        found = [at for at, shown in self._samples(selector) if at >= since and shown == value]
        assert found, f"no sample of {selector} is {value:g}"
        return min(found)

    def _samples(self, selector: str) -> Iterator[tuple[float, float]]:
        """Time and value."""
        for series in self._site.prometheus.query(f"{selector}[{_LOOKBACK}]"):
            yield from ((float(at), float(shown)) for at, shown in series["values"])


def _line(line: str) -> str:
    return f'tidemark_watermark_state{{service="{NAME}",level="{line}"}}'
