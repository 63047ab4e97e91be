"""A real browser, a scripted server that starts in a second, and a real engine with few pages."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import live
import pytest
import yaml
from playwright import sync_api

PATIENCE_MS = 30_000
CHROMIUM = shutil.which("chromium")
KEYS = {"contracts": "a-key-that-nobody-sees", "": "another-key-that-nobody-sees"}
START = {
    "model": {"name": "small", "maxContextTokens": 512},
    "kvCache": {"numPages": 33, "blockSize": 16, "swapSpace": "16Mi"},
    "scheduler": {"maxNumSeqs": 4, "maxNumBatchedTokens": 256},
    "hardware": {"threads": 1},
}
SCRIPTED = Path(__file__).parents[2] / "support" / "console_server.py"


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    """For one module: as long as Playwright's synchronous interface is open, an event loop runs in this thread, and no
    test of another module that awaits could run."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on PATH: install Debian's package chromium")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        # Root has no sandbox; /dev/shm of a container may be small.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


class Watched:
    """A page, and everything that went wrong in it."""

    def __init__(self, page: sync_api.Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.asked: set[str] = set()
        page.on("console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))
        page.on("request", lambda request: self.asked.add(request.url))


@pytest.fixture
def opened(browser: sync_api.Browser) -> Iterator[Callable[..., Watched]]:
    with contextlib.ExitStack() as contexts:

        def make(url: str, **options: object) -> Watched:
            context = browser.new_context(**({"locale": "en-US"} | options))
            contexts.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            watched = Watched(context.new_page())
            watched.page.goto(url)
            # Not wait_for_function: where it must ask twice it evaluates words, which the page's policy forbids.
            sync_api.expect(watched.page.locator("#model")).not_to_have_text("Tidemark")
            return watched

        yield make


class Scripted:
    """The scripted server: may be killed and started again at the same address."""

    def __init__(self) -> None:
        self.port = live.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SCRIPTED), str(self.port)])
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/status", timeout=5, verify=live.CERTIFICATES).status_code == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError("the scripted server does not answer")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def scripted_server() -> Iterator[Scripted]:
    server = Scripted()
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def scripted_url(scripted_server: Scripted) -> str:
    return scripted_server.url


@pytest.fixture(scope="session")
def real_server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.Server]:
    """The real engine with the real model, API keys, and 528 tokens of memory in 33 pages."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "engine.yaml").write_text(yaml.safe_dump(START))
    lines = [f"{key} name={name}" if name else key for name, key in KEYS.items()]
    (folder / "keys").write_text("\n".join(lines))
    flags = ["--config", str(folder / "engine.yaml"), "--api-keys-file", str(folder / "keys")]
    with live.serving(folder, str(smollm2_path), *flags) as server:
        yield server
