"""Ninety days of made series in a real Prometheus, and the truth that they were made from.

Two services: `team/contracts` with one engine all the time and a second one for twenty days, `team/chat` with one
engine of two devices for seventy. The first engine restarts once, and for five days nothing was scraped.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

DAY = 86_400
START = 1_751_328_000
"""2025-07-01 00:00 UTC."""
DAYS = 90
INTERVAL = 288
"""Seconds between samples: a small one would make this test slow, more than 300 would make holes."""
GAP_DAYS = (50, 55)
ABSENT = "prometheus is not on this machine; Debian's package `prometheus` has it"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: where it belongs, from when to when it was there (days), what it holds."""

    service: str
    pod: str
    first_day: int
    last_day: int
    devices: int
    tokens_per_second: float
    restarts_on: tuple[float, ...] = ()


ENGINES = (
    Engine("contracts", "a1", 0, 90, 1, 40.0, restarts_on=(30.3,)),
    Engine("contracts", "a2", 40, 60, 1, 35.0),
    Engine("chat", "b1", 10, 80, 2, 90.0),
)
NUM_HELD_AT_MOST = 4
FULL = "a2"
EVERY = {"tidemark_prompt_tokens_total": 0.7, "tidemark_generated_tokens_total": 0.3}
"""Series -> how much it grows with each token of traffic."""
FEW = {
    'tidemark_prefix_tokens_total{result="hit"}': 0.2,
    'tidemark_prefix_tokens_total{result="miss"}': 0.5,
    'tidemark_key_tokens_total{key="alice",kind="prompt"}': 0.7,
    'tidemark_requests_total{outcome="stop"}': 0.002,
}
"""Only of the engine that is there for twenty days, as the levels below: samples take their time."""
HELD, BUSY = "tidemark_device_seconds_total", "tidemark_device_busy_seconds_total"
BUSY_SHARE = 0.55
STORED, WIDE = 'tidemark_kv_token_bytes{precision="stored"}', 'tidemark_kv_token_bytes{precision="16bit"}'
TOKEN_BYTES = {STORED: 12_240.0, WIDE: 23_040.0}
FILL, RUNNING = "tidemark_batch_fill_ratio", "tidemark_requests_running"
MOST_RUNNING = 24


@dataclass
class Truth:
    """What happened, whether it was scraped or not."""

    grown: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """(series, service) -> all that was counted."""
    most_step: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """(series, service) -> the most that each engine counted in one interval, summed over its engines."""
    fills: list[float] = field(default_factory=list)
    """Every sample of the batch fill that was scraped."""

    def tolerance(self, series: str, service: str) -> float:
        """What `increase` may be off by: an interval at each end of a series, and one at a restart."""
        return 3 * self.most_step[series, service]


def traffic(engine: Engine, at: float) -> float:
    """Tokens a second: days and weeks have their shape."""
    hour = (at % DAY) / 3600
    weekend = 0.4 if (at // DAY) % 7 in (2, 3) else 1.0
    return engine.tokens_per_second * weekend * (1 + 0.6 * math.sin((hour - 8) / 24 * 2 * math.pi))


def write(path: Path) -> Truth:
    """OpenMetrics for `promtool tsdb create-blocks-from`: families together."""
    truth = Truth()
    lines: dict[str, list[str]] = defaultdict(list)
    for engine in ENGINES:
        _engine(engine, lines, truth)
    with path.open("w", encoding="utf-8") as file:
        for name in sorted(lines):
            file.writelines(lines[name])
        file.write("# EOF\n")
    return truth


def _engine(engine: Engine, lines: dict[str, list[str]], truth: Truth) -> None:
    service = f"team/{engine.service}"
    is_full = engine.pod == FULL
    shares = {**EVERY, **(FEW if is_full else {})}
    places = {series: _place(engine, series) for series in (*shares, HELD, BUSY, *TOKEN_BYTES, FILL, RUNNING)}
    restarts = [START + day * DAY for day in engine.restarts_on]
    gap = range(START + GAP_DAYS[0] * DAY, START + GAP_DAYS[1] * DAY)
    counts: dict[str, float] = defaultdict(float)
    most: dict[str, float] = defaultdict(float)
    for at in range(START + engine.first_day * DAY, START + engine.last_day * DAY, INTERVAL):
        if any(at - INTERVAL < restart <= at for restart in restarts):
            counts.clear()
        tokens = traffic(engine, at)
        grown = {series: share * tokens * INTERVAL for series, share in shares.items()}
        grown |= {HELD: engine.devices * INTERVAL, BUSY: BUSY_SHARE * engine.devices * INTERVAL}
        for series, amount in grown.items():
            counts[series] += amount
            most[series] = max(most[series], amount)
            truth.grown[series, service] += amount
        if at in gap:
            continue
        fill = tokens / engine.tokens_per_second / 1.6
        levels = {RUNNING: round(fill * MOST_RUNNING), **({FILL: fill, **TOKEN_BYTES} if is_full else {})}
        truth.fills += [round(fill, 3)] if is_full else []
        for series, value in {**counts, **levels}.items():
            name, place = places[series]
            lines[name].append(f"{place} {value:.3f} {at}\n")
    for series, amount in most.items():
        truth.most_step[series, service] += amount


def _place(engine: Engine, series: str) -> tuple[str, str]:
    """The name, and the series with its labels."""
    name, _, own = series.rstrip("}").partition("{")
    labels = f'namespace="team",service="{engine.service}",pod="{engine.pod}",job="tidemark-engine"'
    return name, f"{name}{{{labels}{',' if own else ''}{own}}}"


@contextlib.contextmanager
def prometheus(folder: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """A Prometheus that serves `folder/data` and scrapes nothing; its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(ABSENT)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *(options or ["--storage.tsdb.retention.time=100y"]),
    ]
    with (folder / f"log-{port}.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def fill(folder: Path) -> Truth:
    """One block in `folder/data`: promtool reads the whole text for each."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(ABSENT)
    truth = write(folder / "series.txt")
    command = [program, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=4374h"]
    subprocess.run(
        [*command, str(folder / "series.txt"), str(folder / "data")], check=True, capture_output=True, timeout=100
    )
    return truth


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/-/ready").status_code == httpx.codes.OK:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"Prometheus is not ready: exit code {process.poll()}")
