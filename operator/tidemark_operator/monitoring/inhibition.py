"""Which alerts are silent while another fires, because that one says it better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_operator.monitoring.rules import promql


@dataclass(frozen=True, slots=True)
class Inhibition:
    """`silenced` are not sent while `by` fires with the same values of `equal`."""

    by: str
    silenced: tuple[str, ...]
    equal: tuple[str, ...] = promql.SERVICE

    def dump(self) -> dict[str, Any]:
        """One entry of Alertmanager's `inhibit_rules`."""
        targets = f'alertname=~"{"|".join(self.silenced)}"'
        return {
            "source_matchers": [f'alertname="{self.by}"'],
            "target_matchers": [targets],
            "equal": list(self.equal),
        }


RULES = (
    Inhibition("TidemarkMemoryPreemptLine", ("TidemarkMemoryQueueLine", "TidemarkMemoryDrowning")),
    Inhibition("TidemarkMemoryQueueLine", ("TidemarkMemoryDrowning",)),
    Inhibition(
        "TidemarkServiceUnavailable",
        ("TidemarkServiceNotReady", "TidemarkReplicasMissing", "TidemarkRolloutStuck", "TidemarkEngineDown"),
    ),
    Inhibition(
        "TidemarkCapacityExceeded", ("TidemarkServiceNotReady", "TidemarkReplicasMissing", "TidemarkRolloutStuck")
    ),
    Inhibition("TidemarkRolloutStuck", ("TidemarkServiceNotReady", "TidemarkReplicasMissing")),
    Inhibition("TidemarkCertificateExpiresSoon", ("TidemarkCertificateExpires",)),
    Inhibition("TidemarkAvailabilityBurnsFast", ("TidemarkAvailabilityBurnsSlowly", "TidemarkRequestsFailing")),
    Inhibition("TidemarkFirstTokenBurnsFast", ("TidemarkFirstTokenBurnsSlowly", "TidemarkQueueWaitHigh")),
    Inhibition("TidemarkInterTokenBurnsFast", ("TidemarkInterTokenBurnsSlowly",)),
    Inhibition("TidemarkNothingScraped", ("TidemarkOperatorDown",), equal=("cluster",)),
)
"""The critical of a pair silences its warning; what follows from another is not told twice."""
