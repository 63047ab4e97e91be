"""The demo: a manifest becomes a running model on this machine, and answers. Run by `make demo`.

On a terminal it stays until Ctrl-C; without one it ends by itself. Either way it leaves no process behind, and any
failure ends with a code other than 0 and the last lines of what `tidemark up` said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import httpx
import psutil
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
TIDEMARK = str(Path(sys.executable).with_name("tidemark"))
MODEL = "smollm2-135m"
SERVICE = "smollm2"
USUAL_PORT = 8000
QUESTIONS = ("What is a tide? Answer in one sentence.", "Name three things one can find on a beach.")
LOG_LINES = 30

console = Console(highlight=False)


class DemoFailed(Exception):
    """Something did not go as shown; `str(error)` says what."""


@dataclass(frozen=True, slots=True)
class Up:
    """The running `tidemark up`."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str

    def log_tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])

    def check_alive(self) -> None:
        code = self.process.poll()
        if code is not None:
            raise DemoFailed(f"`tidemark up` ended with {code}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch a small model, start it from a manifest, watch it answer.")
    parser.add_argument("--manifest", type=Path, default=ROOT / "examples" / "smollm2.yaml")
    parser.add_argument("--timeout-seconds", type=float, default=240.0, help="longest wait for Ready")
    parser.add_argument("--once", action="store_true", help="end by itself, on a terminal too")
    options = parser.parse_args()
    for deadly in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(deadly, _leave)
    try:
        fetch()
        with started(options.manifest, choose_port()) as up:
            wait_until_ready(up, options.timeout_seconds)
            for question in QUESTIONS:
                ask(up.url, question)
            show_status()
            show_what_next(up.url)
            if sys.stdout.isatty() and not options.once:
                console.print("\nIt goes on running. [bold]Ctrl-C[/] stops it.")
                up.process.wait()
                up.check_alive()
    except DemoFailed as error:
        console.print(f"[red]demo: {error}[/]")
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left running.")
        return 0
    return 0


def fetch() -> None:
    """The model of the demo; a second time it is only verified to be there."""
    step(f"tidemark models fetch {MODEL}")
    if subprocess.run([TIDEMARK, "models", "fetch", MODEL], check=False).returncode != 0:
        raise DemoFailed("the model could not be fetched; the lines above say why")


def choose_port() -> int:
    """The usual port when it is free, else any."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
            return USUAL_PORT
        except OSError:
            pass
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    console.print(f"Port {USUAL_PORT} is in use on this machine; the demo takes {port}.")
    return port


@contextlib.contextmanager
def started(manifest: Path, port: int) -> Iterator[Up]:
    """`tidemark up` in the background; stopped at the end, whatever happens inside."""
    shown = manifest.relative_to(ROOT) if manifest.is_relative_to(ROOT) else manifest
    step(f"tidemark up {shown}" + (f" --port {port}" if port != USUAL_PORT else ""))
    with tempfile.TemporaryDirectory(prefix="tidemark-demo-") as folder:
        log = Path(folder) / "up.log"
        with log.open("wb") as output:
            # A session of its own: Ctrl-C reaches only this script, which then stops `up` once and waits for it.
            process = subprocess.Popen(
                [TIDEMARK, "up", str(manifest), "--port", str(port), "--exit-on-failure"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        up = Up(process, log, f"http://127.0.0.1:{port}")
        try:
            yield up
        except (DemoFailed, httpx.HTTPError) as error:
            console.print(f"\nThe last lines of `tidemark up`:\n{up.log_tail()}\n", markup=False)
            raise DemoFailed(str(error) or type(error).__name__) from error
        finally:
            stop(up)


def stop(up: Up) -> None:
    """Ask `up` to end, and make sure that nothing it started is left."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(up.process.pid).children(recursive=True)
    if up.process.poll() is None:
        up.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            up.process.wait(90)
    if up.process.poll() is None:
        up.process.kill()
        up.process.wait()
    _, left = psutil.wait_procs(family, timeout=10)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if left:
        raise DemoFailed(f"`tidemark up` left {len(left)} processes behind; they were killed")


