"""Takes the pictures of the console page for the docs: a real engine under load, in a real browser.

    .venv/bin/python scripts/console_screenshots.py

It needs Chromium (Debian's `chromium` and `fonts-noto-cjk`) and the small model, takes about three minutes, and writes
docs/operations/images/console-en-light.png, console-zh-dark.png and console-phone.png.
"""

from __future__ import annotations

import base64
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import small_png
import yaml
from playwright import sync_api

from tidemark_runtime import model_store
from tidemark_runtime.contract import http

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "operations" / "images"
PORT = 21_900
URL = f"http://127.0.0.1:{PORT}"
CONFIG = {
    "model": {"name": "smollm2-135m", "maxContextTokens": 1024},
    "kvCache": {"numPages": 112, "blockSize": 16, "swapSpace": "64Mi"},
    "scheduler": {"maxNumSeqs": 16, "maxNumBatchedTokens": 256, "longRequestTokens": 256, "maxQueuedRequests": 128},
    "hardware": {"threads": 1},
}
KEYS = ("contracts", "support", "batch")
NUM_USERS = 18
PATIENCE_SECONDS = 600.0
SHOTS = (
    # name, locale, scheme, width and height in pixels, of the page from the top; longest file in bytes
    ("console-en-light", "en-US", "light", 1280, 1370, 150_000),
    ("console-zh-dark", "zh-CN", "dark", 1280, 1370, 150_000),
    ("console-phone", "en-US", "light", 360, 1180, 100_000),
)


_DECODE = """async (image) => {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${image}`)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data, width, height } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  const reader = new FileReader();
  const read = new Promise((resolve) => { reader.onload = () => resolve(reader.result.split(",")[1]); });
  reader.readAsDataURL(new Blob([data]));
  return { rgba: await read, width, height };
}"""


def main() -> int:
    browser = shutil.which("chromium")
    if browser is None:
        sys.stderr.write("chromium is not on PATH: install Debian's packages chromium and fonts-noto-cjk\n")
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with serving(), load(), sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        pages = [(shot, opened(chromium, *shot[1:5])) for shot in SHOTS]
        wait_for_a_sight()
        for (name, *_, most), page in pages:
            page.wait_for_timeout(1500)
            image = small_png.written(pixels_of(chromium, page.screenshot()))
            if len(image) > most:
                raise RuntimeError(f"{name} has {len(image)} bytes, expected at most {most}")
            (IMAGES / f"{name}.png").write_bytes(image)
            sys.stdout.write(f"wrote {name}.png, {len(image)} bytes\n")
        chromium.close()
    return 0


def opened(chromium: sync_api.Browser, locale: str, scheme: Any, width: int, height: int) -> sync_api.Page:
    page = chromium.new_context(
        locale=locale, color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce"
    ).new_page()
    page.goto(URL)
    return page


def pixels_of(chromium: sync_api.Browser, image: bytes) -> small_png.Pixels:
    """The browser reads its own PNG far faster than Python would. [height, width, 3]"""
    page = chromium.new_page()
    answer = page.evaluate(_DECODE, base64.b64encode(image).decode())
    page.close()
    flat = np.frombuffer(base64.b64decode(answer["rgba"]), np.uint8)
    return flat.reshape(answer["height"], answer["width"], 4)[:, :, :3]


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """A server with an engine whose pages a few requests fill."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "engine.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        (folder / "keys").write_text("".join(f"key-of-{key} name={key}\n" for key in KEYS), encoding="utf-8")
        model = str(model_store.fetch("smollm2-135m"))
        flags = ["--config", str(folder / "engine.yaml"), "--api-keys-file", str(folder / "keys"), "--port", str(PORT)]
        process = subprocess.Popen([sys.executable, "-m", "tidemark_operator", "serve", model, *flags])
        try:
            until("ready", lambda: httpx.get(URL + http.READY_PATH, timeout=5).status_code == 200)
            yield
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Some users with questions of all lengths, one after the other; each with the key of a team."""
    ended = threading.Event()
    users = [threading.Thread(target=ask, args=(index, ended), daemon=True) for index in range(NUM_USERS)]
    for user in users:
        user.start()
    try:
        yield
    finally:
        ended.set()


def ask(index: int, ended: threading.Event) -> None:
    drawn = random.Random(index)
    headers = {"authorization": f"Bearer key-of-{KEYS[index % len(KEYS)]}"}
    with httpx.Client(base_url=URL, headers=headers, timeout=600) as client:
        while not ended.is_set():
            num_prompt, num_answer = drawn.choice(((30, 30), (60, 40), (90, 60), (150, 50), (320, 60)))
            prompt = [drawn.randrange(1000, 40_000) for _ in range(num_prompt)]
            body = {"prompt": prompt, "max_tokens": num_answer, "ignore_eos": True}
            with contextlib.suppress(httpx.HTTPError):
                client.post(http.COMPLETIONS_PATH, json=body)


def wait_for_a_sight() -> None:
    """Until there is something of everything: a line is crossed and was before, some wait, some have been answered."""

    def worth_a_picture() -> bool:
        document = httpx.get(URL + http.CONSOLE_DATA_PATH, timeout=10).json()
        status = document["status"]
        return bool(
            status["lines"]["queue"]["above"]
            and len(document["crossings"]) > 1
            and status["queue"]["waiting"] >= 2
            and sum(document["totals"]["requestsByOutcome"].values()) > 1
        )

    until("worth a picture", worth_a_picture)


def until(what: str, condition: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return
        time.sleep(0.4)
    raise RuntimeError(f"not {what} within {PATIENCE_SECONDS:g} s")


if __name__ == "__main__":
    sys.exit(main())
