"""Stands for the command `tidemark` in the tests of `tidemark up`: an engine that is up at once and computes nothing.

    stand_in_engine.py models fetch NAME          0, or 1 for the name `nowhere`; `far-away` takes ten minutes
    stand_in_engine.py serve --config FILE        answers the health paths and /status, and everything else with its pid

It starts a child, as the real server starts its engine, that nobody ends in an orderly way: the tests look for it
afterwards. A model name says how it behaves: `crashes` ends at once, `stubborn` ignores SIGTERM, `wakes` is ready
after a moment.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml

from tidemark_runtime.contract import http as contract
from tidemark_runtime.contract import reasons, settings


def main(arguments: list[str]) -> int:
    if arguments[:2] == ["models", "fetch"]:
        sys.stdout.write(f"fetching {arguments[2]}, process {os.getpid()}\n")
        sys.stdout.flush()
        if arguments[2] == "far-away":
            time.sleep(600)
        return int(arguments[2] == "nowhere")
    config = yaml.safe_load(Path(arguments[arguments.index("--config") + 1]).read_text())
    name = config["model"]["name"]
    if name == "crashes":
        sys.stderr.write(reasons.write(reasons.Reason.MODEL_NOT_FOUND, "there is no such model") + "\n")
        return 1
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    server = Server((config["server"]["host"], config["server"]["port"]), handler(config, child))
    if name == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()  # waits for what is running
    return 0


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True


def handler(config: dict[str, Any], child: subprocess.Popen[bytes]) -> type[http.server.BaseHTTPRequestHandler]:
    started = time.monotonic()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = config["model"]["name"] != "wakes" or time.monotonic() - started > 2
            if self.path == contract.STATUS_PATH:
                self.answer(200, status(config, ready))
            elif self.path == contract.READY_PATH:
                self.answer(200 if ready else 503, {})
            else:
                if self.path == "/slow":
                    sys.stdout.write("slow request\n")
                    sys.stdout.flush()
                    time.sleep(1)
                keys = config["server"].get("apiKeysFile")
                self.answer(
                    200,
                    {
                        "pid": os.getpid(),
                        "child": child.pid,
                        "maxNumSeqs": config["scheduler"]["maxNumSeqs"],
                        "keys": Path(keys).read_text() if keys else None,
                    },
                )

        def answer(self, code: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def status(config: dict[str, Any], ready: bool) -> dict[str, Any]:
    return {
        "version": "0",
        "state": "ready" if ready else "loading",
        "message": "stands in",
        "model": {"name": config["model"]["name"], "source": config["model"]["source"]},
        "config": {"hash": settings.config_hash(settings.parse(config))},
        "load": {"phase": "weights", "fraction": 0.5},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