@dataclass(frozen=True, slots=True)
class State:
    """What the service says of itself."""

    ready: bool
    message: str
    fraction: float = 0.0
    """Of the weights that are loaded."""

    def __str__(self) -> str:
        return f"{self.message}  {self.fraction:.0%}" if self.fraction else self.message


def wait_until_ready(up: Up, timeout_seconds: float) -> None:
    """Show what the service says of itself until its condition Ready is True."""
    begun = time.monotonic()
    last = ("", 0)
    with console.status("starting") as spinner:
        while True:
            up.check_alive()
            state = service_state()
            elapsed = time.monotonic() - begun
            if state.ready:
                break
            if elapsed > timeout_seconds:
                raise DemoFailed(f"not Ready after {timeout_seconds:.0f} s; it says: {state}")
            spinner.update(f"{state}  ({elapsed:.0f} s)")
            now = (state.message, int(state.fraction * 4))
            if now != last and not console.is_terminal:
                console.print(f"  {state}")
            last = now
            time.sleep(0.5)
    console.print(f"Ready after {elapsed:.1f} s at {up.url}")


def service_state() -> State:
    """From `tidemark status --output json`; before `up` listens to it there is no answer yet."""
    asked = subprocess.run(
        [TIDEMARK, "status", SERVICE, "--output", "json"], capture_output=True, text=True, check=False
    )
    try:
        overview: dict[str, Any] = json.loads(asked.stdout)
    except json.JSONDecodeError:
        return State(ready=False, message="starting")
    conditions = {item["type"]: item for item in overview["status"].get("conditions", [])}
    message = conditions.get("Ready", {}).get("message") or "starting"
    message = message.partition(" (")[0].rstrip(".")  # which tensor is being read is more than one wants to know here
    loads = [pod["engine"]["load"] for pod in overview["pods"] if pod["engine"] and pod["engine"]["load"]]
    return State(bool(overview["ready"]), message, loads[0]["fraction"] if loads else 0.0)


def ask(url: str, question: str) -> None:
    """Stream one answer and print its tokens as they come."""
    console.print(f"\n[bold]> {question}[/]")
    body = {
        "model": SERVICE,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 80,
        "temperature": 0,
    }
    begun, first, num_tokens, ended = time.monotonic(), None, 0, False
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as response:
        if response.status_code != 200:
            response.read()
            raise DemoFailed(f"the server answered {response.status_code}: {response.text}")
        for line in response.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    raise DemoFailed(f"the answer broke off: {chunk['error']['message']}")
                num_tokens = (chunk.get("usage") or {}).get("completion_tokens", num_tokens)
                for choice in chunk["choices"]:
                    text = choice["delta"].get("content") or ""
                    first = first or (time.monotonic() if text else None)
                    console.out(text, end="", highlight=False)
    if not ended or first is None:
        raise DemoFailed("the stream ended without an answer")
    seconds = time.monotonic() - first
    rate = f", then {(num_tokens - 1) / seconds:.0f} tokens/s" if num_tokens > 1 and seconds > 0 else ""
    console.print(f"\n[dim]first token after {first - begun:.2f} s{rate}[/]")


def show_status() -> None:
    step(f"tidemark status {SERVICE}")
    if subprocess.run([TIDEMARK, "status", SERVICE], check=False).returncode != 0:
        raise DemoFailed(f"`tidemark status {SERVICE}` says that something is wrong")


def show_what_next(url: str) -> None:
    console.print(
        f"""
To go on, from another terminal while it runs (`.venv/bin/tidemark up examples/smollm2.yaml` starts it again):

  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "{SERVICE}", "messages": [{{"role": "user", "content": "Hello"}}]}}'

  # .venv/bin/python
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="none")
  answer = client.chat.completions.create(model="{SERVICE}", messages=[{{"role": "user", "content": "Hello"}}])
  print(answer.choices[0].message.content)""",
        markup=False,
        soft_wrap=True,
    )


def step(command: str) -> None:
    console.print(f"\n[bold cyan]$ {command}[/]")


def _leave(received: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + received)


if __name__ == "__main__":
    sys.exit(main())
