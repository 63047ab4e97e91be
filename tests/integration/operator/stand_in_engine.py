"""Stands for the command `tidemark` in the tests of `tidemark up`: an engine that is up at once and computes nothing.

    stand_in_engine.py models fetch NAME          0, or 1 for the name `nowhere`; `far-away` takes ten minutes
    stand_in_engine.py serve --config FILE        answers the health paths, /status and /admin/config (as the real one
                                                  does, by the same comparison), and everything else with its pid

It starts a child, as the real server starts its engine, that nobody ends in an orderly way: the tests look for it
afterwards. A model name says how it behaves: `crashes` ends at once, `stubborn` ignores SIGTERM, `wakes` is ready
after a moment.
"""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from email.message import Message
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tidemark_runtime import errors
from tidemark_runtime.contract import admin, reasons, settings
from tidemark_runtime.contract import http as contract


def main(arguments: list[str]) -> int:
    if arguments[:2] == ["models", "fetch"]:
        sys.stdout.write(f"fetching {arguments[2]}, process {os.getpid()}\n")
        sys.stdout.flush()
        if arguments[2] == "far-away":
            time.sleep(600)
        return int(arguments[2] == "nowhere")
    file = arguments[arguments.index("--config") + 1]
    config = yaml.safe_load(Path(file).read_text())
    name = config["model"]["name"]
    if name == "crashes":
        sys.stderr.write(reasons.write(reasons.Reason.MODEL_NOT_FOUND, "there is no such model") + "\n")
        return 1
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    server = Server((config["server"]["host"], config["server"]["port"]), handler(config, child, InForce(config)))
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


class InForce:
    """The configuration, and its changes: what `PUT /admin/config` answers. The model name `refuses` takes none."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.parsed = settings.parse(config)
        self.generation = 1
        self._lock = threading.Lock()

    @property
    def hash(self) -> str:
        return settings.config_hash(self.parsed)

    def shown(self) -> admin.ConfigInForce:
        document = settings.to_mapping(self.parsed)
        return admin.ConfigInForce(self.hash, self.generation, settings.restart_hash(self.parsed), document)

    def refusal(self, headers: Message) -> tuple[int, dict[str, Any]] | None:
        file = self.parsed.server.admin_token_file
        if file is None:
            return 404, {"error": {"message": "no --admin-token-file", "type": "", "code": "admin_disabled"}}
        if headers.get("authorization") != f"Bearer {Path(file).read_text().strip()}":
            return 401, {"error": {"message": "no token", "type": "", "code": "invalid_admin_token"}}
        return None

    def put(self, body: bytes) -> tuple[int, admin.ConfigApplied | admin.ConfigRefused]:
        with self._lock:
            try:
                new = settings.parse(settings.with_places(yaml.safe_load(body), self.parsed))
                if self.parsed.model.name == "refuses":
                    raise settings.ConfigError([errors.Problem("scheduler", "this", "nothing: it refuses all")])
            except settings.ConfigError as error:
                problems = [admin.ConfigProblem(each.key, repr(each.seen), each.expected) for each in error.problems]
                return 400, self._refused(admin.Refusal(str(error), "", "config_invalid", problems=problems))
            changed = settings.changes(self.parsed, new)
            restart = [admin.RestartChange(key, *pair) for key, pair in changed.items() if key not in settings.HOT_KEYS]
            if restart:
                return 409, self._refused(admin.Refusal("restart", "", "restart_required", changes=restart))
            self.parsed = new
            self.generation += bool(changed)
            return 200, admin.ConfigApplied(self.hash, self.generation, changed)

    def _refused(self, refusal: admin.Refusal) -> admin.ConfigRefused:
        return admin.ConfigRefused(refusal, self.hash, self.generation)


def handler(
    config: dict[str, Any], child: subprocess.Popen[bytes], in_force: InForce
) -> type[http.server.BaseHTTPRequestHandler]:
    started = time.monotonic()

    def is_ready() -> bool:
        return config["model"]["name"] != "wakes" or time.monotonic() - started > 2

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = is_ready()
            if self.path == contract.STATUS_PATH:
                self.answer(200, status(config, ready, in_force))
            elif self.path == contract.ADMIN_CONFIG_PATH:
                refusal = in_force.refusal(self.headers)
                self.answer(*(refusal or (200, in_force.shown())))
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
                        "maxNumSeqs": in_force.parsed.scheduler.max_num_seqs,
                        "maxQueuedRequests": in_force.parsed.scheduler.max_queued_requests,
                        "keys": Path(keys).read_text() if keys else None,
                    },
                )

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            refusal = in_force.refusal(self.headers)
            if refusal is None and not is_ready():
                refusal = 503, {"error": {"message": "still loading", "type": "server_error", "code": "loading"}}
            self.answer(*(refusal or in_force.put(body)))

        def answer(self, code: int, body: Any) -> None:
            data = msgspec.json.encode(body)
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def status(config: dict[str, Any], ready: bool, in_force: InForce) -> dict[str, Any]:
    return {
        "version": "0",
        "state": "ready" if ready else "loading",
        "message": "stands in",
        "model": {"name": config["model"]["name"], "source": config["model"]["source"]},
        "config": {
            "hash": in_force.hash,
            "generation": in_force.generation,
            "restartHash": settings.restart_hash(in_force.parsed),
        },
        "load": {"phase": "weights", "fraction": 0.5},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
